package memory

import (
	"context"
	"iter"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

// PastAttempts implements queue.JobQueue.
func (q *Jobs) PastAttempts(_ context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobAttempt, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.x.Find(ref)
	if i == 0 {
		return nil, queue.ErrNotFound
	}
	s := q.x.State(i)
	if s.Gone(now) {
		return nil, queue.ErrNotFound
	}
	if x := q.extras[i]; x != nil {
		return slices.Clone(x.tries[:min(int(s.Attempt), len(x.tries))]), nil
	}
	return nil, nil
}

// PastLeases implements queue.JobQueue.
func (q *Jobs) PastLeases(_ context.Context, now queue.Instant, ref queue.Ref) ([]queue.JobLease, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.x.Find(ref)
	if i == 0 {
		return nil, queue.ErrNotFound
	}
	if s := q.x.State(i); s.Gone(now) {
		return nil, queue.ErrNotFound
	}
	if x := q.extras[i]; x != nil {
		return slices.Clone(x.leases), nil
	}
	return nil, nil
}

// DeadLetters implements queue.DeadLetters.
func (q *Jobs) DeadLetters(_ context.Context, now queue.Instant, endpoint, owner string) iter.Seq2[queue.DeadLetter, error] {
	q.mu.Lock()
	list := q.dead.List(now, endpoint, owner)
	q.mu.Unlock()
	return func(yield func(queue.DeadLetter, error) bool) {
		for _, d := range list {
			d.Job = queue.Job{Ref: d.Ref, Owner: d.Owner, Key: d.Key, State: d.State}
			if !yield(d, nil) {
				return
			}
		}
	}
}

// DeadLetter implements queue.DeadLetters.
func (q *Jobs) DeadLetter(_ context.Context, now queue.Instant, ref queue.Ref) (queue.DeadLetter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, ok := q.dead.Get(now, ref)
	if !ok {
		return d, queue.ErrNotFound
	}
	return d, nil
}

// DropDead implements queue.DeadLetters.
func (q *Jobs) DropDead(_ context.Context, refs []queue.Ref) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ref := range refs {
		q.dead.Remove(ref)
	}
	return nil
}
