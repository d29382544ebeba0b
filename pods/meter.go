package pods

import (
	"context"
	"fmt"
	"time"
)

// A UsageKind is what a Use is of.
type UsageKind string

// The kinds.
const (
	PodUsage    UsageKind = "pod"
	VolumeUsage UsageKind = "volume"
	WorkerUsage UsageKind = "worker" // of a serverless endpoint
)

// A Usage is a span of time in which something was held, and what that costs: each price is
// USD an hour. Kind, ID, Part and From name it.
type Usage struct {
	Owner string
	Kind  UsageKind
	ID    string
	Part  string // which worker of endpoint ID; empty for what has no parts
	From  time.Time
	To    time.Time // zero: it goes on
	// Open says that it went on at To, and that nobody has said since how it ended.
	Open            bool
	GPU             float64
	CPU             float64
	Disk            float64
	Standard        float64 // storage
	HighPerformance float64
}

// A Meter keeps what was used. billing.Service is one.
type Meter interface {
	// Record keeps uses that have ended. One that was recorded before is not counted
	// twice: whoever is not sure repeats the call.
	Record(ctx context.Context, uses []Usage) error
}

// currentUsage is what p holds now; ok is false when it holds nothing, or nobody meters it.
func (p *Pod) currentUsage() (u Usage, ok bool) {
	u = Usage{Owner: p.Owner, Kind: PodUsage, ID: p.ID, From: p.Placement.Since}
	switch {
	case p.Placement.Since.IsZero():
		return u, false
	case len(p.Placement.Claims) == 0: // stopped
		u.Disk = p.Placement.KeptPrice
		return u, u.Disk > 0
	case p.GPU != nil:
		u.GPU = p.Placement.Price
	default:
		u.CPU = p.Placement.Price
	}
	u.Disk = p.Placement.DiskPrice
	return u, true
}

// closeUsage ends what p holds at an instant, from which on it holds something else.
func (p *Pod) closeUsage(now time.Time) {
	u, ok := p.currentUsage()
	if !ok {
		return
	}
	u.To, p.Placement.Since = now, now
	p.Used = append(p.Used, u)
}

// Usage returns what the pods of owner hold, and what they held and the meter does not have
// yet.
func (s *Service) Usage(ctx context.Context, owner string) ([]Usage, error) {
	var list []Usage
	for p, err := range s.store.List(ctx, Filter{Owner: owner}) {
		if err != nil {
			return nil, fmt.Errorf("pods: list what is used: %w", err)
		}
		list = append(list, p.Used...)
		if u, ok := p.currentUsage(); ok {
			list = append(list, u)
		}
	}
	return list, nil
}

// recordUsage hands what p held to the meter and then forgets it.
func (s *Service) recordUsage(ctx context.Context, p *Pod) error {
	if s.meter == nil || len(p.Used) == 0 {
		return nil
	}
	if err := s.meter.Record(ctx, p.Used); err != nil {
		return fmt.Errorf("pods: meter %q: %w", p.ID, err)
	}
	n := len(p.Used)
	_, err := s.update(ctx, p.ID, func(p *Pod) bool {
		p.Used = p.Used[min(n, len(p.Used)):]
		return true
	})
	return err
}

// recordFinalUsage hands over everything of a pod that is to be deleted.
func (s *Service) recordFinalUsage(ctx context.Context, p *Pod, now time.Time) error {
	uses := p.Used
	if u, ok := p.currentUsage(); ok {
		u.To = now
		uses = append(uses, u)
	}
	if s.meter == nil || len(uses) == 0 {
		return nil
	}
	if err := s.meter.Record(ctx, uses); err != nil {
		return fmt.Errorf("pods: meter %q: %w", p.ID, err)
	}
	return nil
}
