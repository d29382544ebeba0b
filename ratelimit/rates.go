package ratelimit

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Rates limits the requests of each user to each endpoint and operation
// (docs/interface.md 8.3). Each has a token bucket, which is full at first and refills evenly over
// [Period], and a limit of requests in flight.
//
// Rates is safe for concurrent use. It forgets a key when no request of it is in flight and
// its bucket is full again.
type Rates struct {
	perWorker atomic.Int64
	servers   func() int // nil: this process only
	limiters  *table[Key, limiter]
}

// A Key identifies a limit.
type Key struct {
	User      string
	Endpoint  string
	Operation Operation
}

type limiter struct {
	bucket   *rate.Limiter
	size     int // size of the bucket
	last     time.Time
	inFlight atomic.Int32
}

// NewRates returns Rates with the limits of [Limits]. perWorker is the number of requests per
// [Period] for each running worker of an endpoint. If workers x perWorker exceeds the
// requests of the table, it replaces them. The concurrency limits do not change.
func NewRates(perWorker int) *Rates {
	r := &Rates{limiters: newTable[Key](Period, (*limiter).idle)}
	r.SetPerWorker(perWorker)
	return r
}

// SetPerWorker replaces the requests per [Period] for each running worker: see [NewRates].
func (r *Rates) SetPerWorker(n int) { r.perWorker.Store(int64(n)) }

// Shared divides the limits by the number of servers that serve the same users now, as live
// returns it. A server allows at least one request of each limit. live must not block. Call Shared
// before the first Acquire.
func (r *Rates) Shared(live func() int) { r.servers = live }

// part returns the part of a limit that this server has.
func (r *Rates) part(n int) int {
	if r.servers == nil || n <= 0 {
		return n
	}
	live := max(r.servers(), 1)
	return (n + live - 1) / live
}

// A Permit is a request in flight.
type Permit struct {
	limiter  *limiter
	released atomic.Bool
}

// Release ends the request. It may be called more than once, and on a nil Permit.
func (p *Permit) Release() {
	if p != nil && p.limiter != nil && !p.released.Swap(true) {
		p.limiter.inFlight.Add(-1)
	}
}

// Acquire admits a request to an endpoint with the given number of running workers. The
// caller must release the Permit when the request has been answered. The Permit is nil if the
// Decision is not OK; the request is then not counted.
func (r *Rates) Acquire(now time.Time, c Key, workers int) (*Permit, Decision) {
	if c.Operation == Unlimited || c.Operation >= operations {
		return &Permit{}, Decision{OK: true}
	}
	limit := limits[c.Operation]
	size := r.part(max(limit.Requests, int(r.perWorker.Load())*workers))
	limit.Concurrent = r.part(limit.Concurrent)
	var pass *Permit
	d := Decision{OK: true}
	r.limiters.with(now, c, func(v *limiter) {
		now = v.refill(now, size)
		switch {
		case v.atConcurrencyLimit(limit.Concurrent):
			d = busy(limit, size, int(v.bucket.TokensAt(now)))
		case !v.bucket.AllowN(now, 1):
			d = empty(limit, size, v.wait(now))
		default:
			v.inFlight.Add(1)
			pass = &Permit{limiter: v}
		}
	})
	return pass, d
}

func (v *limiter) atConcurrencyLimit(concurrent int) bool {
	return concurrent > 0 && int(v.inFlight.Load()) >= concurrent
}

// refill sets the size of the bucket and adds what it has gained by now. It returns the time
// of the bucket, which does not go back while the clock does not: callers read the clock before
// the lock and arrive out of order, and a rate.Limiter whose time goes back would refill the
// same time twice. A clock that was set back begins a new bucket.
func (v *limiter) refill(now time.Time, size int) time.Time {
	switch {
	case setBack(now, v.last):
		v.bucket = nil
	case now.Before(v.last):
		now = v.last
	}
	v.last = now
	perSecond := rate.Limit(float64(size) / Period.Seconds())
	switch {
	case v.bucket == nil:
		v.bucket = rate.NewLimiter(perSecond, size)
	case v.size != size:
		v.bucket.SetLimitAt(now, perSecond)
		v.bucket.SetBurstAt(now, size)
	}
	v.size = size
	return now
}

// wait returns how long the bucket stays empty.
func (v *limiter) wait(now time.Time) time.Duration {
	missing := 1 - v.bucket.TokensAt(now)
	return time.Duration(math.Ceil(missing / float64(v.bucket.Limit()) * float64(time.Second)))
}

func (v *limiter) idle(now time.Time) bool {
	return v.inFlight.Load() == 0 && over(v.last, now, Period)
}

// busy refuses a request because too many are in flight. The bucket is not empty, and
// Remaining says so. It is unknown when a request in flight ends, so a second is a guess.
func busy(l Limit, size, left int) Decision {
	detail := fmt.Sprintf("concurrency limit exceeded for %s: %d requests at once", l.Name, l.Concurrent)
	return rejection(l, detail, 1, State{Quota: size, Remaining: left})
}

// empty refuses a request because the bucket is empty for the time wait.
func empty(l Limit, size int, wait time.Duration) Decision {
	detail := fmt.Sprintf("rate limit exceeded for %s: %d requests per %d s", l.Name, size, seconds(Period))
	return rejection(l, detail, max(1, seconds(wait)), State{Quota: size})
}

func rejection(l Limit, detail string, after int, s State) Decision {
	s.Name, s.Window, s.Reset = l.Name, Period, after
	return Decision{Exceeded: l.Name, Detail: detail, RetryAfter: after, States: []State{s}}
}
