package pods

import (
	"context"
	"fmt"
	"slices"
)

// A Demand is what a pod, or the like, needs of a host: Count GPUs of a type, or a number
// of vCPUs of a flavor.
type Demand struct {
	GPU    string // type; empty: CPU is set
	Count  int
	CPU    string // flavor
	VCPU   int
	Memory int   // GB beside the vCPUs; 0: as the catalog says
	Cloud  Cloud // empty: any
	CUDA   CUDAVersions
}

// A Supply is what one host has for a Demand: how many such pods it could take now, and
// how many if it were empty.
type Supply struct {
	DataCenter string
	CUDA       string // of the host, for GPUs; empty: not known, or none
	Free       int
	Total      int
}

// Supply says what the hosts have for a demand, in their order: one entry for each host
// that could take such a pod if it were empty. It claims nothing, and what it says may
// have changed by the time it is read.
func (s *Service) Supply(ctx context.Context, d Demand) ([]Supply, error) {
	return s.placer.supply(ctx, &d)
}

func (r *Placer) supply(ctx context.Context, d *Demand) ([]Supply, error) {
	var list []Supply
	for _, h := range r.order {
		if !r.suits(h, d) {
			continue
		}
		x := Supply{DataCenter: h.DataCenter}
		var err error
		if d.GPU != "" {
			x.CUDA = r.cuda(h, d.GPU)
			x.Free, x.Total, err = r.gpuSupply(ctx, h, d)
		} else {
			x.Free, x.Total, err = r.cpuSupply(ctx, h, d)
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

func (r *Placer) gpuSupply(ctx context.Context, h *Host, d *Demand) (free, total int, err error) {
	i := slices.IndexFunc(h.GPUs, func(g HostGPUs) bool { return g.Type == d.GPU })
	if i < 0 || d.Count < 1 || r.tooMany(d) {
		return 0, 0, nil
	}
	g := h.GPUs[i]
	n, used := g.Count, int64(0)
	if len(g.Devices) == 0 {
		used, err = r.store.Used(ctx, h.counted(g.Type))
	}
	for _, device := range g.Devices {
		taken, err := r.store.Used(ctx, h.device(device))
		if err != nil {
			return 0, 0, err
		}
		used += taken
	}
	n = max(n, len(g.Devices))
	return max(n-int(used), 0) / d.Count, n / d.Count, err
}

func (r *Placer) cpuSupply(ctx context.Context, h *Host, d *Demand) (free, total int, err error) {
	limit := r.promised(h, d.CPU)
	if d.VCPU < 1 || limit == 0 {
		return 0, 0, nil
	}
	used, err := r.store.Used(ctx, h.vcpus(d.CPU))
	if err != nil {
		return 0, 0, err
	}
	free, total = int(max(limit-used, 0))/d.VCPU, int(limit)/d.VCPU
	if h.Memory == 0 {
		return free, total, nil
	}
	taken, err := r.store.Used(ctx, h.memory())
	if err != nil {
		return 0, 0, err
	}
	gb := r.memory(d)
	return min(free, max(h.Memory-int(taken), 0)/gb), min(total, h.Memory/gb), nil
}
