package shard

import (
	"context"
	"errors"
	"sync"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// errRests is the error of a shard that was not asked because it has just failed.
var errRests = errors.New("shard: it has just failed")

// each calls f for each shard, at once and not for longer than patience, but for those that have just
// failed. It returns the number of shards that answered, and an error if none did.
func (q *Queue) each(ctx context.Context, f func(ctx context.Context, i int, m *member) error) (answered int, err error) {
	if len(q.members) == 1 {
		m := q.members[0]
		if err := q.note(m, f(ctx, 0, m)); err != nil {
			return 0, err
		}
		return 1, nil
	}
	ctx, cancel := clock.WithDeadline(ctx, q.o.Clock, q.o.Clock.Now().Add(patience))
	defer cancel()
	errs := make([]error, len(q.members))
	var all sync.WaitGroup
	for i, m := range q.members {
		if errs[i] = errRests; !q.rests(m) {
			all.Go(func() { errs[i] = q.note(m, q.timed(ctx, f(ctx, i, m))) })
		}
	}
	all.Wait()
	for _, e := range errs {
		switch {
		case e == nil:
			answered++
		case err == nil || errors.Is(err, errRests):
			err = e
		}
	}
	if answered > 0 {
		err = nil
	}
	return answered, err
}

// timed makes the end of patience an error of the shard.
func (q *Queue) timed(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// sooner returns the soonest of some instants, and one in a second if a shard did not answer.
func (q *Queue) sooner(now queue.Instant, answered int, list []queue.Instant) (next queue.Instant) {
	for _, at := range list {
		next = queue.Sooner(next, at)
	}
	if answered < len(list) {
		next = queue.Sooner(next, now.Add(askAgain))
	}
	return next
}

// Expire implements queue.JobQueue, on all shards at once.
func (q *Queue) Expire(ctx context.Context, now queue.Instant, limit int) (queue.Instant, error) {
	list := make([]queue.Instant, len(q.members))
	n, err := q.each(ctx, func(ctx context.Context, i int, m *member) (err error) {
		list[i], err = m.Jobs.Expire(ctx, now, limit)
		return err
	})
	return q.sooner(now, n, list), err
}

// NextDelivery implements queue.Outbox.
func (q *Queue) NextDelivery(ctx context.Context) (queue.Instant, error) {
	list := make([]queue.Instant, len(q.members))
	n, err := q.each(ctx, func(ctx context.Context, i int, m *member) (err error) {
		list[i], err = m.Jobs.NextDelivery(ctx)
		return err
	})
	return q.sooner(queue.At(q.o.Clock.Now()), n, list), err
}

// Deliveries implements queue.Outbox. Each call begins with the next shard.
func (q *Queue) Deliveries(ctx context.Context, now, until queue.Instant, limit int) (list []queue.Delivery, err error) {
	answered := 0
	first := int(q.rotation.Add(1))
	for i := range q.members {
		m := q.members[(first+i)%len(q.members)]
		if len(list) >= limit || q.rests(m) {
			continue
		}
		part, e := q.deliveries(ctx, m, now, until, limit-len(list))
		if e != nil {
			err = e
			continue
		}
		answered++
		list = append(list, part...)
	}
	if answered > 0 {
		err = nil
	}
	return list, err
}

func (q *Queue) deliveries(ctx context.Context, m *member, now, until queue.Instant, limit int) ([]queue.Delivery, error) {
	inner, cancel := clock.WithDeadline(ctx, q.o.Clock, q.o.Clock.Now().Add(patience))
	defer cancel()
	list, err := m.Jobs.Deliveries(inner, now, until, limit)
	for i := range list {
		d := &list[i]
		d.Token = m.token(d.Token)
		m.out(&d.Job.State, q.base(m, d.Job.Endpoint))
	}
	return list, q.note(m, q.timed(inner, err))
}

// LoadDelivery implements queue.Outbox: the shard that gave the lease has the payloads.
func (q *Queue) LoadDelivery(ctx context.Context, d *queue.Delivery) error {
	for _, m := range q.members {
		if uint64(d.Token)>>tokenShift != m.number {
			continue
		}
		inner := *d
		inner.Token &= tokenMask
		if err := q.note(m, m.Jobs.LoadDelivery(ctx, &inner)); err != nil {
			return err
		}
		inner.Token = d.Token
		m.out(&inner.Job.State, q.base(m, inner.Job.Endpoint))
		*d = inner
		return nil
	}
	return queue.ErrLeaseLost
}

// base returns what is added to State.Seq of a job that a shard has.
func (q *Queue) base(m *member, endpoint string) uint64 {
	pl, _, _ := q.known(endpoint)
	return pl.baseOf(m)
}

// Record implements queue.Outbox: each attempt goes to the shard that gave its lease.
func (q *Queue) Record(ctx context.Context, a []queue.Attempt) error {
	var first error
	for _, m := range q.members {
		var list []queue.Attempt
		for i := range a {
			if uint64(a[i].Token)>>tokenShift == m.number {
				b := a[i]
				b.Token &= tokenMask
				list = append(list, b)
			}
		}
		if len(list) == 0 {
			continue
		}
		if err := q.note(m, m.Jobs.Record(ctx, list)); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// FindKey implements idempotency.Finder: a shard may have the record whatever endpoint it is for.
func (q *Queue) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	found := make([]*idempotency.Record, len(q.members))
	errs := make([]error, len(q.members))
	var all sync.WaitGroup
	for i, m := range q.members {
		ask := func() {
			r, err := m.Jobs.FindKey(ctx, key)
			if err == nil {
				found[i] = &r
			} else if !errors.Is(err, idempotency.ErrNotFound) {
				errs[i] = q.note(m, err)
			}
		}
		if len(q.members) == 1 {
			ask()
		} else {
			all.Go(ask)
		}
	}
	all.Wait()
	var newest *idempotency.Record
	for _, r := range found {
		if r != nil && (newest == nil || r.At.After(newest.At)) {
			newest = r
		}
	}
	if newest != nil {
		return *newest, nil
	}
	for _, err := range errs {
		if err != nil {
			return idempotency.Record{}, err
		}
	}
	return idempotency.Record{}, idempotency.ErrNotFound
}

// Watch implements queue.JobQueue. When the events of a shard cannot be read, they are tried again
// after a second, with an EventGap.
func (q *Queue) Watch(ctx context.Context, f func([]queue.Event)) error {
	var mu sync.Mutex
	one := func(evs []queue.Event) {
		mu.Lock()
		defer mu.Unlock()
		f(evs)
	}
	var all sync.WaitGroup
	for _, m := range q.members {
		all.Go(func() {
			for ctx.Err() == nil {
				err := m.Jobs.Watch(ctx, one)
				if ctx.Err() != nil {
					return
				}
				_ = q.note(m, err)
				clock.Sleep(ctx, q.o.Clock, q.o.Clock.Now().Add(askAgain), nil)
				one([]queue.Event{{Kind: queue.EventGap}})
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// Report implements queue.Reporter, for the shards that are Reporters.
func (q *Queue) Report(f func([]queue.Moved)) {
	for _, m := range q.members {
		r, ok := unwrap.As[queue.Reporter](m.Jobs)
		if !ok {
			continue
		}
		r.Report(func(moves []queue.Moved) {
			list := append([]queue.Moved{}, moves...)
			for i := range list {
				m.out(&list[i].State, q.base(m, list[i].Endpoint))
			}
			q.reportMu.Lock()
			defer q.reportMu.Unlock()
			f(list)
		})
	}
}

// Load implements queue.Measurer: the sum of the shards that answer and are Measurers.
func (q *Queue) Load(ctx context.Context) (sum queue.Load, err error) {
	var mu sync.Mutex
	_, err = q.each(ctx, func(ctx context.Context, _ int, m *member) error {
		x, ok := unwrap.As[queue.Measurer](m.Jobs)
		if !ok {
			return nil
		}
		l, err := x.Load(ctx)
		mu.Lock()
		defer mu.Unlock()
		sum.Undrained += l.Undrained
		sum.Deliveries += l.Deliveries
		sum.OldestDelivery = queue.Sooner(sum.OldestDelivery, l.OldestDelivery)
		return err
	})
	return sum, err
}

// Priorities implements queue.Measurer. The numbers are 0 for a shard that is no Measurer.
func (q *Queue) Priorities(ctx context.Context, endpoint string) (sum [queue.MaxPriority + 2]int64, err error) {
	pl, err := q.place(ctx, endpoint, false)
	if err != nil {
		return sum, err
	}
	for _, at := range pl.sides {
		x, ok := unwrap.As[queue.Measurer](at.Jobs)
		if !ok {
			continue
		}
		part, err := x.Priorities(ctx, endpoint)
		if err := q.note(at.member, err); err != nil {
			return sum, err
		}
		for i, n := range part {
			sum[i] += n
		}
	}
	return sum, nil
}

// Survey implements queue.Surveyor: the sums of the shards that answer. It is not supported if a
// shard is no Surveyor.
func (q *Queue) Survey(ctx context.Context) (map[string]queue.Summary, error) {
	surveyors := make([]queue.Surveyor, len(q.members))
	for i, m := range q.members {
		x, ok := unwrap.As[queue.Surveyor](m.Jobs)
		if !ok {
			return nil, errors.ErrUnsupported
		}
		surveyors[i] = x
	}
	list := make([]map[string]queue.Summary, len(q.members))
	_, err := q.each(ctx, func(ctx context.Context, i int, _ *member) (err error) {
		list[i], err = surveyors[i].Survey(ctx)
		return err
	})
	all := map[string]queue.Summary{}
	for _, part := range list {
		for endpoint, x := range part {
			s := all[endpoint]
			for i, n := range x.Queued {
				s.Queued[i] += n
			}
			s.Delayed, s.Running, s.Held = s.Delayed+x.Delayed, s.Running+x.Running, s.Held || x.Held
			s.Oldest = queue.Sooner(s.Oldest, x.Oldest)
			all[endpoint] = s
		}
	}
	return all, err
}

// EndpointsOf implements queue.OwnerLister. It is not supported if a shard is no OwnerLister.
func (q *Queue) EndpointsOf(ctx context.Context, owner string) (all []string, err error) {
	listers := make([]queue.OwnerLister, len(q.members))
	for i, m := range q.members {
		var ok bool
		if listers[i], ok = unwrap.As[queue.OwnerLister](m.Jobs); !ok {
			return nil, errors.ErrUnsupported
		}
	}
	lists := make([][]string, len(q.members))
	_, err = q.each(ctx, func(ctx context.Context, i int, _ *member) (err error) {
		lists[i], err = listers[i].EndpointsOf(ctx, owner)
		return err
	})
	for _, list := range lists {
		all = append(all, list...)
	}
	return all, err
}

func count(ctx context.Context, now queue.Instant, jobs queue.JobQueue, l queue.ListQuery) (n int, err error) {
	if c, ok := unwrap.As[queue.Counter](jobs); ok {
		return c.Count(ctx, now, l)
	}
	for _, err := range jobs.List(ctx, now, l) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}
