package serverless

import (
	"context"
	"errors"
)

// A Worker runs jobs. Work must return soon after ctx ends; context.Cause(ctx) says why:
// ErrCancelled, ErrOverTime, ErrExpired, ErrLeaseLost or ErrDraining. What it returns
// after that is dropped. Output is JSON, nil for none. An error fails the job, with its
// text; a *Failure fails it with an output besides. A panic is the job's failure, not the
// program's.
type Worker interface {
	Work(ctx context.Context, t *Task) (output []byte, err error)
}

// A WorkerFunc is a function that is a Worker.
type WorkerFunc func(ctx context.Context, t *Task) ([]byte, error)

// Work calls f.
func (f WorkerFunc) Work(ctx context.Context, t *Task) ([]byte, error) { return f(ctx, t) }

// A Task is a job as a worker sees it. Its slices must not be changed.
type Task struct {
	ID      JobID
	Input   []byte // one JSON object, as it was submitted
	Extra   []byte // members that only the worker sees (s3Config), as a JSON object; nil for none
	Attempt int    // 1 for the first delivery

	emit func(ctx context.Context, k OpKind, b []byte) error
}

// NewTask is a job for a Worker that runs outside a Service. emit is called by Emit with
// OpChunk and by Progress with OpProgress.
func NewTask(id JobID, input, extra []byte, attempt int, emit func(ctx context.Context, k OpKind, b []byte) error) *Task {
	return &Task{ID: id, Input: input, Extra: extra, Attempt: attempt, emit: emit}
}

// Emit appends a chunk, one JSON value, to the job's stream. Readers get it as the output
// of an item, {"output":<chunk>}; a string that is too long for an answer of MaxChunk comes
// in several, cut between characters. ErrLeaseLost says that the job is no longer this
// worker's; ErrStreamFull that nobody reads.
func (t *Task) Emit(ctx context.Context, chunk []byte) error { return t.emit(ctx, OpChunk, chunk) }

// Progress replaces the job's interim output, one JSON value. The slice is the queue's
// from the call on.
func (t *Task) Progress(ctx context.Context, v []byte) error { return t.emit(ctx, OpProgress, v) }

// A Failure is a worker's error that comes with an output.
type Failure struct {
	Output []byte
	Text   string
}

func (f *Failure) Error() string { return f.Text }

// Why a worker's context ended.
var (
	ErrCancelled = errors.New("the job was cancelled")
	ErrOverTime  = errors.New("the job ran longer than its execution timeout")
	ErrExpired   = errors.New("the job's ttl has passed")
	ErrDraining  = errors.New("the worker is stopping")
)
