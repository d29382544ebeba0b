package billing

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/podyard/podyard/pods"
)

// A watch has the present usages of one kind, as of the last call of Observe.
type watch map[part]pods.Usage

type part struct{ id, part string }

// Observe takes the usages of a kind at now: all present ones, with a zero To, and those that
// ended since the last successful call. Owner, From and prices are those of the first call that
// has a usage. Usages without an owner are not kept.
//
// A usage that an earlier call had, in this process or an earlier one, and this call has not,
// ended when it was last observed. So time without observation is not charged.
//
// With several servers (see [NewShared]) each passes the usages that it knows. One that another
// server observed is continued, and one that no server has observed for [Abandoned] has ended.
//
// Use one caller at a time for each kind. After an error the next call repairs what the failed
// one left.
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
			u.To, u.Reporter = at, s.reporter
			now[k] = u
		}
		kept = append(kept, u)
	}
	for _, u := range was {
		if !s.ends(&u, at) {
			continue
		}
		u.Open, u.Reporter = false, ""
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

// Abandoned is for how long no server has observed a usage that any of them then ends, at the
// time when it was observed last.
const Abandoned = 5 * time.Minute

// ends reports whether an open usage that this program does not observe at an instant has ended.
func (s *Service) ends(u *pods.Usage, at time.Time) bool {
	return u.Reporter == s.reporter || at.Sub(u.To) >= Abandoned
}

// before returns the usages of the last call of Observe, or those that an earlier process left.
// With several servers it returns those of all. The caller owns the result.
func (s *Service) before(ctx context.Context, kind pods.UsageKind) (watch, error) {
	s.mu.Lock()
	w := s.open[kind]
	s.mu.Unlock()
	if w != nil && s.reporter == "" {
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

// watched returns the present usages of owner that Observe knows, up to now.
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
