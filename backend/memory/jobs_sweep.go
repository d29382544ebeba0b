package memory

import (
	"context"

	"github.com/podyard/podyard/serverless/queue"
)

// Expire implements queue.JobQueue.
func (q *Jobs) Expire(_ context.Context, now queue.Instant, limit int) (queue.Instant, error) {
	var evs []queue.Event
	var moved []queue.Moved
	q.mu.Lock()
	var res queue.Result
	q.due = q.x.TakeAllDue(now, &limit, q.due[:0])
	op := queue.Op{Kind: queue.OpTick}
	for _, i := range q.due {
		op.Ref = q.x.TickRef(i)
		ref := q.reported(i)
		res.Effect, evs, res.Err = q.move(now, i, &op, &res.State, evs)
		moved = q.noteMoved(moved, ref, &op, &res)
		if res.Effect&queue.Delete == 0 {
			q.x.Rearm(i)
		}
	}
	q.x.EndHolds(now)
	for _, ref := range q.dead.Due(now, limit) {
		q.dead.Remove(ref)
	}
	next := queue.Sooner(q.x.NextDue(), q.dead.NextDue())
	q.mu.Unlock()
	q.notify(evs)
	q.reportMoved(moved)
	return next, nil
}

// Purge implements queue.JobQueue.
func (q *Jobs) Purge(_ context.Context, now queue.Instant, p queue.PurgeQuery) (removed int, next uint64, err error) {
	var evs []queue.Event
	var moved []queue.Moved
	q.mu.Lock()
	defer func() { q.mu.Unlock(); q.notify(evs); q.reportMoved(moved) }()
	var queued []uint32
	next = q.x.Queued(p.Endpoint, p.Owner, p.After, p.UpTo, p.Limit, func(i uint32) bool {
		queued = append(queued, i)
		return true
	})
	op := queue.Op{Kind: queue.OpPurge}
	var res queue.Result
	for _, i := range queued {
		ref := q.reported(i)
		res.Effect, evs, res.Err = q.move(now, i, &op, &res.State, evs)
		moved = q.noteMoved(moved, ref, &op, &res)
		if res.Err == nil {
			removed++
		}
	}
	return removed, next, nil
}
