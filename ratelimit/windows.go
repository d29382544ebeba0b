package ratelimit

import (
	"sync/atomic"
	"time"
)

// Quotas are the requests of one user per window. A field that is not positive has its
// default.
type Quotas struct {
	Minute int // default 600
	Hour   int // default 18000
	Day    int // default 200000
}

// Windows counts the requests of each user in a minute, an hour and a day. A window of a user
// begins with the first request, and begins again with the first request that passes after
// its end. Take checks all windows first; a refused request is counted in none.
//
// Windows is safe for concurrent use. It forgets a user when all windows of the user have
// ended.
type Windows struct {
	policies atomic.Pointer[[3]policy]
	users    *table[string, counts]
	counts   Counts // nil: this process only
}

type policy struct {
	name   string
	quota  int
	length time.Duration
}

type counts struct {
	windows [3]struct {
		start time.Time
		n     int
	}
	blocks *[3]block // instead, with Windows.Shared
}

// NewWindows returns Windows with these quotas.
func NewWindows(q Quotas) *Windows {
	w := &Windows{}
	w.SetQuotas(q)
	w.users = newTable[string](time.Hour, w.ended)
	return w
}

// SetQuotas replaces the quotas. What was counted in the current windows stays counted.
func (w *Windows) SetQuotas(q Quotas) {
	w.policies.Store(&[3]policy{
		{"minute", orDefault(q.Minute, 600), time.Minute},
		{"hour", orDefault(q.Hour, 18_000), time.Hour},
		{"day", orDefault(q.Day, 200_000), 24 * time.Hour},
	})
}

// Take counts one request of user, unless one of the windows is full.
func (w *Windows) Take(now time.Time, user string) (d Decision) {
	policies := w.policies.Load()
	d.States = make([]State, len(policies))
	w.users.with(now, user, func(c *counts) { take(now, policies, c, &d) })
	d.explain()
	return d
}

// Peek returns what is left of the windows of user, and counts nothing. With Shared it is what
// this server knows.
func (w *Windows) Peek(now time.Time, user string) []State {
	policies := w.policies.Load()
	states := make([]State, len(policies))
	w.users.look(user, func(c *counts) {
		for i, p := range policies {
			if w.counts == nil {
				states[i] = c.state(i, now, &p)
			} else {
				states[i] = c.block(i, now, p.length).state(now, &p)
			}
		}
	})
	return states
}

// outOfOrder is how much earlier than another caller one may have read the clock. An instant
// that is earlier still comes from a clock that was set back, for example by NTP after the start
// of a machine with an empty battery. What began at a later instant is then over: if it counted
// on, an hour's step would make a window of a minute last for an hour and a minute.
const outOfOrder = 5 * time.Second

func setBack(now, last time.Time) bool { return last.Sub(now) > outOfOrder }

// over reports whether a window has ended that began at start.
func over(start, now time.Time, length time.Duration) bool {
	return now.Sub(start) >= length || setBack(now, start)
}

// state is what is left of a window that this process counts.
func (c *counts) state(i int, now time.Time, p *policy) State {
	f := c.windows[i]
	if f.n == 0 || over(f.start, now, p.length) {
		f.start, f.n = now, 0
	}
	// A caller may have read the clock before the caller that began the window.
	reset := seconds(p.length - max(now.Sub(f.start), 0))
	return State{Name: p.name, Quota: p.quota, Window: p.length, Remaining: max(p.quota-f.n, 0), Reset: reset}
}

// explain adds the sentence for the user.
func (d *Decision) explain() {
	if !d.OK {
		d.Detail = "rate limit exceeded for the " + d.Exceeded + " window"
	}
}

func take(now time.Time, policies *[3]policy, c *counts, d *Decision) {
	d.OK = true
	fresh := c.windows // with ended windows restarted; stored only if the request passes
	for i, p := range policies {
		f := &fresh[i]
		if f.n == 0 || over(f.start, now, p.length) {
			f.start, f.n = now, 0
		}
		d.States[i] = c.state(i, now, &p)
		if reset := d.States[i].Reset; f.n >= p.quota && reset >= d.RetryAfter {
			d.OK, d.Exceeded, d.RetryAfter = false, p.name, reset
		}
	}
	if !d.OK {
		return
	}
	for i := range fresh {
		fresh[i].n++
		d.States[i].Remaining--
	}
	c.windows = fresh
}

func (w *Windows) ended(c *counts, now time.Time) bool {
	for i, p := range w.policies.Load() {
		if f := &c.windows[i]; f.n > 0 && !over(f.start, now, p.length) {
			return false
		}
		if c.blocks != nil && !over(c.blocks[i].start, now, p.length) {
			return false
		}
	}
	return true
}

func orDefault(n, def int) int {
	if n > 0 {
		return n
	}
	return def
}
