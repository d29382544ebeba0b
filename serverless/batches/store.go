package batches

import (
	"context"
	"iter"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// Errors of batches. Test for them with errors.Is.
var (
	ErrNotFound  = problem.New(problem.NotFound, "batch not found")
	ErrNoRequest = problem.New(problem.NotFound, "request not found in the batch")
	ErrExists    = problem.New(problem.Conflict, "batch id is taken")
	ErrNotDraft  = problem.New(problem.Conflict, "the batch is no draft any more: its requests cannot be changed")
	ErrEmpty     = problem.New(problem.Conflict, "the batch has no requests: add some before it is finalized")
	ErrEnded     = problem.New(problem.Conflict, "the batch was cancelled")
)

// A Store keeps batches. It is safe for concurrent use, shares nothing with its callers, and
// has stored what it was given when a call returns. Package batchestest has its rules.
type Store interface {
	// Create adds b, or returns ErrExists if its ID is taken. CreateKeyed does the same for a
	// request with an Idempotency-Key (docs/decisions.md 38).
	idempotency.Store[Batch]
	// Get returns the batch or ErrNotFound.
	Get(ctx context.Context, id string) (Batch, error)
	// List returns the batches of owner, by Created and then ID.
	List(ctx context.Context, owner string) ([]Batch, error)
	// All returns the batches of all users in the same order.
	All(ctx context.Context) ([]Batch, error)
	// Update calls fn with the batch, stores what fn leaves, atomically, and returns it.
	// Errors: ErrNotFound without the batch, and whatever fn returns; then nothing was
	// changed. fn may run more than once. It must not change ID, Owner, Endpoint and Created,
	// do I/O, or call the store.
	Update(ctx context.Context, id string, fn func(*Batch) error) (Batch, error)
	// Delete removes the batch, or returns ErrNotFound.
	Delete(ctx context.Context, id string) error
}

// A Queue is the part of queue.JobQueue that batches need.
type Queue interface {
	Enqueue(ctx context.Context, jobs []queue.Job) error
	Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error
	Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error)
	List(ctx context.Context, now queue.Instant, q queue.ListQuery) iter.Seq2[queue.Job, error]
}
