package pods

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/podyard/podyard/problem"
)

// place finds a host for p and calls commit with the placement, as [Placer.Place] does. The
// error without a host names what was wanted and where.
func (s *Service) place(ctx context.Context, p *Pod, commit func(Placement) error) error {
	return s.placing(ctx, p, func(w PlacementRequest) error {
		return s.placer.Place(ctx, w, func(_ Requirements, pl Placement) error {
			if err := s.completePlacement(ctx, p, &pl); err != nil {
				return err
			}
			return commit(pl)
		})
	})
}

// completePlacement settles the volumes of p at the host of pl, and adds the prices.
func (s *Service) completePlacement(ctx context.Context, p *Pod, pl *Placement) error {
	if err := s.settleVolumes(ctx, p, pl.Host); err != nil {
		return err
	}
	pl.Price = s.price(p)
	if s.meter != nil {
		pl.Since = s.clock.Now().UTC()
		pl.DiskPrice, pl.KeptPrice = s.diskPrices(&p.Config)
	}
	return nil
}

// diskPrices are what disks cost in USD an hour, while their pod has compute and while it is stopped.
func (s *Service) diskPrices(c *Config) (running, stopped float64) {
	kept := c.Mounts.persistentSize()
	storage := s.Catalog().Storage
	return storage.Disk.Hourly(c.Disk + kept), storage.Stopped.Hourly(kept)
}

// resized notes what the disks of p cost from now on, if its container is made anew with others than
// was has. It keeps its compute.
func (s *Service) resized(p *Pod, was *Config) {
	if c := &p.Want.Applied; s.meter != nil && !p.Placement.Since.IsZero() && !c.sameDisks(was) {
		p.closeUsage(s.clock.Now().UTC())
		p.Placement.DiskPrice, p.Placement.KeptPrice = s.diskPrices(c)
	}
}

// placing calls try with where p may be placed, again while its volumes move to another server.
func (s *Service) placing(ctx context.Context, p *Pod, try func(PlacementRequest) error) error {
	w := p.placementRequest()
	if _, lives := s.placer.find(w.host); w.host != "" && !lives && s.shared != nil {
		return ErrHostAway
	}
	for {
		var err error
		if w.server, err = s.volumesServer(ctx, p); err != nil {
			return err
		}
		err = try(w)
		switch {
		case errors.Is(err, errSettled) && w.server == "":
			// another server has the volume since it was looked for, and keeps it
		case errors.Is(err, ErrNoCapacity) && w.server != "":
			return problem.Newf(problem.BadRequest, "%w, at the server that has what is in its network volume", noCapacity(p))
		case errors.Is(err, ErrNoCapacity):
			return noCapacity(p)
		default:
			return err
		}
	}
}

// placementRequest says where p may be placed.
func (p *Pod) placementRequest() PlacementRequest {
	return PlacementRequest{
		Alternatives: []Requirements{p.requirements()}, DataCenters: p.DataCenters,
		host: p.Placement.Host, globalNetwork: p.Config.GlobalNetworking,
	}
}

// requirements is what p needs of a host.
func (p *Pod) requirements() Requirements {
	if p.GPU != nil {
		return Requirements{GPU: p.GPU.ID, Count: p.GPU.Count, Cloud: p.Cloud, CUDA: p.CUDA, MinShare: p.MinShare}
	}
	return Requirements{CPU: p.CPU.ID, VCPU: p.CPU.VCPU, Memory: p.CPU.Memory, Cloud: p.Cloud}
}

// price is the price of p in USD an hour, from the catalog (docs/decisions.md 22). A CPU has
// the same price in both tiers.
func (s *Service) price(p *Pod) float64 {
	var usd float64
	switch {
	case p.CPU != nil:
		f, _ := s.Catalog().CPU(p.CPU.ID)
		usd = f.Price.Secure * float64(p.CPU.VCPU)
	case p.Cloud == Community:
		t, _ := s.Catalog().GPU(p.GPU.ID)
		usd = t.Price.Community * float64(p.GPU.Count)
	default:
		t, _ := s.Catalog().GPU(p.GPU.ID)
		usd = t.Price.Secure * float64(p.GPU.Count)
	}
	return math.Round(usd*1e6) / 1e6 // 3 x 0.34 is 1.02
}

// persistentSize is how many GB of its host's disks a pod is charged for while it is stopped. The
// container's disk is charged for while it runs.
func (m *Mounts) persistentSize() int {
	if m.Persistent != nil {
		return m.Persistent.Size
	}
	return 0
}

func (c *Config) sameDisks(other *Config) bool {
	return c.Disk == other.Disk && c.Mounts.persistentSize() == other.Mounts.persistentSize()
}

// noCapacity is an error that says what there is no capacity for, and where.
func noCapacity(p *Pod) error {
	return problem.Newf(problem.BadRequest, "%w: %s", ErrNoCapacity, describeRequirements(p))
}

func describeRequirements(p *Pod) string {
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
	return fmt.Sprintf("%s%s%s %s on the %s cloud", what, p.CUDA, describeMinimum(p.MinShare), where, p.Cloud)
}
