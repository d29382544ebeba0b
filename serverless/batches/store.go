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

// A Store keeps batches. Update does not change Endpoint. Package batchestest has its rules.
type Store interface {
	idempotency.Records[Batch]
}

// A Queue is the part of queue.JobQueue that batches need.
type Queue interface {
	Enqueue(ctx context.Context, jobs []queue.Job) error
	Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error
	Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error)
	List(ctx context.Context, now queue.Instant, q queue.ListQuery) iter.Seq2[queue.Job, error]
}
