package pods

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/podyard/podyard/pods/catalog"
)

// A Placer finds capacity on hosts, for pods and for whatever else runs there. What is taken is
// in the store, as claims of pods and of reservations. So several placers on one store, in this
// program or another, give nothing to two. They must agree on the hosts and on the
// overcommitment. A Placer is safe for concurrent use.
type Placer struct {
	store      PodStore
	catalog    catalog.Catalog
	hosts      map[string]*Host
	order      []*Host
	overcommit float64
	shared     *shared // hosts of other servers; nil: there are none
}

// NewPlacer returns a placer for hosts, whose GPUs and CPU flavors are of c. An error says what
// is wrong with the hosts. overcommit is how many vCPUs are promised for each vCPU of a host; 0
// means catalog.Overcommit.
func NewPlacer(store PodStore, c catalog.Catalog, hosts []Host, overcommit float64) (*Placer, error) {
	if err := checkHosts(c, hosts); err != nil {
		return nil, err
	}
	r := &Placer{store: store, catalog: withoutMissingNetworks(c, hosts), hosts: make(map[string]*Host), overcommit: overcommit}
	if overcommit == 0 {
		r.overcommit = catalog.Overcommit
	}
	for _, h := range slices.Clone(hosts) {
		r.hosts[h.ID] = &h
		r.order = append(r.order, &h)
	}
	return r, nil
}

// Catalog is what can be rented: the catalog of NewPlacer, without the global network of data
// centers where a host's runtime has no private networks. In the placer of a Service that is one of
// several, it has the GPU types of the hosts of the others too. Do not change it.
func (r *Placer) Catalog() catalog.Catalog { return r.shared.offer(r.catalog) }

// Host returns one of the placer's hosts. Do not change it.
func (r *Placer) Host(id string) (h *Host, ok bool) {
	h, ok = r.hosts[id]
	return h, ok
}

// Hosts returns the placer's hosts in their order. Do not change them.
func (r *Placer) Hosts() []*Host { return slices.Clone(r.order) }

// all returns the hosts of all servers that live, those of this program first.
func (r *Placer) all() []*Host { return r.shared.all(r.order) }

// find returns one of all.
func (r *Placer) find(id string) (*Host, bool) {
	list := r.all()
	i := slices.IndexFunc(list, func(h *Host) bool { return h.ID == id })
	if i < 0 {
		return nil, false
	}
	return list[i], true
}

// A PlacementRequest says what to place, and where.
type PlacementRequest struct {
	// Alternatives are equally good. A host gives the first one that it has capacity for.
	Alternatives []Requirements
	// DataCenters are tried in this order; empty: all hosts in their order.
	DataCenters []string
	// PreferDataCenters means that all other data centers are tried after DataCenters.
	PreferDataCenters bool

	host          string // the present one
	globalNetwork bool
	server        string // that has the hosts; empty: any
}

// Place finds a host for w and calls commit with the placement. commit stores it, or returns
// ErrNoCapacity when another caller was faster; then Place goes on. Without a host the error is
// ErrNoCapacity.
func (r *Placer) Place(ctx context.Context, w PlacementRequest, commit func(Requirements, Placement) error) error {
	hosts := r.candidates(&w)
	// Each lost race means that another caller got a unit, so this loop ends.
	for raced := true; raced; {
		raced = false
		for _, h := range hosts {
			d, pl, ok, err := r.firstFit(ctx, h, &w)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if err := commit(d, pl); !errors.Is(err, ErrNoCapacity) {
				return err
			}
			raced = true
		}
	}
	return ErrNoCapacity
}

// candidates are the hosts that w may use, best first: its present one, or those of its data
// centers in their order, or all in their order.
func (r *Placer) candidates(w *PlacementRequest) []*Host {
	if w.host != "" {
		if h, ok := r.find(w.host); ok {
			return []*Host{h}
		}
		return nil
	}
	rank := func(h *Host) int {
		if i := slices.Index(w.DataCenters, h.DataCenter); i >= 0 {
			return i
		}
		return len(w.DataCenters)
	}
	var list []*Host
	for _, h := range r.all() {
		if len(w.DataCenters) > 0 && !w.PreferDataCenters && rank(h) == len(w.DataCenters) {
			continue
		}
		if d, _ := r.Catalog().DataCenter(h.DataCenter); w.globalNetwork && !d.GlobalNetwork {
			continue
		}
		if other, ok := r.shared.find(h.ID); ok && w.globalNetwork && !other.row.Networks {
			continue
		}
		if w.server != "" && r.shared.serverOf(h.ID) != w.server {
			continue
		}
		list = append(list, h)
	}
	slices.SortStableFunc(list, func(a, b *Host) int { return rank(a) - rank(b) })
	return list
}

// firstFit returns the first of w.Alternatives that h has capacity for now, and its placement.
func (r *Placer) firstFit(ctx context.Context, h *Host, w *PlacementRequest) (d Requirements, pl Placement, ok bool, err error) {
	if cordoned, err := r.cordoned(ctx, h); cordoned || err != nil {
		return d, pl, false, err
	}
	for _, d := range w.Alternatives {
		if w.host == "" && !r.matches(h, &d) {
			continue
		}
		if pl, ok, err = r.fit(ctx, h, &d); ok || err != nil {
			return d, pl, ok, err
		}
	}
	return d, pl, false, nil
}

// matches reports whether h, if it were empty, could take d.
func (r *Placer) matches(h *Host, d *Requirements) bool {
	return (d.Cloud == "" || h.inCloud(d.Cloud)) && (d.GPU == "" || d.CUDA.match(r.cudaVersion(h, d.GPU)) && d.gives(r.share(h, d.GPU)))
}

// fit returns the placement of d on h, if h has capacity now.
func (r *Placer) fit(ctx context.Context, h *Host, d *Requirements) (pl Placement, ok bool, err error) {
	pl = Placement{Host: h.ID, DataCenter: h.DataCenter}
	if d.GPU != "" {
		ok, err = r.fitGPU(ctx, h, d, &pl)
	} else {
		ok, err = r.fitCPU(ctx, h, d, &pl)
	}
	return pl, ok, err
}

func (r *Placer) fitGPU(ctx context.Context, h *Host, d *Requirements, pl *Placement) (bool, error) {
	i := slices.IndexFunc(h.GPUs, func(g HostGPUs) bool { return g.Type == d.GPU })
	if i < 0 || r.exceedsMaxCount(d) {
		return false, nil
	}
	pl.Share = r.share(h, d.GPU)
	if h.Memory > 0 { // of the GPUs' share: CPU pods and other GPUs take the rest
		ok, err := r.addClaim(ctx, pl, Claim{h.memoryResource(), int64(pl.Share.Memory * d.Count), int64(h.Memory)})
		if !ok || err != nil {
			return false, err
		}
	}
	if g := h.GPUs[i]; len(g.Devices) == 0 {
		return r.addClaim(ctx, pl, Claim{h.gpuCountResource(g.Type), int64(d.Count), int64(g.Count)})
	}
	for _, device := range h.GPUs[i].Devices {
		ok, err := r.addClaim(ctx, pl, Claim{h.gpuDeviceResource(device), 1, 1})
		if err != nil {
			return false, err
		}
		if ok {
			pl.Devices = append(pl.Devices, device)
		}
		if len(pl.Devices) == d.Count {
			return true, nil
		}
	}
	return false, nil
}

// exceedsMaxCount reports whether d is above the largest machine of its tier. It is false for a
// type without a bound, and where no tier is asked for.
func (r *Placer) exceedsMaxCount(d *Requirements) bool {
	t, _ := r.Catalog().GPU(d.GPU)
	most := math.MaxInt
	switch {
	case d.Cloud == Community && t.MaxCount.Community > 0:
		most = t.MaxCount.Community
	case d.Cloud == Secure && t.MaxCount.Secure > 0:
		most = t.MaxCount.Secure
	}
	return d.Count > most
}

func (r *Placer) fitCPU(ctx context.Context, h *Host, d *Requirements, pl *Placement) (bool, error) {
	ok, err := r.addClaim(ctx, pl, Claim{h.vcpuResource(d.CPU), int64(d.VCPU), r.vcpuLimit(h, d.CPU)})
	if !ok || err != nil || h.Memory == 0 {
		return ok, err
	}
	return r.addClaim(ctx, pl, Claim{h.memoryResource(), int64(r.memoryFor(d)), int64(h.Memory)})
}

// memoryFor returns the memory of a CPU machine in GB.
func (r *Placer) memoryFor(d *Requirements) int {
	if d.Memory > 0 {
		return d.Memory
	}
	f, _ := r.Catalog().CPU(d.CPU)
	return f.Memory(d.VCPU)
}

// Names of the resources that are claimed on a host.
func (h *Host) gpuCountResource(gpuType string) string { return "gpus/" + h.ID + "/" + gpuType }
func (h *Host) gpuDeviceResource(name string) string   { return "gpu/" + h.ID + "/" + name }
func (h *Host) vcpuResource(flavor string) string      { return "vcpu/" + h.ID + "/" + flavor }
func (h *Host) memoryResource() string                 { return "memory/" + h.ID }

// vcpuLimit is how many vCPUs of a flavor h can give, overcommitment included.
func (r *Placer) vcpuLimit(h *Host, flavor string) int64 {
	return int64(float64(h.VCPU[flavor]) * r.overcommit)
}

// addClaim adds c to pl if it is free now. The store checks it again when it is written.
func (r *Placer) addClaim(ctx context.Context, pl *Placement, c Claim) (bool, error) {
	used, err := r.store.Claimed(ctx, c.Resource)
	if err != nil {
		return false, fmt.Errorf("pods: look up %q: %w", c.Resource, err)
	}
	if used+c.Units > c.Limit {
		return false, nil
	}
	pl.Claims = append(pl.Claims, c)
	return true, nil
}
