package pods

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/podyard/podyard/problem"
)

// place finds a host for p and hands what p would hold there to commit, which stores it
// or returns ErrNoRoom when somebody else was faster. Without a host the error is
// ErrNoRoom, naming what was wanted and where.
func (s *Service) place(ctx context.Context, p *Pod, commit func(Placement) error) error {
	hosts := s.candidates(p)
	// Each lost race means that somebody else got a unit, so this ends.
	for raced := true; raced; {
		raced = false
		for _, h := range hosts {
			pl, ok, err := s.fit(ctx, h, p)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if err := commit(pl); !errors.Is(err, ErrNoRoom) {
				return err
			}
			raced = true
		}
	}
	return noRoom(p)
}

// candidates are the hosts that p may go to, best first: the one it has, or those of the
// data centers it prefers in their order, or all in the order given.
func (s *Service) candidates(p *Pod) []*Host {
	if p.Placement.Host != "" {
		if h, ok := s.hosts[p.Placement.Host]; ok {
			return []*Host{h}
		}
		return nil
	}
	var list []*Host
	for _, h := range s.order {
		if !h.in(p.Cloud) || p.GPU != nil && !p.CUDA.match(s.cuda(h, p.GPU.ID)) || len(p.DataCenters) > 0 && !slices.Contains(p.DataCenters, h.DataCenter) {
			continue
		}
		if d, _ := s.catalog.DataCenter(h.DataCenter); p.Config.GlobalNetworking && !d.GlobalNetwork {
			continue
		}
		list = append(list, h)
	}
	slices.SortStableFunc(list, func(a, b *Host) int {
		return slices.Index(p.DataCenters, a.DataCenter) - slices.Index(p.DataCenters, b.DataCenter)
	})
	return list
}

// fit is what p would hold on h, if it has room now.
func (s *Service) fit(ctx context.Context, h *Host, p *Pod) (pl Placement, ok bool, err error) {
	pl = Placement{Host: h.ID, DataCenter: h.DataCenter, Price: s.price(p)}
	if s.meter != nil {
		pl.Since, pl.DiskPrice = s.clock.Now().UTC(), s.catalog.Storage.Disk.Hourly(p.disks())
	}
	if p.GPU != nil {
		ok, err = s.fitGPU(ctx, h, p, &pl)
	} else {
		ok, err = s.fitCPU(ctx, h, p.CPU, &pl)
	}
	return pl, ok, err
}

func (s *Service) fitGPU(ctx context.Context, h *Host, p *Pod, pl *Placement) (bool, error) {
	if t, _ := s.catalog.GPU(p.GPU.ID); p.GPU.Count > largest(t.MaxCount.Secure, t.MaxCount.Community, p.Cloud) {
		return false, nil
	}
	i := slices.IndexFunc(h.GPUs, func(g HostGPUs) bool { return g.Type == p.GPU.ID })
	if i < 0 {
		return false, nil
	}
	if g := h.GPUs[i]; len(g.Devices) == 0 {
		return s.room(ctx, pl, Claim{h.counted(g.Type), int64(p.GPU.Count), int64(g.Count)})
	}
	for _, d := range h.GPUs[i].Devices {
		ok, err := s.room(ctx, pl, Claim{h.device(d), 1, 1})
		if err != nil {
			return false, err
		}
		if ok {
			pl.Devices = append(pl.Devices, d)
		}
		if len(pl.Devices) == p.GPU.Count {
			return true, nil
		}
	}
	return false, nil
}

// largest is the bound of a tier; a type without one has none.
func largest(secure, community int, c Cloud) int {
	n := secure
	if c == Community {
		n = community
	}
	if n == 0 {
		return math.MaxInt
	}
	return n
}

func (s *Service) fitCPU(ctx context.Context, h *Host, c *CPU, pl *Placement) (bool, error) {
	ok, err := s.room(ctx, pl, Claim{h.vcpus(c.ID), int64(c.VCPU), s.promised(h, c.ID)})
	if !ok || err != nil || h.Memory == 0 {
		return ok, err
	}
	return s.room(ctx, pl, Claim{h.memory(), int64(c.Memory), int64(h.Memory)})
}

// The names of what pods claim on a host.
func (h *Host) counted(gpuType string) string { return "gpus/" + h.ID + "/" + gpuType }
func (h *Host) device(name string) string     { return "gpu/" + h.ID + "/" + name }
func (h *Host) vcpus(flavor string) string    { return "vcpu/" + h.ID + "/" + flavor }
func (h *Host) memory() string                { return "memory/" + h.ID }

// promised is how many vCPUs of a flavor pods can have on h.
func (s *Service) promised(h *Host, flavor string) int64 {
	return int64(float64(h.VCPU[flavor]) * s.overcommit)
}

// room adds c to pl if it is free now. The store has the last word.
func (s *Service) room(ctx context.Context, pl *Placement, c Claim) (bool, error) {
	used, err := s.store.Used(ctx, c.Resource)
	if err != nil {
		return false, fmt.Errorf("pods: look up %q: %w", c.Resource, err)
	}
	if used+c.Units > c.Limit {
		return false, nil
	}
	pl.Claims = append(pl.Claims, c)
	return true, nil
}

// price is USD an hour for what p is, from the catalog (decisions 22). A CPU has one
// price in both tiers.
func (s *Service) price(p *Pod) float64 {
	var usd float64
	switch {
	case p.CPU != nil:
		f, _ := s.catalog.CPU(p.CPU.ID)
		usd = f.Price.Secure * float64(p.CPU.VCPU)
	case p.Cloud == Community:
		t, _ := s.catalog.GPU(p.GPU.ID)
		usd = t.Price.Community * float64(p.GPU.Count)
	default:
		t, _ := s.catalog.GPU(p.GPU.ID)
		usd = t.Price.Secure * float64(p.GPU.Count)
	}
	return math.Round(usd*1e6) / 1e6 // 3 x 0.34 is 1.02
}

// disks is how many GB of its host's disks p has.
func (p *Pod) disks() int {
	gb := p.Config.Disk
	if m := p.Config.Mounts.Persistent; m != nil {
		gb += m.Size
	}
	return gb
}

// noRoom says what there is no room for, and where.
func noRoom(p *Pod) error {
	return problem.Newf(problem.Malformed, "%w: %s", ErrNoRoom, wanted(p))
}

func wanted(p *Pod) string {
	var what string
	if p.GPU != nil {
		what = fmt.Sprintf("%d x %s", p.GPU.Count, p.GPU.ID)
	} else {
		what = fmt.Sprintf("%d vCPUs of %s", p.CPU.VCPU, p.CPU.ID)
	}
	where := "in any data center"
	switch {
	case p.Placement.Host != "":
		where = "on its host in " + p.Placement.DataCenter
	case len(p.DataCenters) > 0:
		where = "in " + strings.Join(p.DataCenters, ", ")
	case p.Config.GlobalNetworking:
		where = "in any data center with global networking"
	}
	return fmt.Sprintf("%s%s %s on the %s cloud", what, p.CUDA, where, p.Cloud)
}
