package budget

import (
	"context"
	"slices"
)

// A Ledger has all counters of a program with the limits that hold for them. It is safe for
// concurrent use.
type Ledger struct {
	set      *Set
	counters []Counter
}

// NewLedger returns a Ledger, and has the counters refuse by set, which may be nil: no limits.
func NewLedger(set *Set, counters ...Counter) *Ledger {
	for _, c := range counters {
		c.Limit(set)
	}
	return &Ledger{set, slices.Clone(counters)}
}

// Limits returns the limits of a user, as Set.Of does.
func (l *Ledger) Limits(user string) *Limits { return l.set.Of(user) }

// Usage returns what a user holds in all counters.
func (l *Ledger) Usage(ctx context.Context, user string) (all Usage, err error) {
	for _, c := range l.counters {
		u, err := c.Usage(ctx, user)
		if err != nil {
			return all, err
		}
		all.Add(&u)
	}
	return all, nil
}

// Users returns who holds anything in any counter, sorted.
func (l *Ledger) Users(ctx context.Context) (all []string, err error) {
	for _, c := range l.counters {
		users, err := c.Users(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, users...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
