package fault

import (
	"context"
	"iter"
	"sync"

	"github.com/podyard/podyard/serverless"
)

// A JobQueue is a serverless.JobQueue that fails by a plan.
type JobQueue struct {
	q serverless.JobQueue
	p *Plan

	mu      sync.Mutex
	damaged map[serverless.Ref]bool
}

var _ serverless.JobQueue = (*JobQueue)(nil)

// Jobs wraps a queue.
func Jobs(q serverless.JobQueue, p *Plan) *JobQueue { return &JobQueue{q: q, p: p} }

// Unwrap is the queue that was wrapped.
func (f *JobQueue) Unwrap() serverless.JobQueue { return f.q }

// Enqueue implements serverless.JobQueue.
func (f *JobQueue) Enqueue(ctx context.Context, jobs []serverless.Job) error {
	return run(ctx, f.p, "jobs.Enqueue", func() error { return f.q.Enqueue(ctx, jobs) })
}

// Claim implements serverless.JobQueue.
func (f *JobQueue) Claim(ctx context.Context, now serverless.Instant, slots []serverless.Slot, out []serverless.Job) ([]serverless.Job, error) {
	got, err := do(ctx, f.p, "jobs.Claim", func() ([]serverless.Job, error) { return f.claim(ctx, now, slots, out) })
	if err != nil {
		return out, err
	}
	return got, nil
}

// Apply implements serverless.JobQueue.
func (f *JobQueue) Apply(ctx context.Context, now serverless.Instant, ops []serverless.Op, res []serverless.Result) error {
	return run(ctx, f.p, "jobs.Apply", func() error { return f.q.Apply(ctx, now, ops, res) })
}

// Expire implements serverless.JobQueue.
func (f *JobQueue) Expire(ctx context.Context, now serverless.Instant, limit int) (serverless.Instant, error) {
	return do(ctx, f.p, "jobs.Expire", func() (serverless.Instant, error) { return f.q.Expire(ctx, now, limit) })
}

// Purge implements serverless.JobQueue.
func (f *JobQueue) Purge(ctx context.Context, now serverless.Instant, q serverless.PurgeQuery) (removed int, next uint64, err error) {
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
func (f *JobQueue) Get(ctx context.Context, now serverless.Instant, ref serverless.Ref) (serverless.Job, error) {
	return do(ctx, f.p, "jobs.Get", func() (serverless.Job, error) { return f.get(ctx, now, ref) })
}

// Chunks implements serverless.JobQueue.
func (f *JobQueue) Chunks(ctx context.Context, now serverless.Instant, ref serverless.Ref, maxBytes int) (chunks [][]byte, s serverless.State, err error) {
	err = run(ctx, f.p, "jobs.Chunks", func() (err error) {
		chunks, s, err = f.q.Chunks(ctx, now, ref, maxBytes)
		return err
	})
	if err != nil {
		return nil, serverless.State{}, err
	}
	return chunks, s, nil
}

// List implements serverless.JobQueue. It fails before the first job.
func (f *JobQueue) List(ctx context.Context, now serverless.Instant, q serverless.ListQuery) iter.Seq2[serverless.Job, error] {
	return list(ctx, f.p, "jobs.List", func() iter.Seq2[serverless.Job, error] { return f.q.List(ctx, now, q) })
}

// list is a listing that may fail before its first element.
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
func (f *JobQueue) Stats(ctx context.Context, now serverless.Instant, endpoint string) (serverless.Stats, error) {
	return do(ctx, f.p, "jobs.Stats", func() (serverless.Stats, error) { return f.q.Stats(ctx, now, endpoint) })
}

// Watch implements serverless.JobQueue.
func (f *JobQueue) Watch(ctx context.Context, fn func([]serverless.Event)) error {
	return run(ctx, f.p, "jobs.Watch", func() error { return f.q.Watch(ctx, fn) })
}

// Deliveries implements serverless.Outbox.
func (f *JobQueue) Deliveries(ctx context.Context, now, until serverless.Instant, limit int) ([]serverless.Delivery, error) {
	return do(ctx, f.p, "jobs.Deliveries", func() ([]serverless.Delivery, error) {
		ds, err := f.q.Deliveries(ctx, now, until, limit)
		for i := range ds {
			f.hide(&ds[i].Job)
		}
		return ds, err
	})
}

// Record implements serverless.Outbox.
func (f *JobQueue) Record(ctx context.Context, a []serverless.Attempt) error {
	return run(ctx, f.p, "jobs.Record", func() error { return f.q.Record(ctx, a) })
}

// NextDelivery implements serverless.Outbox.
func (f *JobQueue) NextDelivery(ctx context.Context) (serverless.Instant, error) {
	return do(ctx, f.p, "jobs.NextDelivery", func() (serverless.Instant, error) { return f.q.NextDelivery(ctx) })
}

// Attempts implements serverless.Outbox.
func (f *JobQueue) Attempts(ctx context.Context, ref serverless.Ref) ([]serverless.Attempt, error) {
	return do(ctx, f.p, "jobs.Attempts", func() ([]serverless.Attempt, error) { return f.q.Attempts(ctx, ref) })
}
