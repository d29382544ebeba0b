package pods

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A UsageKind is the kind of thing that was used.
type UsageKind string

// The kinds.
const (
	PodUsage     UsageKind = "pod" // in no cluster
	VolumeUsage  UsageKind = "volume"
	WorkerUsage  UsageKind = "worker" // of a serverless endpoint
	ClusterUsage UsageKind = "cluster"
)

// A Usage is a span of time in which something was in use, with its prices in USD an hour.
// Kind, ID, Part and From identify it.
type Usage struct {
	Owner string
	Kind  UsageKind
	ID    string
	Part  string // which worker of endpoint ID, or pod of cluster ID; empty for what has no parts
	From  time.Time
	To    time.Time // zero: still in use
	// Open: it was still in use at To, and its end is not known yet.
	Open bool
	// Reporter says which of several servers has observed an open usage last. It is empty where
	// servers share nothing.
	Reporter        string `json:",omitzero"`
	GPU             float64
	CPU             float64
	Disk            float64
	Standard        float64 // storage
	HighPerformance float64
}

// A Meter keeps usages. billing.Service is one.
type Meter interface {
	// Record keeps usages that have ended. It is idempotent: a caller that does not know the
	// outcome repeats the call.
	Record(ctx context.Context, uses []Usage) error
}

// currentUsage is what p uses now; ok is false when it uses nothing, or there is no meter.
func (p *Pod) currentUsage() (u Usage, ok bool) {
	u = Usage{Owner: p.Owner, Kind: PodUsage, ID: p.ID, From: p.Placement.Since}
	if p.Cluster != nil {
		u.Kind, u.ID, u.Part = ClusterUsage, p.Cluster.ID, p.ID
	}
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

// closeUsage ends the present usage at now, when p begins to use something else.
func (p *Pod) closeUsage(now time.Time) {
	u, ok := p.currentUsage()
	if !ok {
		return
	}
	u.To, p.Placement.Since = now, now
	if u.To.After(u.From) { // the next one begins at From, too, and From identifies a usage
		p.Used = append(p.Used, u)
	}
}

// Usage returns the present usages of the pods of owner, and the past ones that the meter does
// not have yet.
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

// recordUsage moves the past usages of p to the meter.
func (s *Service) recordUsage(ctx context.Context, p *Pod) error {
	if s.meter == nil || len(p.Used) == 0 {
		return nil
	}
	if err := s.meter.Record(ctx, p.Used); err != nil {
		return fmt.Errorf("pods: meter %q: %w", p.ID, err)
	}
	recorded := p.Used
	_, err := s.update(ctx, p.ID, func(p *Pod) bool {
		n := len(p.Used)
		p.Used = slices.DeleteFunc(p.Used, func(u Usage) bool {
			return slices.ContainsFunc(recorded, func(r Usage) bool { return r.From.Equal(u.From) && r.To.Equal(u.To) })
		})
		return len(p.Used) < n // another server may have recorded them
	})
	return err
}

// recordFinalUsage records all usages of a pod before it is deleted.
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
