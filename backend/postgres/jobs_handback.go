package postgres

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
)

// How long the store waits before it asks again what became of a claim.
const (
	firstHandBack = 20 * time.Millisecond
	lastHandBack  = time.Second
)

// A claimEnd says who is left with the jobs of a claim: its caller, unless that has given up.
type claimEnd struct{ over atomic.Bool }

// first reports whether this is the first end: the answer, or that the caller gives up.
func (e *claimEnd) first() bool { return e.over.CompareAndSwap(false, true) }

// await waits for the answer of a claim. Where it returns the error of ctx, the jobs return to the
// queue.
func (c *claimCall) await(ctx context.Context) error {
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		if c.end.first() {
			return ctx.Err()
		}
		return <-c.answer // it came at the same time
	}
}

// reply answers a claim. A caller that has given up does not get its jobs, so nobody has them.
func (q *Jobs) reply(ctx context.Context, c *claimCall, err error) {
	if !c.end.first() {
		if m := handBack(c); err == nil && len(m.ops) > 0 {
			_ = q.moved.push(ctx, m) // after Close, another server sees the leases end
		}
		return
	}
	c.answer <- err
}

// handBack is the call of Apply that returns the jobs of claims to the queue, as far as these had
// them. A delivery that nobody got is not counted.
func handBack(calls ...*claimCall) *moveCall {
	m := &moveCall{answer: newAnswer()}
	for _, c := range calls {
		m.now = max(m.now, c.now)
		for _, r := range c.out {
			m.ops = append(m.ops, queue.Op{Ref: r.job.Ref, Kind: queue.OpRelease, Worker: r.job.Worker, Token: r.job.Token, Adopt: true, Untouched: true})
		}
	}
	m.res = make([]queue.Result, len(m.ops))
	return m
}

// undo returns the jobs of claims to the queue whose commit had an unknown end. It repeats that
// until the database answers, and reports false if the store is closed before.
func (q *Jobs) undo(ctx context.Context, calls []*claimCall) bool {
	for wait := firstHandBack; ; wait = min(2*wait, lastHandBack) {
		m := handBack(calls...)
		err := q.moved.push(ctx, m)
		if err == nil {
			err = <-m.answer
		}
		if err == nil || problem.KindOf(err) != problem.Unavailable || errors.Is(err, ErrClosed) {
			return err == nil
		}
		clock.Sleep(ctx, q.s.opts.Clock, q.s.opts.Clock.Now().Add(wait), q.s.closing)
	}
}
