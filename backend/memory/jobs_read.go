package memory

import (
	"context"
	"iter"
	"slices"

	"github.com/podyard/podyard/serverless"
)

// Get returns the job.
func (q *Jobs) Get(_ context.Context, now serverless.Instant, id serverless.Ref) (serverless.Job, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.x.Find(id)
	if i == 0 {
		return serverless.Job{}, serverless.ErrNotFound
	}
	j := q.job(i)
	if j.Gone(now) {
		return serverless.Job{}, serverless.ErrNotFound
	}
	return j, nil
}

// Chunks returns what was not drained.
func (q *Jobs) Chunks(_ context.Context, now serverless.Instant, id serverless.Ref, maxBytes int) ([][]byte, serverless.State, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.x.Find(id)
	if i == 0 {
		return nil, serverless.State{}, serverless.ErrNotFound
	}
	s := q.x.State(i)
	if s.Gone(now) {
		return nil, serverless.State{}, serverless.ErrNotFound
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

// Stats answers for one endpoint.
func (q *Jobs) Stats(_ context.Context, _ serverless.Instant, endpoint string) (serverless.Stats, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.Stats(endpoint), nil
}

// listStep is how many jobs List looks at under the lock.
const listStep = 256

// List yields jobs, newest first. It lets others in between, so a job that moves
// meanwhile is seen as it was or as it is.
func (q *Jobs) List(_ context.Context, now serverless.Instant, lq serverless.ListQuery) iter.Seq2[serverless.Job, error] {
	return func(yield func(serverless.Job, error) bool) {
		upTo := ^uint64(0)
		for upTo > 0 {
			var jobs []serverless.Job
			jobs, upTo = q.listSome(now, lq, upTo)
			for _, j := range jobs {
				if !yield(j, nil) {
					return
				}
			}
		}
	}
}

// listSome looks at some jobs with a Seq below upTo and says where to go on, 0 at the end.
func (q *Jobs) listSome(now serverless.Instant, lq serverless.ListQuery, upTo uint64) (jobs []serverless.Job, next uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next = q.x.Newest(lq.Endpoint, lq.Owner, upTo, listStep, func(i uint32) {
		s := q.x.State(i)
		if s.Gone(now) || len(lq.Status) > 0 && !slices.Contains(lq.Status, s.Status) {
			return
		}
		jobs = append(jobs, serverless.Job{Ref: q.x.Ref(i), Owner: q.x.Owner(i), State: s})
	})
	return jobs, next
}
