package pods

import (
	"fmt"
	"slices"

	"github.com/podyard/podyard/pods/catalog"
)

// share is what goes with each GPU of a type on h: its cores and its memory, divided by all of its
// GPUs. A host whose size is not known gives what the catalog says. It is at least 1 of both.
func (r *Placer) share(h *Host, gpu string) catalog.Share {
	t, _ := r.Catalog().GPU(gpu)
	x, gpus, cores := t.Share, 0, 0
	for _, g := range h.GPUs {
		gpus += max(g.Count, len(g.Devices))
	}
	for _, n := range h.VCPU { // of the same cores
		cores = max(cores, n)
	}
	if gpus > 0 && cores > 0 && h.Memory > 0 {
		x = catalog.Share{VCPU: cores / gpus, Memory: h.Memory / gpus}
	}
	return catalog.Share{VCPU: max(x.VCPU, 1), Memory: max(x.Memory, 1)}
}

// smallestShare is the least that a host gives with each GPU of a type.
func (r *Placer) smallestShare(gpu string) catalog.Share {
	var x catalog.Share
	for _, h := range r.all() {
		if slices.ContainsFunc(h.GPUs, func(g HostGPUs) bool { return g.Type == gpu }) {
			s := r.share(h, gpu)
			if x == (catalog.Share{}) {
				x = s
			}
			x = catalog.Share{VCPU: min(x.VCPU, s.VCPU), Memory: min(x.Memory, s.Memory)}
		}
	}
	if x == (catalog.Share{}) {
		return r.share(&Host{}, gpu)
	}
	return x
}

// Share returns the vCPUs and the GB of memory that a GPU pod has with all its GPUs: on its host, or
// before it is placed, on the smallest one.
func (s *Service) Share(p *Pod) (vcpu, memory int) {
	x := p.Placement.Share
	if x == (catalog.Share{}) {
		x = s.placer.smallestShare(p.GPU.ID)
		if h, ok := s.placer.find(p.Placement.Host); ok { // it was placed before hosts had shares
			x = s.placer.share(h, p.GPU.ID)
		}
	}
	return x.VCPU * p.GPU.Count, x.Memory * p.GPU.Count
}

// Limits are the vCPUs and the GB of memory to which h holds what has so many GPUs there: their
// share. A host whose size is not known limits nothing.
func (p *Placement) Limits(h *Host, gpus int) (vcpu, memory int) {
	if h.Memory == 0 {
		return 0, 0
	}
	return p.Share.VCPU * gpus, p.Share.Memory * gpus
}

// gives reports whether a host with this share of each GPU has what d asks for.
func (d *Requirements) gives(x catalog.Share) bool {
	return x.VCPU >= d.MinShare.VCPU && x.Memory >= d.MinShare.Memory
}

// describeMinimum follows the name of a GPU; it is empty without a minimum.
func describeMinimum(x catalog.Share) string {
	switch {
	case x == catalog.Share{}:
		return ""
	case x.VCPU == 0:
		return fmt.Sprintf(" with at least %d GB each", x.Memory)
	case x.Memory == 0:
		return fmt.Sprintf(" with at least %d vCPUs each", x.VCPU)
	}
	return fmt.Sprintf(" with at least %d vCPUs and %d GB each", x.VCPU, x.Memory)
}
