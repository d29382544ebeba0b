package pods

import (
	"slices"
	"strconv"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/pods/catalog"
)

// rules checks requests against the schema (422) and the rules across fields (400). The service
// adds checks that need other stores.
type rules struct {
	catalog catalog.Catalog
	container.Rules
}

func (v rules) create(r *CreateRequest) {
	v.Name(r.Name)
	v.Image(r.Image)
	if (r.GPU == nil) == (r.CPU == nil) {
		v.BadRequest("", "exactly one of gpu and cpu must be set")
	}
	if r.GPU != nil {
		v.gpu(r.GPU)
	}
	if r.CPU != nil {
		v.cpu(r.CPU)
	}
	v.Command(r.command())
	if r.Disk != nil {
		v.Disk(*r.Disk)
	}
	v.Ports(r.Ports)
	v.Env(r.Env)
	v.mounts(r.Mounts)
	r.Extras.Check(v.Violations)
	if r.CPU != nil && r.Mounts.Persistent != nil {
		v.BadRequest("/mounts/persistent", "a CPU pod has no persistent mount")
	}
	if r.Cloud != "" && r.Cloud != Secure && r.Cloud != Community {
		v.Invalid("/cloud", "must be SECURE or COMMUNITY")
	}
	for i, id := range r.DataCenterIDs {
		if _, ok := v.catalog.DataCenter(id); !ok {
			v.Invalid("/dataCenterIds/"+strconv.Itoa(i), "unknown data center %q", id)
		}
	}
}

func (v rules) gpu(g *GPURequest) {
	if g.ID == "" {
		v.Invalid("/gpu/id", "must not be empty")
	} else if _, ok := v.catalog.GPU(g.ID); !ok {
		v.Invalid("/gpu/id", "unknown GPU type %q", g.ID)
	}
	if g.Count != nil { // more than the largest machine has is a lack of capacity
		v.Count("/gpu/count", *g.Count)
	}
	v.CUDAVersions("/gpu/allowedCudaVersions", g.AllowedCUDAVersions)
	if g.MinRAM != nil {
		v.Count("/gpu/minRamPerGpu", *g.MinRAM)
	}
	if g.MinVCPU != nil {
		v.Count("/gpu/minVcpuCountPerGpu", *g.MinVCPU)
	}
	if g.MinCUDAVersion == nil {
		return
	}
	v.CUDAVersion("/gpu/minCudaVersion", *g.MinCUDAVersion)
	if len(g.AllowedCUDAVersions) > 0 {
		v.BadRequest("/gpu", "allowedCudaVersions and minCudaVersion exclude each other")
	}
}

func (v rules) cpu(c *CPURequest) {
	f, ok := v.catalog.CPU(c.ID)
	switch {
	case c.ID == "":
		v.Invalid("/cpu/id", "must not be empty")
	case !ok:
		v.Invalid("/cpu/id", "unknown CPU flavor %q", c.ID)
	}
	n := c.VCPU
	switch {
	case n > container.MaxCount:
		v.Count("/cpu/vcpuCount", n)
	case n < 2 || n&(n-1) != 0:
		v.Invalid("/cpu/vcpuCount", "must be a power of two, at least 2")
	case ok && (n < f.VCPU.Min || n > f.VCPU.Max):
		v.Invalid("/cpu/vcpuCount", "flavor %s has %d to %d vCPUs", f.ID, f.VCPU.Min, f.VCPU.Max)
	}
}

// mounts checks each entry. An absent member has its zero value, which is not valid for any
// member.
func (v rules) mounts(m Mounts) {
	if p := m.Persistent; p != nil {
		v.PersistentMount(p.Size, p.Path)
	}
	if len(m.Network) > 1 {
		v.Invalid("/mounts/network", "must have at most 1 entry")
	}
	for i, n := range m.Network {
		place := "/mounts/network/" + strconv.Itoa(i)
		if n.VolumeID == "" {
			v.Invalid(place+"/volumeId", "must not be empty")
		}
		v.MountPath(place+"/path", n.Path)
	}
	if m.Persistent != nil && m.Network != nil {
		v.BadRequest("/mounts", "persistent and network exclude each other")
	}
}

// update checks r without regard to the pod.
func (v rules) update(r *UpdateRequest) {
	v.SetFields(r.Name, r.Image, r.command(), r.Disk)
	v.Ports(r.Ports)
	v.Env(r.Env)
	v.mounts(r.Mounts)
	r.Extras.Check(v.Violations)
}

// change checks r against the pod that it changes (docs/interface.md 2.3, update rules).
func (v rules) change(p *Pod, r *UpdateRequest) {
	old, m := p.Config.Mounts, r.Mounts
	if m.Network != nil && len(m.Network) == 0 {
		v.BadRequest("/mounts/network", "must not be empty: a mount cannot be cleared")
	}
	switch {
	case m.Persistent == nil:
	case old.Persistent == nil:
		v.BadRequest("/mounts/persistent", "the pod was not created with a persistent mount")
	case m.Persistent.Size < old.Persistent.Size:
		v.BadRequest("/mounts/persistent/size", "must not be below the present %d GB", old.Persistent.Size)
	}
	switch {
	case len(m.Network) == 0:
	case len(old.Network) == 0:
		v.BadRequest("/mounts/network", "the pod was not created with a network mount")
	case m.Network[0].VolumeID != old.Network[0].VolumeID:
		v.BadRequest("/mounts/network/0/volumeId", "is fixed at creation")
	}
	if r.GlobalNetworking != nil && *r.GlobalNetworking {
		places := p.DataCenters
		if p.Placement.DataCenter != "" {
			places = []string{p.Placement.DataCenter}
		}
		v.globalNetworking(p.GPU, places)
	}
}

// globalNetworking requires an NVIDIA GPU, and that one of places, or any data center if there
// are none, has a global network.
func (v rules) globalNetworking(g *GPU, places []string) {
	var gpu catalog.GPUType
	if g != nil {
		gpu, _ = v.catalog.GPU(g.ID)
	}
	if gpu.Manufacturer != catalog.NVIDIA {
		v.BadRequest("/globalNetworking", "needs an NVIDIA GPU")
		return
	}
	for _, d := range v.catalog.DataCenters {
		if d.GlobalNetwork && (len(places) == 0 || slices.Contains(places, d.ID)) {
			return
		}
	}
	v.BadRequest("/globalNetworking", "needs a data center that supports global networking")
}
