package ratelimit

import (
	"context"
	"strconv"
	"time"
)

// Counts is the part of a servers.Store that Windows and servers share.
type Counts interface {
	Reserve(ctx context.Context, now, until time.Time, key string, n, limit int64) (int64, error)
}

// blocks is how many parts of a quota a server takes one after the other.
const blocks = 20

// Shared makes w count the requests of a user at all servers together. A server takes a twentieth
// of a quota ahead, so most requests need no call, and a quota may be refused at one server while
// another has a part of it left. Windows then begin at whole minutes, hours and days (UTC).
// Remaining in a Decision is what this server knows. A block that cannot be taken because the
// store fails is granted. Call Shared before the first TakeContext; Take is not used then.
func (w *Windows) Shared(c Counts) { w.counts = c }

// TakeContext is Take, over the counts of all servers if there are any. ctx is for the call of
// their store.
func (w *Windows) TakeContext(ctx context.Context, now time.Time, user string) Decision {
	if w.counts == nil {
		return w.Take(now, user)
	}
	d := w.takeShared(ctx, now, user)
	d.explain()
	return d
}

// A block is what this server has taken of one window of a user.
type block struct {
	start time.Time
	left  int // granted, and not used
	taken int // granted in all
	full  int // the quota that had nothing left; 0: it had
}

// takeShared is Take over counts that servers share.
func (w *Windows) takeShared(ctx context.Context, now time.Time, user string) (d Decision) {
	policies := w.policies.Load()
	for range 2 * len(policies) { // each window lacks a block at most once, or another caller has used it
		lacks := -1
		w.users.with(now, user, func(c *counts) { d, lacks = c.take(now, policies) })
		if lacks < 0 {
			break
		}
		w.reserve(ctx, now, user, &policies[lacks], lacks)
	}
	return d
}

// take counts a request, or returns the window that needs another block.
func (c *counts) take(now time.Time, policies *[3]policy) (d Decision, lacks int) {
	d = Decision{OK: true, States: make([]State, len(policies))}
	for i, p := range policies {
		b := c.block(i, now, p.length)
		d.States[i] = b.state(now, &p)
		reset := d.States[i].Reset
		switch {
		case b.left > 0:
		case b.full != p.quota:
			lacks = i
			d.OK, d.Exceeded, d.RetryAfter = false, p.name, reset
			return d, lacks
		case reset >= d.RetryAfter:
			d.OK, d.Exceeded, d.RetryAfter = false, p.name, reset
		}
	}
	if d.OK {
		for i := range policies {
			c.blocks[i].left--
			d.States[i].Remaining--
		}
	}
	return d, -1
}

// state is what is left of a window, as this server knows it.
func (b *block) state(now time.Time, p *policy) State {
	remaining := b.left
	if b.full != p.quota {
		remaining = max(p.quota-b.taken+b.left, 0)
	}
	reset := seconds(p.length - max(now.Sub(b.start), 0))
	return State{Name: p.name, Quota: p.quota, Window: p.length, Remaining: remaining, Reset: reset}
}

// block returns the block of a window at now.
func (c *counts) block(i int, now time.Time, length time.Duration) *block {
	if c.blocks == nil {
		c.blocks = &[3]block{}
	}
	b := &c.blocks[i]
	if start := now.UTC().Truncate(length); start.After(b.start) || setBack(now, b.start) {
		*b = block{start: start}
	}
	return b
}

// reserve takes another block of a window.
func (w *Windows) reserve(ctx context.Context, now time.Time, user string, p *policy, i int) {
	start := now.UTC().Truncate(p.length)
	want := max(p.quota/blocks, 1)
	key := "quota/" + p.name + "/" + strconv.FormatInt(start.Unix(), 36) + "/" + user
	// A caller who has gone must not get what a failure grants.
	n, err := w.counts.Reserve(context.WithoutCancel(ctx), now, start.Add(p.length), key, int64(want), int64(p.quota))
	if err != nil {
		n = int64(want)
	}
	w.users.with(now, user, func(c *counts) {
		b := c.block(i, now, p.length)
		if !b.start.Equal(start) {
			return // the window has ended meanwhile
		}
		b.left += int(n)
		b.taken += int(n)
		if n == 0 {
			b.full = p.quota
		}
	})
}
