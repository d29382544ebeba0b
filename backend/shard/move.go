package shard

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/servers"
)

const (
	syncPeriod  = time.Second
	checkPeriod = time.Minute // of drains
	// seqGap is how far State.Seq on the old shard may still grow during a drain.
	seqGap = 1 << 40
)

// Run follows the pins and continues moves. It returns nil when ctx has ended.
func (q *Queue) Run(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; n++ {
		if err := q.sync(ctx); err != nil && ctx.Err() == nil {
			q.o.Logger.Warn("pins of endpoints could not be read", "err", err)
		}
		for _, endpoint := range q.moving(n%int(checkPeriod/syncPeriod) == 0) {
			if err := q.advance(ctx, endpoint); err != nil && ctx.Err() == nil && !errors.Is(err, servers.ErrChanged) {
				q.o.Logger.Warn("a move of an endpoint could not go on", "endpoint", endpoint, "err", err)
			}
		}
		clock.Sleep(ctx, q.o.Clock, q.o.Clock.Now().Add(syncPeriod), nil)
	}
	return nil
}

// moving returns the endpoints that are held, and if drains is set those that are drained.
func (q *Queue) moving(drains bool) (list []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for endpoint, e := range q.pins {
		if e.To != "" || drains && e.From != "" {
			list = append(list, endpoint)
		}
	}
	slices.Sort(list)
	return list
}

// pinned returns a copy of an entry; its version is 0 if there is none.
func (q *Queue) pinned(endpoint string) (e entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.pins[endpoint]; p != nil {
		e = *p
	}
	return e
}

// A Placement says where an endpoint is.
type Placement struct {
	Shard string // that gets new jobs
	From  string // that is drained; empty: the endpoint is on one shard
	To    string // where it is about to move; empty: nowhere
}

// Placement returns where an endpoint is. It is zero if the endpoint never had a job or a worker.
func (q *Queue) Placement(ctx context.Context, endpoint string) (Placement, error) {
	if err := q.sync(ctx); err != nil {
		return Placement{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.pins[endpoint]; e != nil {
		return Placement{Shard: e.Shard, From: e.From, To: e.To}, nil
	}
	return Placement{}, nil
}

// Move makes new jobs of an endpoint go to another shard. It returns when they do; the jobs that are
// there stay where they are until they end, and Run ends the drain. It returns a problem.Conflict
// while another move of the endpoint is not finished, and changes nothing if one of the two shards
// does not answer. If ctx ends before, the endpoint stays where it was.
func (q *Queue) Move(ctx context.Context, endpoint, to string) error {
	target := q.byName[to]
	if target == nil {
		return problem.Newf(problem.Invalid, "no shard has the name %q", to)
	}
	for {
		done, err := q.tryMove(ctx, endpoint, target)
		switch {
		case errors.Is(err, servers.ErrChanged):
			continue
		case err == nil && !done:
			return q.finishHold(ctx, endpoint, to)
		}
		return err
	}
}

// tryMove begins a move, or reports that there is nothing to do.
func (q *Queue) tryMove(ctx context.Context, endpoint string, target *member) (done bool, err error) {
	if err := q.sync(ctx); err != nil {
		return false, err
	}
	e := q.pinned(endpoint)
	switch {
	case e.version == 0:
		if err := q.put(ctx, endpoint, 0, pin{Shard: target.Name}); err != nil {
			return false, err
		}
		return true, q.sync(ctx)
	case e.Shard == target.Name && e.To == "":
		return true, nil
	case e.To == target.Name:
		return false, nil
	case !e.settled():
		return false, problem.Newf(problem.Conflict, "the endpoint %q is being moved: wait until %q is empty", endpoint, e.From+e.To)
	}
	for _, name := range []string{e.Shard, target.Name} {
		if _, err := q.statsOf(ctx, endpoint, name); err != nil {
			return false, err
		}
	}
	p := e.pin
	p.To, p.Since = target.Name, queue.At(q.o.Clock.Now())
	return false, q.put(ctx, endpoint, e.version, p)
}

func (q *Queue) statsOf(ctx context.Context, endpoint, name string) (queue.Stats, error) {
	m := q.byName[name]
	if m == nil {
		return queue.Stats{}, problem.Newf(problem.Unavailable, "this server does not have the shard %q", name)
	}
	s, err := m.Jobs.Stats(ctx, queue.At(q.o.Clock.Now()), endpoint, nil)
	return s, q.note(m, err)
}

// finishHold waits until the hold is over.
func (q *Queue) finishHold(ctx context.Context, endpoint, to string) error {
	for {
		err := q.sync(ctx)
		if err == nil {
			if pl, _, _ := q.known(endpoint); pl.pin.To == "" {
				if pl.pin.Shard == to {
					return nil
				}
				return problem.Newf(problem.Unavailable, "the move of %q was given up: a shard did not answer", endpoint)
			}
			if err = q.advance(ctx, endpoint); err == nil && q.pinned(endpoint).To == "" {
				continue
			}
		}
		if ctx.Err() != nil {
			q.giveUp(context.WithoutCancel(ctx), endpoint)
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, servers.ErrChanged) {
			q.o.Logger.Warn("a move of an endpoint could not go on", "endpoint", endpoint, "err", err)
		}
		clock.Sleep(ctx, q.o.Clock, q.o.Clock.Now().Add(20*time.Millisecond), nil)
	}
}

// giveUp ends a hold. The endpoint stays where it was.
func (q *Queue) giveUp(ctx context.Context, endpoint string) {
	e := q.pinned(endpoint)
	if e.To == "" {
		return
	}
	p := e.pin
	p.To, p.Since = "", 0
	if err := q.put(ctx, endpoint, e.version, p); err != nil {
		q.o.Logger.Warn("a move of an endpoint could not be given up", "endpoint", endpoint, "err", err)
	}
}

// advance makes the next step of a move if it can be made. Any server may do it.
func (q *Queue) advance(ctx context.Context, endpoint string) error {
	e := q.pinned(endpoint)
	now := queue.At(q.o.Clock.Now())
	switch {
	case e.To != "":
		all, err := q.allSaw(ctx, e.version)
		if err == nil && all {
			err = q.beginDrain(ctx, endpoint, &e, now)
		}
		if err != nil && !errors.Is(err, servers.ErrChanged) && now.Sub(e.Since) > holdLimit {
			q.giveUp(ctx, endpoint)
		}
		return err
	case e.From != "" && now.Sub(e.Since) > idempotency.Retention:
		return q.endDrain(ctx, endpoint, &e, now)
	}
	return nil
}

// allSaw reports whether every server that lives follows the pins up to a version.
func (q *Queue) allSaw(ctx context.Context, version int64) (bool, error) {
	list, err := q.o.Control.Leases(ctx, q.o.Clock.Now().Add(-skew), nodePrefix)
	if err != nil {
		return false, err
	}
	for _, l := range list {
		if seen, err := strconv.ParseInt(string(l.Data), 10, 64); err != nil || seen < version {
			return false, err
		}
	}
	return true, nil
}

func (q *Queue) beginDrain(ctx context.Context, endpoint string, e *entry, now queue.Instant) error {
	before, err := q.statsOf(ctx, endpoint, e.Shard)
	if err != nil {
		return err
	}
	there, err := q.statsOf(ctx, endpoint, e.To)
	if err != nil {
		return err
	}
	p := pin{
		Shard: e.To, Base: e.Base + before.LastSeq + seqGap, From: e.Shard, FromBase: e.Base, Since: now,
		Completed: e.Completed - there.Completed, Failed: e.Failed - there.Failed, Retried: e.Retried - there.Retried,
	}
	if err := q.put(ctx, endpoint, e.version, p); err != nil {
		return err
	}
	q.o.Logger.Info("new jobs of an endpoint go to another shard", "endpoint", endpoint, "shard", p.Shard)
	return q.sync(ctx)
}

// endDrain ends a drain if the old shard has nothing of the endpoint.
func (q *Queue) endDrain(ctx context.Context, endpoint string, e *entry, now queue.Instant) error {
	old := q.byName[e.From]
	if old == nil {
		return problem.Newf(problem.Unavailable, "this server does not have the shard %q", e.From)
	}
	for _, err := range old.Jobs.List(ctx, now, queue.ListQuery{Endpoint: endpoint, Limit: 1}) {
		return q.note(old, err)
	}
	for _, err := range old.Jobs.DeadLetters(ctx, now, endpoint, "") {
		return q.note(old, err)
	}
	last, err := q.statsOf(ctx, endpoint, e.From)
	if err != nil {
		return err
	}
	p := pin{
		Shard: e.Shard, Base: e.Base,
		Completed: e.Completed + last.Completed, Failed: e.Failed + last.Failed, Retried: e.Retried + last.Retried,
	}
	if err := q.put(ctx, endpoint, e.version, p); err != nil {
		return err
	}
	q.o.Logger.Info("an endpoint has left a shard", "endpoint", endpoint, "shard", e.From)
	return q.sync(ctx)
}
