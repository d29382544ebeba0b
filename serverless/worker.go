package serverless

import (
	"context"
	"errors"

	"github.com/podyard/podyard/serverless/queue"
)

// A Worker runs jobs. Work runs one job and returns its output as JSON, or nil for no output.
// An error fails the job with its text; a *Failure fails the job with an output as well, and a
// *Verdict puts the job off, cancels it or holds its key. A panic fails the job, not the program. Work is called concurrently if
// ServeOptions.Concurrency is more than 1.
//
// Work must return soon after ctx ends. Its result is dropped then. context.Cause(ctx) is
// ErrCancelled, ErrExecutionTimeout, ErrExpired, ErrLeaseLost or ErrDraining. TraceOf(ctx) is
// the trace context of the job.
type Worker interface {
	Work(ctx context.Context, t *Task) (output []byte, err error)
}

// A WorkerFunc is a function that implements Worker.
type WorkerFunc func(ctx context.Context, t *Task) ([]byte, error)

// Work calls f.
func (f WorkerFunc) Work(ctx context.Context, t *Task) ([]byte, error) { return f(ctx, t) }

// A Task is a job for a Worker. Its slices must not be changed.
type Task struct {
	ID      JobID
	Input   []byte // one JSON object, as it was submitted
	Extra   []byte // a JSON object that only the worker sees (s3Config); nil: none
	Attempt int    // the number of this attempt, from 1; a job whose worker was lost is still in the same one

	emit func(ctx context.Context, k queue.OpKind, b []byte) error
	log  printer // nil: nobody keeps lines
}

// NewTask returns a Task for a Worker that runs outside a Service. Emit calls emit with
// OpChunk, Progress calls it with OpProgress.
func NewTask(id JobID, input, extra []byte, attempt int, emit func(ctx context.Context, k queue.OpKind, b []byte) error) *Task {
	return &Task{ID: id, Input: input, Extra: extra, Attempt: attempt, emit: emit}
}

// Emit appends a chunk, one JSON value, to the stream of the job. Readers get it as the
// output of an item, {"output":<chunk>}. A string that is too long for an answer of MaxChunk
// bytes becomes several items, cut between characters. Emit returns ErrLeaseLost if the job
// is no longer leased to this worker, and ErrStreamFull if the stream has too many unread
// bytes. A chunk that is not JSON or does not fit fails the job, because its result would not be
// whole without it. While the store is away Emit waits for it, up to half a minute. Then the error is
// of the kind problem.Unavailable: a worker of Serve that returns it does not fail the job, which runs
// again and is not counted as delivered.
func (t *Task) Emit(ctx context.Context, chunk []byte) error {
	return t.emit(ctx, queue.OpChunk, chunk)
}

// Progress replaces the interim output of the job, one JSON value. The queue owns v from the
// call on. Errors are those of Emit, without ErrStreamFull.
func (t *Task) Progress(ctx context.Context, v []byte) error { return t.emit(ctx, queue.OpProgress, v) }

// Log adds a line to the log of the job (Service.JobLog), at once and without waiting. It is kept with
// the job, up to joblog.MaxBytes, the newest.
func (t *Task) Log(text string) {
	if t.log != nil {
		t.log.line(text)
	}
}

// OnLog has log called with the lines of Log, for a program that runs a Worker outside a Service.
func (t *Task) OnLog(log func(text string)) { t.log = printFunc(log) }

// A printer takes the lines of a job.
type printer interface{ line(text string) }

type printFunc func(text string)

func (f printFunc) line(text string) { f(text) }

// traceKey is the key of a Trace in a context.
type traceKey struct{}

// ContextWithTrace returns a context with the trace context of a job, for a program that runs
// a Worker outside a Service. Serve does it itself.
func ContextWithTrace(ctx context.Context, t Trace) context.Context {
	if t == (Trace{}) {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceOf returns the trace context of the job that runs with ctx, or the zero value
// (docs/decisions.md 45).
func TraceOf(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t
}

// A Failure is an error of a Worker that has an output, or after which the job is not retried.
type Failure struct {
	Output []byte
	Text   string
	// NoRetry ends the job although its policy has another attempt (docs/decisions.md 39). A
	// member "retry" of Output that is false does the same.
	NoRetry bool
}

func (f *Failure) Error() string { return f.Text }

// Causes of the end of a worker's context, besides ErrLeaseLost.
var (
	ErrCancelled        = errors.New("the job was cancelled")
	ErrExecutionTimeout = errors.New("the job ran longer than its execution timeout")
	ErrExpired          = errors.New("the job's ttl has passed")
	ErrDraining         = errors.New("the worker is stopping")
)
