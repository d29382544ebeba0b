package httpapi

import (
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
)

func clusterOperations() []operation {
	return group(APIControl, AreaClusters,
		op("listClusters", "GET /v2/clusters", ScopePodsRead, listClusters, paginated, byOwners, heavy),
		op("createCluster", "POST /v2/clusters", ScopePodsWrite, createCluster, keyed, bodyUpTo(maxPodBody)),
		op("getCluster", "GET /v2/clusters/{id}", ScopePodsRead, getCluster),
		op("updateCluster", "PATCH /v2/clusters/{id}", ScopePodsWrite, updateCluster),
		op("deleteCluster", "DELETE /v2/clusters/{id}", ScopePodsWrite, deleteCluster),
		op("listClusterPods", "GET /v2/clusters/{id}/pods", ScopePodsRead, listClusterPods, heavy),
	)
}

func (b *describer) describeClusters() map[string]description {
	cluster := openapi.For[clusterBody](&b.Builder)
	return map[string]description{
		"listClusters": {summary: "List the caller's clusters", answers: ok(withPagination(b.list("clusters", cluster, true)))},
		"createCluster": {
			summary: "Create a cluster", text: "All of its pods are there at once, in one data center, or none is.",
			body: b.Component("CreateClusterRequest", createClusterBody()), answers: created(cluster),
		},
		"getCluster": {summary: "Get a cluster", answers: ok(cluster)},
		"updateCluster": {
			summary: "Rename a cluster", body: b.Component("UpdateClusterRequest", updateClusterBody()), answers: ok(cluster),
		},
		"deleteCluster":   {summary: "Delete a cluster and terminate its pods", text: "It cannot be undone.", answers: gone()},
		"listClusterPods": {summary: "List the pods of a cluster, by rank", answers: ok(b.list("pods", openapi.For[podBody](&b.Builder), false))},
	}
}

func createClusterBody() *openapi.Schema {
	s := containerRules(recorded(func(o *object) { o.createCluster(&pods.CreateClusterRequest{}) }))
	idOrImage(s)
	mountRules(s)
	s.At("mounts/persistent").Deprecated = true
	extrasRules(s)
	s.At("disk").Defaults(pods.DefaultDisk)
	s.At("compute/gpuTypeId").NotEmpty()
	s.At("compute/gpuCountPerPod").Between(1, container.MaxCount)
	s.At("compute/podCount").Between(pods.MinClusterSize, pods.MaxClusterSize)
	return s
}

func updateClusterBody() *openapi.Schema {
	s := recorded(func(o *object) { o.updateCluster(&pods.UpdateClusterRequest{}) })
	s.At("name").NotEmpty()
	return s.NotEmpty()
}

// A clusterBody is a cluster on the wire (docs/interface.md 2.27). The address of its network is not
// known here.
type clusterBody struct {
	ID         string             `json:"id"`
	Name       string             `json:"name"`
	Type       pods.ClusterType   `json:"type"`
	Compute    computeBody        `json:"compute"`
	Template   string             `json:"template,omitempty"`
	DataCenter string             `json:"dataCenterId,omitempty"`
	Pods       clusterPodsBody    `json:"pods"`
	Primary    clusterPrimaryBody `json:"primary"`
	CreatedAt  wireTime           `json:"createdAt"`
}

type computeBody struct {
	GPU   string `json:"gpuTypeId"`
	Count int    `json:"gpuCountPerPod"`
	Pods  int    `json:"podCount"`
}

type clusterPodsBody struct {
	Total    int                 `json:"total"`
	ByStatus map[pods.Status]int `json:"byStatus"`
}

type clusterPrimaryBody struct {
	Pod    string      `json:"podId"`
	Status pods.Status `json:"status"`
	SSH    string      `json:"sshEndpoint,omitempty"`
}

// A memberBody is the place of a pod in a cluster.
type memberBody struct {
	ID   string `json:"id"`
	Rank int    `json:"rank"`
	IP   string `json:"ip,omitempty"`
}

func memberOf(p *pods.Pod) *memberBody {
	if p.Cluster == nil {
		return nil
	}
	return &memberBody{p.Cluster.ID, p.Cluster.Rank, p.Seen.IP}
}

func clusterOf(c *pods.Cluster) clusterBody {
	first := c.Members[0]
	b := clusterBody{
		ID: c.ID, Name: c.Name, Type: c.Type, Compute: computeBody{c.GPU.ID, c.GPU.Count, c.Size},
		Template: c.Template, DataCenter: first.Placement.DataCenter, CreatedAt: wireTime(c.Created),
		Pods:    clusterPodsBody{len(c.Members), map[pods.Status]int{}},
		Primary: clusterPrimaryBody{Pod: first.ID, Status: first.Status()},
	}
	for _, p := range c.Members {
		b.Pods.ByStatus[p.Status()]++
	}
	if s := sshOf(first.Seen.Ports); s != nil && first.Status() == pods.Running {
		b.Primary.SSH = net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
	}
	return b
}

func listClusters(c *call) error {
	list, err := ofOwner(c, c.Pods.Clusters, c.Pods.AllClusters, func(v *pods.Cluster) place { return place{v.Created, v.ID} })
	if err != nil {
		return err
	}
	return writeList(c, "clusters", list, func(v *pods.Cluster) string { return v.Owner }, clusterOf)
}

func createCluster(c *call) error {
	var r pods.CreateClusterRequest
	if err := decode(c, &r, &r.Violations, (*object).createCluster); err != nil {
		return err
	}
	r.Idempotency = c.keyed
	v, err := c.Pods.CreateCluster(c.r.Context(), c.owner, r)
	v, err = onceCreated(c, v, err, c.Pods.GetCluster)
	if err != nil {
		return err
	}
	c.made = v.ID
	return writeJSON(c.w, http.StatusCreated, clusterOf(v))
}

func (o *object) createCluster(r *pods.CreateClusterRequest) {
	o.require("name", "type", "compute")
	r.Pod.TemplateID = o.template()
	if r.Pod.TemplateID == "" { // a template has an image
		o.require("image")
	}
	r.Name = o.text("name")
	r.Type = pods.ClusterType(o.oneOf("type", string(pods.TrainingCluster), string(pods.ApplicationCluster), string(pods.SlurmCluster), string(pods.RayCluster)))
	if sub := o.object("compute"); sub != nil {
		sub.require("gpuTypeId", "gpuCountPerPod", "podCount")
		r.GPUType, r.GPUs, r.Size = sub.text("gpuTypeId"), sub.number("gpuCountPerPod"), sub.number("podCount")
		sub.unknown()
	}
	r.Pod.Image = o.text("image")
	r.Pod.Args, r.Pod.Entrypoint, r.Pod.Cmd = o.command()
	r.Pod.Disk = o.integer("disk")
	r.Pod.Ports = o.strings("ports")
	r.Pod.Env = o.env()
	r.Pod.Mounts = o.mounts()
	r.Pod.DataCenterIDs = o.choices("dataCenterIds")
	r.Pod.StartSSH, r.Pod.StartJupyter = o.boolean("startSsh"), o.boolean("startJupyter")
	r.Pod.Extras = o.extras()
	o.unknown()
}

// writeCluster answers 200 with a cluster, or returns err.
func (c *call) writeCluster(v *pods.Cluster, err error) error {
	return writeRecord(c, v, err, clusterOf)
}

func getCluster(c *call) error {
	return c.writeCluster(c.Pods.GetCluster(c.r.Context(), c.owner, c.r.PathValue("id")))
}

func updateCluster(c *call) error {
	ctx, id := c.r.Context(), c.r.PathValue("id")
	if _, err := c.Pods.GetCluster(ctx, c.owner, id); err != nil {
		return err // existence comes before the body
	}
	var r pods.UpdateClusterRequest
	if err := decode(c, &r, &r.Violations, (*object).updateCluster); err != nil {
		return err
	}
	return c.writeCluster(c.Pods.UpdateCluster(ctx, c.owner, id, r))
}

func (o *object) updateCluster(r *pods.UpdateClusterRequest) {
	r.Name = o.str("name")
	o.unknown()
}

func deleteCluster(c *call) error {
	return c.noContent(c.Pods.DeleteCluster(c.r.Context(), c.owner, c.r.PathValue("id")))
}

func listClusterPods(c *call) error {
	v, err := c.Pods.GetCluster(c.r.Context(), c.owner, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeList(c, "pods", v.Members, func(p *pods.Pod) string { return p.Owner }, c.pod)
}

// alone leaves the members of clusters out of a list.
func alone(list []*pods.Pod, err error) ([]*pods.Pod, error) {
	return slices.DeleteFunc(list, func(p *pods.Pod) bool { return p.Cluster != nil }), err
}
