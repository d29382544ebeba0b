package memory

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"

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
func (q *Jobs) Stats(_ context.Context, _ queue.Instant, endpoint string, rules *queue.Rules) (queue.Stats, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.Stats(endpoint, rules), nil
}

// listStep is the most jobs that List examines under one lock.
const listStep = 256

// List implements queue.JobQueue. It unlocks the queue between steps, so a job that moves
// meanwhile is seen before or after the move.
func (q *Jobs) List(_ context.Context, now queue.Instant, lq queue.ListQuery) iter.Seq2[queue.Job, error] {
	return lq.Limited(func(yield func(queue.Job, error) bool) {
		if len(lq.IDs) > 0 {
			q.listed(now, &lq, yield)
			return
		}
		for upTo := cmp.Or(lq.Before, math.MaxUint64); upTo > 0; {
			var jobs []queue.Job
			jobs, upTo = q.listSome(now, &lq, upTo)
			for _, j := range jobs {
				if !yield(j, nil) {
					return
				}
			}
		}
	})
}

// listSome examines some jobs with a Seq below upTo, newest first. next is the Seq at which
// to continue; 0: done.
func (q *Jobs) listSome(now queue.Instant, lq *queue.ListQuery, upTo uint64) (jobs []queue.Job, next uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next = q.x.Newest(lq.Endpoint, lq.Owner, upTo, listStep, func(i uint32) {
		if j := q.x.Job(i); lq.Selects(&j, now) {
			jobs = append(jobs, j)
		}
	})
	return jobs, next
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
