package memory

import (
	"context"

	"github.com/podyard/podyard/serverless"
)

// Expire ticks what is due.
func (q *Jobs) Expire(_ context.Context, now serverless.Instant, limit int) (serverless.Instant, error) {
	var evs []serverless.Event
	op := serverless.Op{Kind: serverless.OpTick}
	q.mu.Lock()
	for {
		i := q.x.Due(now, &limit)
		if i == 0 {
			break
		}
		var res serverless.Result
		res, evs = q.move(now, i, &op, evs)
		if res.Effect&serverless.Delete == 0 {
			q.x.Rearm(i)
		}
	}
	next := q.x.Next()
	q.mu.Unlock()
	q.tell(evs)
	return next, nil
}

// Purge cancels queued jobs.
func (q *Jobs) Purge(_ context.Context, now serverless.Instant, p serverless.PurgeQuery) (removed int, next uint64, err error) {
	var evs []serverless.Event
	q.mu.Lock()
	defer func() { q.mu.Unlock(); q.tell(evs) }()
	var queued []uint32
	next = q.x.Queued(p.Endpoint, p.Owner, p.After, p.UpTo, p.Limit, func(i uint32) bool {
		queued = append(queued, i)
		return true
	})
	op := serverless.Op{Kind: serverless.OpPurge}
	for _, i := range queued {
		var res serverless.Result
		res, evs = q.move(now, i, &op, evs)
		if res.Err == nil {
			removed++
		}
	}
	return removed, next, nil
}
