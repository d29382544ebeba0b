package disk

import (
	"context"
	"slices"

	"github.com/podyard/podyard/internal/jobindex"
	"github.com/podyard/podyard/serverless/queue"
)

// Expire implements serverless.JobQueue.
func (q *Jobs) Expire(ctx context.Context, now queue.Instant, limit int) (queue.Instant, error) {
	e, err := q.s.admitJobs(ctx, deletions, 0)
	if err != nil {
		return 0, err
	}
	var evs []queue.Event
	for limit > 0 {
		ms, err := e.jobs.due(ctx, now, &limit)
		if err != nil {
			return 0, err
		}
		if len(ms) == 0 {
			break
		}
		if err := e.jobs.commit(ms); err != nil {
			return 0, err
		}
		for k := range ms {
			evs = ms[k].eff.Events(evs, ms[k].ref, ms[k].before.Worker)
		}
		q.s.reportMoves(ms)
	}
	if len(evs) > 0 && q.s.jobHub.Watched() {
		q.s.jobHub.Notify(evs)
	}
	if err := e.jobs.expireDead(now, limit); err != nil {
		return 0, err
	}
	if err := e.jobs.dropHolds(now); err != nil {
		return 0, err
	}
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	return queue.Sooner(e.jobs.x.NextDue(), e.jobs.dead.NextDue()), nil
}

// due begins ticks for jobs that are due. It waits for a busy job only before it has begun a
// tick, because a caller that waits must not block others.
func (q *jobQueue) due(ctx context.Context, now queue.Instant, limit *int) (ms []move, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		i := q.x.TakeDue(now, limit)
		if i == 0 {
			return inDueOrder(ms), nil
		}
		if q.x.Has(i, jobindex.Busy) {
			q.x.Rearm(i)
			if len(ms) > 0 {
				return inDueOrder(ms), nil
			}
			if err := q.wait(ctx, i); err != nil {
				return nil, err
			}
			continue
		}
		op := queue.Op{Kind: queue.OpTick, Ref: q.x.TickRef(i)}
		m := q.begin(now, i, &op)
		if m.eff == 0 {
			q.x.Rearm(i)
			continue
		}
		m.rearm = true
		ms = append(ms, m)
	}
}

// inDueOrder orders ticks as jobindex.Index.TakeAllDue does.
func inDueOrder(ms []move) []move {
	if slices.ContainsFunc(ms, func(m move) bool { return m.before.Delayed || m.before.Retry.Attempts > 0 || m.before.DeadLetter > 0 }) {
		slices.SortFunc(ms, func(a, b move) int { return jobindex.CompareDue(&a.before, &b.before) })
	}
	return ms
}

// Purge implements serverless.JobQueue.
func (q *Jobs) Purge(ctx context.Context, now queue.Instant, p queue.PurgeQuery) (removed int, next uint64, err error) {
	e, err := q.s.admitJobs(ctx, deletions, 0)
	if err != nil {
		return 0, 0, err
	}
	ms, next, err := e.jobs.purge(ctx, now, &p)
	if err != nil {
		return 0, 0, err
	}
	if err := e.jobs.commit(ms); err != nil {
		return 0, 0, err
	}
	var evs []queue.Event
	for k := range ms {
		if ms[k].err == nil {
			removed++
		}
		evs = ms[k].eff.Events(evs, ms[k].ref, ms[k].before.Worker)
	}
	q.s.reportMoves(ms)
	if len(evs) > 0 && q.s.jobHub.Watched() {
		q.s.jobHub.Notify(evs)
	}
	return removed, next, nil
}

// purge begins the purge of queued jobs. It stops at a busy job, and waits for it only if it
// is the first.
func (q *jobQueue) purge(ctx context.Context, now queue.Instant, p *queue.PurgeQuery) (ms []move, next uint64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	op := queue.Op{Kind: queue.OpPurge}
	for after := p.After; ; {
		busy := uint32(0)
		next = q.x.Queued(p.Endpoint, p.Owner, after, p.UpTo, p.Limit, func(i uint32) bool {
			if q.x.Has(i, jobindex.Busy) {
				busy = i
				return false
			}
			if m := q.begin(now, i, &op); m.eff != 0 {
				ms = append(ms, m)
			}
			return true
		})
		if busy == 0 || next != 0 {
			return ms, next, nil
		}
		if err := q.wait(ctx, busy); err != nil {
			return nil, 0, err
		}
	}
}
