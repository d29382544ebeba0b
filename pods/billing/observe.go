package billing

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/podyard/podyard/pods"
)

// A watch is what goes on of one kind, as Observe was told last.
type watch map[part]pods.Usage

type part struct{ id, part string }

// Observe is told what there is of kind at an instant: uses has everything that goes on,
// with a zero To, and what ended since the last call that succeeded. Owner, From and
// prices are those of the first call that has it; what has no owner is nobody's and is
// not kept.
//
// What an earlier call has, of this process or of one before, and this one has not, ended
// when it was last known to be there: nothing counts for the time in which nobody looked.
//
// Each kind is for one caller at a time. A call that fails has changed nothing that the
// next one does not mend.
func (s *Service) Observe(ctx context.Context, kind pods.UsageKind, at time.Time, uses []pods.Usage) error {
	was, err := s.before(ctx, kind)
	if err != nil {
		return err
	}
	now := make(watch, len(uses))
	var kept []pods.Usage
	for _, u := range uses {
		k := part{u.ID, u.Part}
		if old, known := was[k]; known {
			delete(was, k)
			u.Owner, u.From, u.GPU, u.CPU, u.Disk = old.Owner, old.From, old.GPU, old.CPU, old.Disk
		}
		if u.Owner == "" {
			continue
		}
		u.Kind, u.Open = kind, u.To.IsZero()
		if u.Open {
			u.To = at
			now[k] = u
		}
		kept = append(kept, u)
	}
	for _, u := range was {
		u.Open = false
		kept = append(kept, u)
	}
	if len(kept) > 0 {
		if err := s.Record(ctx, kept); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[kind] = now
	return nil
}

// before is what the last call of Observe was told, or an earlier process left. It is the
// caller's.
func (s *Service) before(ctx context.Context, kind pods.UsageKind) (watch, error) {
	s.mu.Lock()
	w := s.open[kind]
	s.mu.Unlock()
	if w != nil {
		return maps.Clone(w), nil
	}
	list, err := s.store.Open(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("billing: look up what went on: %w", err)
	}
	w = make(watch, len(list))
	for _, u := range list {
		w[part{u.ID, u.Part}] = u
	}
	return w, nil
}

// watched is what of owner's goes on, as Observe was told, up to now.
func (s *Service) watched(owner string) (list []pods.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.open {
		for _, u := range w {
			if u.Owner == owner {
				u.To = time.Time{}
				list = append(list, u)
			}
		}
	}
	return list
}
