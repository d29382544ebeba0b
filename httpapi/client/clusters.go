package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Clusters has the operations on clusters.
type Clusters struct{ c *Client }

// A Cluster is some equal pods that were made together (docs/interface.md 2.27).
type Cluster struct {
	ID           string         `json:"id"`
	Name         string         `json:"name"`
	Type         string         `json:"type"` // TRAINING, APPLICATION
	Compute      ClusterCompute `json:"compute"`
	Template     string         `json:"template"`     // empty: of none
	DataCenterID string         `json:"dataCenterId"` // of all pods
	Pods         struct {
		Total    int            `json:"total"`
		ByStatus map[string]int `json:"byStatus"`
	} `json:"pods"`
	Primary struct {
		PodID  string `json:"podId"`
		Status string `json:"status"`
		SSH    string `json:"sshEndpoint"` // host:port; empty: it is not reached so
	} `json:"primary"` // the pod of rank 0
	CreatedAt time.Time `json:"createdAt"`
	Owner     string    `json:"-"` // only for operators: see Client.As
}

func (v *Cluster) own(owner string) { v.Owner = owner }

// A ClusterCompute is the size of a cluster.
type ClusterCompute struct {
	GPU        string `json:"gpuTypeId"`
	GPUsPerPod int    `json:"gpuCountPerPod"`
	Pods       int    `json:"podCount"` // 2 to 250
}

// ClusterSettings are the settings of a new cluster, each of whose pods has those of the container.
// Either Image or TemplateID must be set; TemplateID excludes what a template has.
type ClusterSettings struct {
	Name          string            `json:"name"`
	Type          string            `json:"type"`
	Compute       ClusterCompute    `json:"compute"`
	Image         string            `json:"image,omitempty"`
	TemplateID    string            `json:"templateId,omitempty"`
	Args          string            `json:"args,omitempty"`
	Entrypoint    []string          `json:"entrypoint,omitempty"`
	Cmd           []string          `json:"cmd,omitempty"`
	Disk          int               `json:"disk,omitempty"`
	Ports         []string          `json:"ports,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
	Mounts        *Mounts           `json:"mounts,omitempty"`
	DataCenterIDs []string          `json:"dataCenterIds,omitempty"`
	StartSSH      *bool             `json:"startSsh,omitempty"`
	StartJupyter  *bool             `json:"startJupyter,omitempty"`
	Options       *PodOptions       `json:"podyard,omitempty"`
}

// A Membership is the place of a pod in a cluster.
type Membership struct {
	ID   string `json:"id"` // of the cluster
	Rank int    `json:"rank"`
	IP   string `json:"ip"` // in the private network; empty until it is known
}

// All iterates over the caller's clusters. An error ends it.
func (a *Clusters) All(ctx context.Context) iter.Seq2[Cluster, error] {
	return pages[Cluster](ctx, a.c, "/v2/clusters", "clusters", nil)
}

// List returns the caller's clusters.
func (a *Clusters) List(ctx context.Context) ([]Cluster, error) { return collect(a.All(ctx)) }

// Create makes a cluster: all of its pods, or none. It does not wait until they run.
func (a *Clusters) Create(ctx context.Context, s ClusterSettings) (Cluster, error) {
	return change[Cluster](ctx, a.c, http.MethodPost, "/v2/clusters", s)
}

// Get returns a cluster.
func (a *Clusters) Get(ctx context.Context, id string) (Cluster, error) {
	return find[Cluster](ctx, a.c, join("/v2/clusters", id))
}

// Pods returns the pods of a cluster, by rank.
func (a *Clusters) Pods(ctx context.Context, id string) ([]Pod, error) {
	list, _, err := page[Pod](ctx, a.c, to(a.c.control, http.MethodGet, join("/v2/clusters", id, "pods"), nil), "pods")
	return list, err
}

// Rename changes the name of a cluster.
func (a *Clusters) Rename(ctx context.Context, id, name string) (Cluster, error) {
	return change[Cluster](ctx, a.c, http.MethodPatch, join("/v2/clusters", id), map[string]string{"name": name})
}

// Delete terminates all pods of a cluster.
func (a *Clusters) Delete(ctx context.Context, id string) error {
	return a.c.remove(ctx, join("/v2/clusters", id))
}
