package podfleet

import (
	"slices"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless"
)

// A place is what a worker has of a host.
type place struct {
	host    *pods.Host
	image   string
	flavor  string
	vcpu    int
	memory  int
	gpu     string
	gpus    int
	devices []string
}

// take finds a place for w and keeps it until release. A worker that has one keeps it.
func (f *Fleet) take(podID string, w *serverless.WorkerSpec) (*place, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.places[podID]; p != nil {
		return p, nil
	}
	for _, h := range f.preferred(w.DataCenterIDs) {
		p, ok := f.on(h, w)
		if ok {
			p.host, p.image = h, w.Container.Image
			f.places[podID] = &p
			return &p, nil
		}
	}
	return nil, serverless.ErrNoRoom
}

func (f *Fleet) release(podID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.places, podID)
}

// preferred is the hosts, those in the data centers first.
func (f *Fleet) preferred(dataCenters []string) []*pods.Host {
	list := make([]*pods.Host, len(f.hosts))
	for i := range f.hosts {
		list[i] = &f.hosts[i]
	}
	slices.SortStableFunc(list, func(a, b *pods.Host) int {
		return rank(dataCenters, a) - rank(dataCenters, b)
	})
	return list
}

func rank(dataCenters []string, h *pods.Host) int {
	if i := slices.Index(dataCenters, h.DataCenter); i >= 0 {
		return i
	}
	return len(dataCenters)
}

// on is the place of w on h, if it has one.
func (f *Fleet) on(h *pods.Host, w *serverless.WorkerSpec) (place, bool) {
	if w.GPU != nil {
		return f.gpu(h, w.GPU)
	}
	return f.cpu(h, w.CPU)
}

// cpu is the first machine that fits.
func (f *Fleet) cpu(h *pods.Host, choices []serverless.EndpointCPU) (place, bool) {
	memory := h.Memory
	vcpu := map[string]int{}
	for _, p := range f.places {
		if p.host == h {
			vcpu[p.flavor] += p.vcpu
			memory -= p.memory
		}
	}
	for _, c := range choices {
		all := int(float64(h.VCPU[c.ID]) * f.overcommit)
		if vcpu[c.ID]+c.VCPU <= all && (h.Memory == 0 || c.Memory <= memory) {
			return place{flavor: c.ID, vcpu: c.VCPU, memory: c.Memory}, true
		}
	}
	return place{}, false
}

// gpu is the first type with enough GPUs free.
func (f *Fleet) gpu(h *pods.Host, want *serverless.EndpointGPU) (place, bool) {
	n := max(want.Count, 1)
	for _, pool := range want.Pools {
		for _, typ := range gpuTypes(f.catalog, pool) {
			if slices.Contains(want.ExcludedTypes, typ) {
				continue
			}
			for i := range h.GPUs {
				g := &h.GPUs[i]
				if g.Type != typ {
					continue
				}
				if devices, ok := f.free(h, g, n); ok {
					return place{gpu: typ, gpus: n, devices: devices}, true
				}
			}
		}
	}
	return place{}, false
}

// free is n GPUs of g that no worker has, by name if they have names.
func (f *Fleet) free(h *pods.Host, g *pods.HostGPUs, n int) (devices []string, ok bool) {
	used, names := 0, map[string]bool{}
	for _, p := range f.places {
		if p.host == h && p.gpu == g.Type {
			used += p.gpus
			for _, d := range p.devices {
				names[d] = true
			}
		}
	}
	if len(g.Devices) == 0 {
		return nil, used+n <= g.Count
	}
	for _, d := range g.Devices {
		if !names[d] && len(devices) < n {
			devices = append(devices, d)
		}
	}
	return devices, len(devices) == n
}
