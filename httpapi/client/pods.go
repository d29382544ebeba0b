package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"
)

// Pods has the operations on pods.
type Pods struct{ c *Client }

// A Pod is a pod as the server answers it (docs/interface.md 2.1).
type Pod struct {
	ID           string            `json:"id"`
	Name         string            `json:"name"`
	Status       string            `json:"status"`  // PROVISIONING, STARTING, RUNNING, EXITED, ERROR, TERMINATED
	Actions      []string          `json:"actions"` // what the status allows
	Image        string            `json:"image"`
	Args         string            `json:"args"`       // words of the CMD, or an object with both lists as JSON
	Entrypoint   []string          `json:"entrypoint"` // instead of the image's; empty: the image's
	Cmd          []string          `json:"cmd"`        // instead of the image's; empty: the image's
	Disk         int               `json:"disk"`       // GB
	Ports        []string          `json:"ports"`
	Env          map[string]string `json:"env"`
	Registry     string            `json:"registry"` // id of a credential, or empty
	Mounts       Mounts            `json:"mounts"`
	GPU          *GPU              `json:"gpu"` // nil: it has vCPUs
	CPU          *CPU              `json:"cpu"` // nil: it has GPUs
	Cloud        string            `json:"cloud"`
	DataCenterID string            `json:"dataCenterId"` // empty until it is placed
	CUDAVersion  string            `json:"cudaVersion"`
	SSH          struct {
		Proxy  *sshAccess `json:"proxy"` // nil: it is not reached so
		Direct *sshAccess `json:"direct"`
	} `json:"ssh"`
	// Why says why it does not run. Only Pods.Why reads it.
	Why      *PodWhy   `json:"-"`
	Template string    `json:"template"`
	Cost     float64   `json:"cost"` // USD an hour now
	Locked   bool      `json:"locked"`
	Runtime  *struct { // nil unless it runs
		Uptime int64 `json:"uptime"` // seconds
		GPUs   []struct {
			Util       int `json:"util"`
			MemoryUtil int `json:"memoryUtil"`
		} `json:"gpus"`
		CPU struct {
			Util int `json:"util"`
		} `json:"cpu"`
		Memory struct {
			Util int `json:"util"`
		} `json:"memory"`
		Ports []struct {
			Private int    `json:"private"`
			Public  int    `json:"public"` // 0: not known yet
			Type    string `json:"type"`
			IP      string `json:"ip"`
		} `json:"ports"`
	} `json:"runtime"`
	CreatedAt        time.Time  `json:"createdAt"`
	StartedAt        *time.Time `json:"startedAt"`
	GlobalNetworking struct {
		Enabled     bool   `json:"enabled"`
		IP          string `json:"ip"`
		InternalDNS string `json:"internalDns"`
	} `json:"globalNetworking"`
	Cluster *Membership `json:"cluster"` // nil: it is in none
	Owner   string      `json:"-"`       // only for operators: see Client.As
}

// An sshAccess says how a pod is reached with SSH.
type sshAccess struct {
	Host     string `json:"host"`
	Username string `json:"username"`
	Command  string `json:"command"`
	Port     int    `json:"port"`
}

func (p *Pod) own(owner string) { p.Owner = owner }

// A GPU says which GPUs a pod has.
type GPU struct {
	ID                  string   `json:"id"`
	Count               int      `json:"count,omitempty"`               // default 1
	AllowedCUDAVersions []string `json:"allowedCudaVersions,omitempty"` // only of a request
	MinCUDAVersion      string   `json:"minCudaVersion,omitempty"`      // only of a request
	MinRAM              int      `json:"minRamPerGpu,omitempty"`        // GB of the host for each GPU; only of a request
	MinVCPU             int      `json:"minVcpuCountPerGpu,omitempty"`  // of the host for each GPU; only of a request
	VCPU                float64  `json:"vcpuCount,omitempty"`           // of the pod; only of an answer
	Memory              float64  `json:"memory,omitempty"`              // GB of the pod; only of an answer
}

// A CPU says which vCPUs a pod or a worker has.
type CPU struct {
	ID     string `json:"id"`
	VCPU   int    `json:"vcpuCount"`
	Memory int    `json:"memory,omitempty"` // GB; only of an answer
}

// Mounts are the storage of a pod: one of the two, or none.
type Mounts struct {
	Persistent *PersistentMount `json:"persistent,omitempty"`
	Network    []NetworkMount   `json:"network,omitempty"` // one at most
}

// A PersistentMount is storage of the host.
type PersistentMount struct {
	Size int    `json:"size"` // GB
	Path string `json:"path"`
}

// A NetworkMount is a network volume in a pod.
type NetworkMount struct {
	VolumeID string `json:"volumeId"`
	Path     string `json:"path"`
}

// PodSettings are the settings of a new pod (docs/interface.md 2.2). What is absent has the
// server's default. Exactly one of GPU and CPU must be set, and Image or TemplateID.
type PodSettings struct {
	Name             string            `json:"name"`
	Image            string            `json:"image,omitempty"`
	TemplateID       string            `json:"templateId,omitempty"`
	GPU              *GPU              `json:"gpu,omitempty"`
	CPU              *CPU              `json:"cpu,omitempty"`
	Args             string            `json:"args,omitempty"`
	Entrypoint       []string          `json:"entrypoint,omitempty"`
	Cmd              []string          `json:"cmd,omitempty"`
	Disk             int               `json:"disk,omitempty"`
	Ports            []string          `json:"ports,omitempty"`
	Env              map[string]string `json:"env,omitempty"`
	Registry         string            `json:"registry,omitempty"`
	Mounts           *Mounts           `json:"mounts,omitempty"`
	Cloud            string            `json:"cloud,omitempty"`
	DataCenterIDs    []string          `json:"dataCenterIds,omitempty"`
	GlobalNetworking bool              `json:"globalNetworking,omitempty"`
	StartSSH         *bool             `json:"startSsh,omitempty"`
	StartJupyter     *bool             `json:"startJupyter,omitempty"`
	Options          *PodOptions       `json:"podyard,omitempty"`
}

// A PodUpdate has the settings to change. Nil: it stays as it is.
type PodUpdate struct {
	Name             *string           `json:"name,omitempty"`
	Image            *string           `json:"image,omitempty"`
	TemplateID       string            `json:"templateId,omitempty"`
	Args             *string           `json:"args,omitempty"`
	Entrypoint       []string          `json:"entrypoint,omitzero"` // empty: the image's
	Cmd              []string          `json:"cmd,omitzero"`
	Disk             *int              `json:"disk,omitempty"`
	Ports            []string          `json:"ports,omitzero"`
	Env              map[string]string `json:"env,omitzero"`
	Registry         *string           `json:"-"` // empty: none
	Mounts           *Mounts           `json:"mounts,omitempty"`
	Locked           *bool             `json:"locked,omitempty"`
	GlobalNetworking *bool             `json:"globalNetworking,omitempty"`
	Options          *PodOptions       `json:"podyard,omitempty"`
}

// MarshalJSON writes the settings to change.
func (u PodUpdate) MarshalJSON() ([]byte, error) {
	type plain PodUpdate
	return json.Marshal(struct {
		plain
		Registry json.RawMessage `json:"registry,omitempty"`
	}{plain(u), orNull(u.Registry)})
}

// orNull returns an id, null for an empty one, and nothing for nil.
func orNull(id *string) json.RawMessage {
	switch {
	case id == nil:
		return nil
	case *id == "":
		return json.RawMessage("null")
	}
	b, err := json.Marshal(*id)
	if err != nil {
		return nil // impossible: it is a string
	}
	return b
}

// All iterates over the caller's pods. An error ends it.
func (p *Pods) All(ctx context.Context) iter.Seq2[Pod, error] {
	return pages[Pod](ctx, p.c, "/v2/pods", "pods", nil)
}

// List returns the caller's pods.
func (p *Pods) List(ctx context.Context) ([]Pod, error) { return collect(p.All(ctx)) }

// Create creates a pod. It does not wait until the pod runs.
func (p *Pods) Create(ctx context.Context, s PodSettings) (Pod, error) {
	return change[Pod](ctx, p.c, http.MethodPost, "/v2/pods", s)
}

// Get returns a pod.
func (p *Pods) Get(ctx context.Context, id string) (Pod, error) {
	return find[Pod](ctx, p.c, join("/v2/pods", id))
}

// A PodWhy says why a pod does not run (docs/interface.md 2.23).
type PodWhy struct {
	Status  string     `json:"status"`
	Why     string     `json:"why"`               // empty: it runs
	Since   *time.Time `json:"since"`             // nil: not known
	Tries   int        `json:"tries"`             // calls to its host that failed
	NextTry *time.Time `json:"nextTry"`           // nil: none is due
	Failure string     `json:"failure,omitempty"` // of the last try: only for operators
	// Hosts that were looked at for a place, and why each does not take the pod: only for operators.
	Hosts []struct {
		Host string `json:"host"`
		Kind string `json:"kind"` // room, cordoned, full, small or unsuitable
		Why  string `json:"why"`
	} `json:"hosts,omitempty"`
}

// Why returns a pod with its field Why. It makes two requests, one of which is an addition.
func (p *Pods) Why(ctx context.Context, id string) (Pod, error) {
	pod, err := p.Get(ctx, id)
	if err == nil {
		pod.Why, err = get[*PodWhy](ctx, p.c, join("/v2/pods", id, "why"), nil)
	}
	return pod, err
}

// Update changes a pod. Name and Locked change at once, everything else at the next start,
// restart or reset.
func (p *Pods) Update(ctx context.Context, id string, u PodUpdate) (Pod, error) {
	return change[Pod](ctx, p.c, http.MethodPatch, join("/v2/pods", id), u)
}

// Terminate deletes a pod with its disk.
func (p *Pods) Terminate(ctx context.Context, id string) error {
	return p.c.remove(ctx, join("/v2/pods", id))
}

// Start starts a pod that was stopped.
func (p *Pods) Start(ctx context.Context, id string) (Pod, error) { return p.act(ctx, id, "start") }

// Stop stops a pod and keeps its disk.
func (p *Pods) Stop(ctx context.Context, id string) (Pod, error) { return p.act(ctx, id, "stop") }

// Restart makes the container of a pod anew. Its disk is wiped.
func (p *Pods) Restart(ctx context.Context, id string) (Pod, error) {
	return p.act(ctx, id, "restart")
}

func (p *Pods) act(ctx context.Context, id, action string) (pod Pod, err error) {
	r, err := to(p.c.control, http.MethodPost, join("/v2/pods", id, "action"), nil).with(map[string]string{"action": action})
	if err != nil {
		return pod, err
	}
	_, err = p.c.do(ctx, r, &pod)
	return pod, err
}

// Reset makes the container of a pod anew and pulls its image. Its disk is wiped.
func (p *Pods) Reset(ctx context.Context, id string) (pod Pod, err error) {
	_, err = p.c.do(ctx, to(p.c.legacy, http.MethodPost, join("/v1/pods", id, "reset"), nil), &pod)
	return pod, err
}

// Logs iterates over the log of a pod until the pod is terminated or ctx ends, which is an
// error. A connection that breaks is made again. o may be nil.
func (p *Pods) Logs(ctx context.Context, id string, o *LogOptions) iter.Seq2[LogLine, error] {
	return logs(ctx, p.c, join("/v2/pods", id, "logs"), o)
}

// Await waits until a pod has one of the statuses or ctx ends, and returns the pod. It asks
// once in two seconds. A pod that fails or is terminated ends the wait with an error.
func (p *Pods) Await(ctx context.Context, id string, statuses ...string) (Pod, error) {
	return await(ctx, id, statuses, p.Get)
}
