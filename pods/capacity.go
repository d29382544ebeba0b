package pods

import (
	"context"
	"fmt"
	"slices"

	"github.com/podyard/podyard/pods/catalog"
)

// Requirements are what a pod or a worker needs of a host: Count GPUs of a type, or a number of
// vCPUs of a flavor.
type Requirements struct {
	GPU    string // type; empty: CPU is set
	Count  int
	CPU    string // flavor
	VCPU   int
	Memory int   // GB beside the vCPUs; 0: as the catalog says
	Cloud  Cloud // empty: any
	CUDA   CUDAVersions
	// MinShare is what the host must give with each GPU, at least. 0: anything.
	MinShare catalog.Share
}

// A HostCapacity is the capacity of one host for some Requirements: how many such pods it could
// take now, and how many if it were empty.
type HostCapacity struct {
	DataCenter string
	CUDA       string // of the host, for GPUs; empty: not known, or none
	Free       int
	Total      int
}

// Capacity returns the capacity of the hosts of all servers, in their order: one entry for each host that
// could take such a pod if it were empty. It claims nothing, and the result may be out of date
// when it is read.
func (s *Service) Capacity(ctx context.Context, d Requirements) ([]HostCapacity, error) {
	return s.placer.capacity(ctx, &d)
}

func (r *Placer) capacity(ctx context.Context, d *Requirements) ([]HostCapacity, error) {
	var list []HostCapacity
	for _, h := range r.all() {
		if !r.matches(h, d) {
			continue
		}
		x := HostCapacity{DataCenter: h.DataCenter}
		var err error
		if d.GPU != "" {
			x.CUDA = r.cudaVersion(h, d.GPU)
			x.Free, x.Total, err = r.gpuCapacity(ctx, h, d)
		} else {
			x.Free, x.Total, err = r.cpuCapacity(ctx, h, d)
		}
		cordoned := false
		if err == nil {
			cordoned, err = r.cordoned(ctx, h)
		}
		if cordoned {
			x.Free = 0
		}
		if err != nil {
			return nil, fmt.Errorf("pods: look at what is free on %q: %w", h.ID, err)
		}
		if x.Total > 0 {
			list = append(list, x)
		}
	}
	return list, nil
}

func (r *Placer) gpuCapacity(ctx context.Context, h *Host, d *Requirements) (free, total int, err error) {
	i := slices.IndexFunc(h.GPUs, func(g HostGPUs) bool { return g.Type == d.GPU })
	if i < 0 || d.Count < 1 || r.exceedsMaxCount(d) {
		return 0, 0, nil
	}
	g := h.GPUs[i]
	n, used := g.Count, int64(0)
	if len(g.Devices) == 0 {
		used, err = r.store.Claimed(ctx, h.gpuCountResource(g.Type))
	}
	for _, device := range g.Devices {
		taken, err := r.store.Claimed(ctx, h.gpuDeviceResource(device))
		if err != nil {
			return 0, 0, err
		}
		used += taken
	}
	n = max(n, len(g.Devices))
	return max(n-int(used), 0) / d.Count, n / d.Count, err
}

func (r *Placer) cpuCapacity(ctx context.Context, h *Host, d *Requirements) (free, total int, err error) {
	limit := r.vcpuLimit(h, d.CPU)
	if d.VCPU < 1 || limit == 0 {
		return 0, 0, nil
	}
	used, err := r.store.Claimed(ctx, h.vcpuResource(d.CPU))
	if err != nil {
		return 0, 0, err
	}
	free, total = int(max(limit-used, 0))/d.VCPU, int(limit)/d.VCPU
	if h.Memory == 0 {
		return free, total, nil
	}
	taken, err := r.store.Claimed(ctx, h.memoryResource())
	if err != nil {
		return 0, 0, err
	}
	gb := r.memoryFor(d)
	return min(free, max(h.Memory-int(taken), 0)/gb), min(total, h.Memory/gb), nil
}
