package memory

import (
	"context"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

var (
	_ budget.Counter    = (*Jobs)(nil)
	_ queue.OwnerLister = (*Jobs)(nil)
)

// Limit implements budget.Counter.
func (q *Jobs) Limit(s *budget.Set) { q.limits.Store(s) }

// Usage implements budget.Counter.
func (q *Jobs) Usage(_ context.Context, user string) (budget.Usage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.Usage(user), nil
}

// Users implements budget.Counter.
func (q *Jobs) Users(context.Context) ([]string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.Users(), nil
}

// EndpointsOf implements queue.OwnerLister.
func (q *Jobs) EndpointsOf(_ context.Context, owner string) ([]string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.EndpointsOf(owner), nil
}

// admit returns an error if the owner of an added job is over a limit.
func (q *Jobs) admit(recs []uint32, jobs []queue.Job) error {
	set := q.limits.Load()
	if set == nil {
		return nil
	}
	for i, rec := range recs {
		l := set.Of(jobs[i].Owner)
		if l == nil {
			continue
		}
		if err := q.x.Admit(rec, l, &jobs[i], jobs); err != nil {
			return err
		}
	}
	return nil
}

// fits undoes a move to s, and returns an error, if the owner of the job has no room for what a
// worker reports.
func (q *Jobs) fits(i uint32, s *queue.State, e queue.Effect, op *queue.Op) error {
	l := q.limits.Load().Of(q.x.Owner(i))
	if l == nil {
		return nil
	}
	var before queue.State
	q.x.Read(i, &before)
	err := q.x.Fits(i, l, &before, s, e, op)
	if err != nil {
		*s = before
	}
	return err
}

// counted implements budget.Counter for a store of records.
type counted struct{ tally *budget.Tally }

func newCounted() counted { return counted{&budget.Tally{}} }

// Limit implements budget.Counter.
func (c counted) Limit(s *budget.Set) { c.tally.Limit(s) }

// Usage implements budget.Counter.
func (c counted) Usage(ctx context.Context, user string) (budget.Usage, error) {
	return c.tally.Usage(ctx, user)
}

// Users implements budget.Counter.
func (c counted) Users(ctx context.Context) ([]string, error) { return c.tally.Users(ctx) }
