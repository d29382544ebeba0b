package schedules

import (
	"context"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// Errors of schedules. Test for them with errors.Is.
var (
	ErrNotFound = problem.New(problem.NotFound, "schedule not found")
	ErrExists   = problem.New(problem.Conflict, "schedule id is taken")
)

// A Store keeps schedules. It is safe for concurrent use, shares nothing with its callers, and
// has stored what it was given when a call returns. Package schedulestest has its rules.
type Store interface {
	// Create adds s, or returns ErrExists if its ID is taken. CreateKeyed does the same for a
	// request with an Idempotency-Key (docs/decisions.md 38).
	idempotency.Store[Schedule]
	// Get returns the schedule or ErrNotFound.
	Get(ctx context.Context, id string) (Schedule, error)
	// List returns the schedules of owner, by Created and then ID.
	List(ctx context.Context, owner string) ([]Schedule, error)
	// All returns the schedules of all users in the same order.
	All(ctx context.Context) ([]Schedule, error)
	// Update calls fn with the schedule, stores what fn leaves, atomically, and returns it.
	// Errors: ErrNotFound without the schedule, and whatever fn returns; then nothing was
	// changed. fn may run more than once. It must not change ID, Owner, Endpoint and Created,
	// do I/O, or call the store.
	Update(ctx context.Context, id string, fn func(*Schedule) error) (Schedule, error)
	// Delete removes the schedule, or returns ErrNotFound.
	Delete(ctx context.Context, id string) error
}
