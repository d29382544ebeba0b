package disk

import (
	"context"
	"errors"
	"slices"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
)

var (
	_ budget.Counter = (*Store)(nil)
	_ budget.Counter = (*Jobs)(nil)

	_ queue.OwnerLister = (*Jobs)(nil)
)

// countRecords has the tables count what their records take.
func (e *engine) countRecords() {
	e.pods.count(e, func(_ string, v *pods.Pod) budget.Holding { return v.Holding() })
	e.endpoints.count(e, func(_ string, v *endpoints.Endpoint) budget.Holding { return v.Holding() })
	e.registries.count(e, func(_ string, v *registries.Registry) budget.Holding { return v.Holding() })
	e.volumes.count(e, func(_ string, v *volumes.Volume) budget.Holding { return v.Holding() })
	e.templates.count(e, func(_ string, v *templates.Template) budget.Holding { return v.Holding() })
	e.sshKeys.count(e, func(owner string, v *[]string) budget.Holding { return sshkeys.Holding(owner, *v) })
	e.accounts.count(e, func(_ string, v *accounts.Key) budget.Holding { return v.Holding() })
	e.secrets.count(e, func(_ string, v *secrets.Secret) budget.Holding { return v.Holding() })
	e.schedules.count(e, func(_ string, v *schedules.Schedule) budget.Holding { return v.Holding() })
	e.batches.count(e, func(_ string, v *batches.Batch) budget.Holding { return v.Holding() })
	e.jobLogs.count(e, func(_ string, v *joblog.Log) budget.Holding { return v.Holding() })
	e.limit(e.s.limits.Load())
}

func (e *engine) limit(s *budget.Set) {
	for _, t := range e.tallies {
		t.Limit(s)
	}
}

// Limit implements budget.Counter for all stores of the directory.
func (s *Store) Limit(set *budget.Set) {
	s.mu.Lock() // no other engine starts meanwhile
	defer s.mu.Unlock()
	s.limits.Store(set)
	s.current.Load().limit(set)
}

// Usage implements budget.Counter for all stores of the directory.
func (s *Store) Usage(ctx context.Context, user string) (budget.Usage, error) {
	e, err := s.engine()
	if err != nil {
		return budget.Usage{}, err
	}
	all := e.jobs.usage(user)
	for _, t := range e.tallies {
		u, err := t.Usage(ctx, user)
		if err != nil {
			return all, err
		}
		all.Add(&u)
	}
	return all, nil
}

// Users implements budget.Counter for all stores of the directory.
func (s *Store) Users(ctx context.Context) ([]string, error) {
	e, err := s.engine()
	if err != nil {
		return nil, err
	}
	all := e.jobs.users()
	for _, t := range e.tallies {
		users, err := t.Users(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, users...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// admit returns an error if the owner of an added job is over a limit. The caller must hold mu.
func (q *jobQueue) admit(jobs []queue.Job, in []insertion) error {
	set := q.e.s.limits.Load()
	if set == nil {
		return nil
	}
	size := int64(0)
	for k := range jobs {
		size += jobs[k].Bytes()
	}
	for k := range jobs {
		l := set.Of(jobs[k].Owner)
		if l == nil {
			continue
		}
		err := q.e.s.space.within(l, size, newWork, func(l *budget.Limits) error { return q.x.Admit(in[k].i, l, &jobs[k], jobs) })
		if err != nil {
			return err
		}
	}
	return nil
}

// fits undoes a move that is a report of a worker for which the owner of the job has no room.
// What another move adds counts from now on. The caller must hold mu.
func (q *jobQueue) fits(m *move) {
	grows := m.after.Grows(&m.before, m.eff)
	if m.err != nil || grows <= 0 {
		return
	}
	l := q.e.s.limits.Load().Of(q.x.Owner(m.i))
	if l == nil {
		return
	}
	if m.op.Adds() {
		err := q.e.s.space.within(l, grows, underWay, func(l *budget.Limits) error {
			return q.x.Fits(m.i, l, &m.before, &m.after, m.eff, m.op)
		})
		if err != nil {
			m.after, m.eff, m.err = m.before, 0, err
			return
		}
	}
	m.promised = grows
	q.x.Promise(m.i, grows)
}

func isFull(err error) bool {
	var full *budget.Error
	return errors.As(err, &full)
}

// mayCreate returns an error if a user may add no record, because the disk is nearly full and
// others keep less.
func (e *engine) mayCreate(user string) error {
	l := e.s.limits.Load().Of(user)
	if l == nil {
		return nil
	}
	return e.s.space.within(l, 1, newWork, func(l *budget.Limits) error {
		u := e.jobs.usage(user)
		return l.Check(budget.JobBytes, u[budget.JobBytes], 1)
	})
}

// Limit implements budget.Counter: see Store.Limit.
func (q *Jobs) Limit(set *budget.Set) { q.s.Limit(set) }

// Usage implements budget.Counter for the jobs alone.
func (q *Jobs) Usage(_ context.Context, user string) (budget.Usage, error) {
	e, err := q.s.engine()
	if err != nil {
		return budget.Usage{}, err
	}
	return e.jobs.usage(user), nil
}

// Users implements budget.Counter for the jobs alone.
func (q *Jobs) Users(context.Context) ([]string, error) {
	e, err := q.s.engine()
	if err != nil {
		return nil, err
	}
	return e.jobs.users(), nil
}

// EndpointsOf implements queue.OwnerLister.
func (q *Jobs) EndpointsOf(_ context.Context, owner string) ([]string, error) {
	e, err := q.s.engine()
	if err != nil {
		return nil, err
	}
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	return e.jobs.x.EndpointsOf(owner), nil
}

func (q *jobQueue) usage(user string) budget.Usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.Usage(user)
}

func (q *jobQueue) users() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.Users()
}
