package httpapi_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// The check must fail for a queue with a bug. Otherwise TestLinearizable would prove
// nothing.
func TestTheLinearCheckFindsMistakes(t *testing.T) {
	for _, row := range []struct {
		name string
		make func(serverless.JobQueue) serverless.JobQueue
	}{
		{"a read is now and then an old one", func(q serverless.JobQueue) serverless.JobQueue {
			return &stale{JobQueue: q, old: map[serverless.Ref]serverless.Job{}}
		}},
		{"a cancellation is acknowledged before it happens", func(q serverless.JobQueue) serverless.JobQueue { return early{q} }},
		{"a cancellation comes after the end all the same", func(q serverless.JobQueue) serverless.JobQueue { return late{q} }},
		{"a result for a job that was taken away is accepted", func(q serverless.JobQueue) serverless.JobQueue { return unfenced{q} }},
		{"a purge counts what was not in the queue any more", func(q serverless.JobQueue) serverless.JobQueue { return generous{q} }},
	} {
		t.Run(row.name, func(t *testing.T) {
			found := false
			for seed := uint64(0); seed < 50 && !found; seed++ {
				synctest.Test(t, func(t *testing.T) {
					for _, c := range runClients(t, seed, true, row.make(memory.NewJobs())) {
						found = found || !c.check(t)
					}
				})
			}
			if !found {
				t.Error("50 rounds have not found it")
			}
		})
	}
}

// A stale queue answers every fourth Get with its previous answer.
type stale struct {
	serverless.JobQueue
	mu  sync.Mutex
	n   int
	old map[serverless.Ref]serverless.Job
}

func (q *stale) Get(ctx context.Context, now serverless.Instant, ref serverless.Ref) (serverless.Job, error) {
	j, err := q.JobQueue.Get(ctx, now, ref)
	if err != nil {
		return j, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.n++
	if old, ok := q.old[ref]; ok && q.n%4 == 0 {
		return old, nil
	}
	q.old[ref] = j
	return j, nil
}

// An early queue returns from Cancel shortly before it cancels the job.
type early struct{ serverless.JobQueue }

func (q early) Apply(ctx context.Context, now serverless.Instant, ops []queue.Op, res []queue.Result) error {
	if ops[0].Kind != queue.OpCancel {
		return q.JobQueue.Apply(ctx, now, ops, res)
	}
	j, err := q.Get(ctx, now, ops[0].Ref)
	if err != nil {
		return err
	}
	res[0].Effect, res[0].Err = j.Apply(now, &ops[0])
	res[0].State = j.State
	time.AfterFunc(2*time.Millisecond, func() {
		_ = q.JobQueue.Apply(context.WithoutCancel(ctx), now, ops, make([]queue.Result, len(ops)))
	})
	return nil
}

// A late queue reports success for the cancellation of a job that had ended.
type late struct{ serverless.JobQueue }

func (q late) Apply(ctx context.Context, now serverless.Instant, ops []queue.Op, res []queue.Result) error {
	err := q.JobQueue.Apply(ctx, now, ops, res)
	if ops[0].Kind == queue.OpCancel {
		res[0].State.Status = serverless.Cancelled
	}
	return err
}

// An unfenced queue drops the result of a worker that does not hold the job, and reports
// success.
type unfenced struct{ serverless.JobQueue }

func (q unfenced) Apply(ctx context.Context, now serverless.Instant, ops []queue.Op, res []queue.Result) error {
	err := q.JobQueue.Apply(ctx, now, ops, res)
	if ops[0].Kind == queue.OpFinish {
		res[0].Err = nil
	}
	return err
}

// A generous queue counts every job of a purge as removed.
type generous struct{ serverless.JobQueue }

func (q generous) Purge(ctx context.Context, now serverless.Instant, p queue.PurgeQuery) (int, uint64, error) {
	_, next, err := q.JobQueue.Purge(ctx, now, p)
	return 1, next, err
}
