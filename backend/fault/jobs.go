package fault

import (
	"context"
	"iter"
	"sync"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// A JobQueue is a serverless.JobQueue whose calls fail by a plan.
type JobQueue struct {
	q queue.JobQueue
	p *Plan

	mu      sync.Mutex
	damaged map[queue.Ref]bool
}

var _ queue.JobQueue = (*JobQueue)(nil)

// Jobs wraps a queue.
func Jobs(q queue.JobQueue, p *Plan) *JobQueue { return &JobQueue{q: q, p: p} }

// Unwrap returns the wrapped queue.
func (f *JobQueue) Unwrap() queue.JobQueue { return f.q }

// Enqueue implements serverless.JobQueue.
func (f *JobQueue) Enqueue(ctx context.Context, jobs []queue.Job) error {
	return run(ctx, f.p, "jobs.Enqueue", func() error { return f.q.Enqueue(ctx, jobs) })
}

// FindKey implements serverless.JobQueue.
func (f *JobQueue) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return do(ctx, f.p, "jobs.FindKey", func() (idempotency.Record, error) { return f.q.FindKey(ctx, key) })
}

// Claim implements serverless.JobQueue.
func (f *JobQueue) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	got, err := do(ctx, f.p, "jobs.Claim", func() ([]queue.Job, error) { return f.claim(ctx, now, slots, out) })
	if err != nil {
		return out, err
	}
	return got, nil
}

// Apply implements serverless.JobQueue.
func (f *JobQueue) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	return run(ctx, f.p, "jobs.Apply", func() error { return f.q.Apply(ctx, now, ops, res) })
}

// Expire implements serverless.JobQueue.
func (f *JobQueue) Expire(ctx context.Context, now queue.Instant, limit int) (queue.Instant, error) {
	return do(ctx, f.p, "jobs.Expire", func() (queue.Instant, error) { return f.q.Expire(ctx, now, limit) })
}

// Purge implements serverless.JobQueue.
func (f *JobQueue) Purge(ctx context.Context, now queue.Instant, q queue.PurgeQuery) (removed int, next uint64, err error) {
	err = run(ctx, f.p, "jobs.Purge", func() (err error) {
		removed, next, err = f.q.Purge(ctx, now, q)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return removed, next, nil
}

// Get implements serverless.JobQueue.
func (f *JobQueue) Get(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.Job, error) {
	return do(ctx, f.p, "jobs.Get", func() (queue.Job, error) { return f.get(ctx, now, ref) })
}

// Chunks implements serverless.JobQueue.
func (f *JobQueue) Chunks(ctx context.Context, now queue.Instant, ref queue.Ref, maxBytes int) (chunks [][]byte, s queue.State, err error) {
	err = run(ctx, f.p, "jobs.Chunks", func() (err error) {
		chunks, s, err = f.q.Chunks(ctx, now, ref, maxBytes)
		return err
	})
	if err != nil {
		return nil, queue.State{}, err
	}
	return chunks, s, nil
}

// List implements serverless.JobQueue. It fails before the first job.
func (f *JobQueue) List(ctx context.Context, now queue.Instant, q queue.ListQuery) iter.Seq2[queue.Job, error] {
	return list(ctx, f.p, "jobs.List", func() iter.Seq2[queue.Job, error] { return f.q.List(ctx, now, q) })
}

// list returns a listing that may fail before its first element.
func list[T any](ctx context.Context, p *Plan, call string, seq func() iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		all, err := do(ctx, p, call, func() (iter.Seq2[T, error], error) { return seq(), nil })
		if err != nil {
			var zero T
			yield(zero, err)
			return
		}
		all(yield)
	}
}

// Stats implements serverless.JobQueue.
func (f *JobQueue) Stats(ctx context.Context, now queue.Instant, endpoint string, rules *queue.Rules) (queue.Stats, error) {
	return do(ctx, f.p, "jobs.Stats", func() (queue.Stats, error) { return f.q.Stats(ctx, now, endpoint, rules) })
}

// Watch implements serverless.JobQueue.
func (f *JobQueue) Watch(ctx context.Context, fn func([]queue.Event)) error {
	return run(ctx, f.p, "jobs.Watch", func() error { return f.q.Watch(ctx, fn) })
}

// Deliveries implements queue.Outbox.
func (f *JobQueue) Deliveries(ctx context.Context, now, until queue.Instant, limit int) ([]queue.Delivery, error) {
	return do(ctx, f.p, "jobs.Deliveries", func() ([]queue.Delivery, error) {
		return f.q.Deliveries(ctx, now, until, limit)
	})
}

// LoadDelivery implements queue.Outbox.
func (f *JobQueue) LoadDelivery(ctx context.Context, d *queue.Delivery) error {
	return run(ctx, f.p, "jobs.LoadDelivery", func() error {
		err := f.q.LoadDelivery(ctx, d)
		f.hideDamaged(&d.Job)
		return err
	})
}

// Record implements queue.Outbox.
func (f *JobQueue) Record(ctx context.Context, a []queue.Attempt) error {
	return run(ctx, f.p, "jobs.Record", func() error { return f.q.Record(ctx, a) })
}

// NextDelivery implements queue.Outbox.
func (f *JobQueue) NextDelivery(ctx context.Context) (queue.Instant, error) {
	return do(ctx, f.p, "jobs.NextDelivery", func() (queue.Instant, error) { return f.q.NextDelivery(ctx) })
}

// Attempts implements queue.Outbox.
func (f *JobQueue) Attempts(ctx context.Context, ref queue.Ref) ([]queue.Attempt, error) {
	return do(ctx, f.p, "jobs.Attempts", func() ([]queue.Attempt, error) { return f.q.Attempts(ctx, ref) })
}

// PastAttempts implements serverless.JobQueue.
func (f *JobQueue) PastAttempts(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobAttempt, error) {
	return do(ctx, f.p, "jobs.PastAttempts", func() ([]queue.JobAttempt, error) { return f.q.PastAttempts(ctx, now, ref) })
}

// PastLeases implements serverless.JobQueue.
func (f *JobQueue) PastLeases(ctx context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobLease, error) {
	return do(ctx, f.p, "jobs.PastLeases", func() ([]queue.JobLease, error) { return f.q.PastLeases(ctx, now, ref) })
}

// DeadLetters implements queue.DeadLetters. It fails before the first one.
func (f *JobQueue) DeadLetters(ctx context.Context, now queue.Instant, endpoint, owner string) iter.Seq2[queue.DeadLetter, error] {
	return list(ctx, f.p, "jobs.DeadLetters", func() iter.Seq2[queue.DeadLetter, error] { return f.q.DeadLetters(ctx, now, endpoint, owner) })
}

// DeadLetter implements queue.DeadLetters.
func (f *JobQueue) DeadLetter(ctx context.Context, now queue.Instant, ref queue.Ref) (queue.DeadLetter, error) {
	return do(ctx, f.p, "jobs.DeadLetter", func() (queue.DeadLetter, error) { return f.q.DeadLetter(ctx, now, ref) })
}

// DropDead implements queue.DeadLetters.
func (f *JobQueue) DropDead(ctx context.Context, refs []queue.Ref) error {
	return run(ctx, f.p, "jobs.DropDead", func() error { return f.q.DropDead(ctx, refs) })
}
