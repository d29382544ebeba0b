package budget

import "context"

// A Usage is what a user holds of each budget.
type Usage [budgets]int64

// Add adds o to u.
func (u *Usage) Add(o *Usage) {
	for b := range u {
		u[b] += o[b]
	}
}

// Empty reports whether u is nothing.
func (u *Usage) Empty() bool { return *u == Usage{} }

// A Counter counts what users hold, mostly in a store. It is safe for concurrent use. The
// package of each kind of store has rules for it in its suite.
type Counter interface {
	// Limit sets the limits by which the counter refuses from now on, with an [Error] and
	// before anything is changed. Concurrent calls do not go over a limit together. Without a
	// call nothing is refused.
	Limit(s *Set)
	// Usage returns what a user holds.
	Usage(ctx context.Context, user string) (Usage, error)
	// Users returns who holds anything, in any order.
	Users(ctx context.Context) ([]string, error)
}
