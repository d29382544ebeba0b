package memory

import (
	"context"
	"iter"
	"slices"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless/queue"
)

// Get implements queue.JobQueue.
func (q *Jobs) Get(_ context.Context, now queue.Instant, id queue.Ref) (queue.Job, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.x.Find(id)
	if i == 0 {
		return queue.Job{}, queue.ErrNotFound
	}
	j := q.job(i)
	if j.Gone(now) {
		return queue.Job{}, queue.ErrNotFound
	}
	return j, nil
}

// Chunks implements queue.JobQueue.
func (q *Jobs) Chunks(_ context.Context, now queue.Instant, id queue.Ref, maxBytes int) ([][]byte, queue.State, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.x.Find(id)
	if i == 0 {
		return nil, queue.State{}, queue.ErrNotFound
	}
	s := q.x.State(i)
	if s.Gone(now) {
		return nil, queue.State{}, queue.ErrNotFound
	}
	x := q.extras[i]
	if x == nil {
		return nil, s, nil
	}
	n, size := 0, 0
	for n < len(x.chunks) && (n == 0 || size+len(x.chunks[n]) <= maxBytes) {
		size += len(x.chunks[n])
		n++
	}
	return slices.Clone(x.chunks[:n]), s, nil
}

// Stats implements queue.JobQueue.
func (q *Jobs) Stats(_ context.Context, now queue.Instant, endpoint string, rules *queue.Rules) (queue.Stats, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.Stats(endpoint, rules, now), nil
}

// HeldBy implements queue.RateHolder.
func (q *Jobs) HeldBy(_ context.Context, now queue.Instant, endpoint, owner, key string, rules *queue.Rules) (queue.Held, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.HeldBy(now, endpoint, owner, key, rules), nil
}

// listStep is the most jobs that List examines under one lock.
const listStep = 256

// List implements queue.JobQueue. It unlocks the queue between steps, so a job that moves
// meanwhile is seen before or after the move.
func (q *Jobs) List(_ context.Context, now queue.Instant, lq queue.ListQuery) iter.Seq2[queue.Job, error] {
	if len(lq.IDs) > 0 {
		return lq.Limited(func(yield func(queue.Job, error) bool) { q.listed(now, &lq, yield) })
	}
	return func(yield func(queue.Job, error) bool) {
		lq := lq
		l := jobindex.NewListing(&lq)
		lq.Limited(func(yield func(queue.Job, error) bool) {
			for more := true; more; {
				var jobs []queue.Job
				jobs, more = q.listSome(now, &lq, l)
				for _, j := range jobs {
					if !yield(j, nil) {
						return
					}
				}
			}
		})(yield)
	}
}

// listSome returns some jobs of a listing.
func (q *Jobs) listSome(now queue.Instant, lq *queue.ListQuery, l *jobindex.Listing) (jobs []queue.Job, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	more = q.x.Next(l, now, listStep, func(i uint32) {
		if j := q.x.Job(i); lq.Selects(&j, now) {
			jobs = append(jobs, j)
		}
	})
	return jobs, more
}

// Count implements queue.Counter.
func (q *Jobs) Count(ctx context.Context, now queue.Instant, lq queue.ListQuery) (n int, err error) {
	if lq.Prefix == "" && len(lq.IDs) == 0 {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.x.Count(now, &lq), nil
	}
	lq.Before, lq.Offset, lq.Limit = 0, 0, 0
	for _, err := range q.List(ctx, now, lq) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// listed yields the jobs that lq names.
func (q *Jobs) listed(now queue.Instant, lq *queue.ListQuery, yield func(queue.Job, error) bool) {
	var jobs []queue.Job
	others := *lq
	others.IDs = nil // the lookup selects them
	q.mu.Lock()
	for _, id := range lq.IDs {
		if i := q.x.Find(queue.Ref{Endpoint: lq.Endpoint, ID: id}); i != 0 {
			if j := q.x.Job(i); others.Selects(&j, now) {
				jobs = append(jobs, j)
			}
		}
	}
	q.mu.Unlock()
	for _, j := range queue.NewestFirst(jobs) {
		if !yield(j, nil) {
			return
		}
	}
}
