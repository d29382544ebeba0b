package ratelimit

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Rates limits the requests of each user to each endpoint and operation (section 8.3;
// decisions, row 33): a bucket of N requests, full at first and refilled evenly over
// [Period], and a number of requests in flight.
//
// It is safe for concurrent use. A caller is forgotten when nothing of it is in flight
// and its bucket is full again.
type Rates struct {
	perWorker int
	callers   *table[Caller, caller]
}

// A Caller is what a limit applies to.
type Caller struct {
	User      string
	Endpoint  string
	Operation Operation
}

type caller struct {
	bucket   *rate.Limiter
	size     int // of the bucket
	last     time.Time
	inFlight atomic.Int32
}

// NewRates returns the limits of [Limits]. perWorker is how many requests per [Period]
// each running worker of an endpoint is good for; where workers x perWorker is more than
// the requests of the table, it is the limit instead. Concurrency stays as it is.
func NewRates(perWorker int) *Rates {
	return &Rates{perWorker: perWorker, callers: newTable[Caller](Period, (*caller).idle)}
}

// A Pass is a request in flight.
type Pass struct {
	of       *caller
	released atomic.Bool
}

// Release ends the request. It counts once, however often it is called; a nil Pass is
// fine.
func (p *Pass) Release() {
	if p != nil && p.of != nil && !p.released.Swap(true) {
		p.of.inFlight.Add(-1)
	}
}

// Enter admits a request to an endpoint with so many running workers. The Pass must be
// released when the request has been answered; it is nil when the Decision is not OK,
// and then nothing was charged.
func (r *Rates) Enter(now time.Time, c Caller, workers int) (*Pass, Decision) {
	if c.Operation == Unlimited || c.Operation >= operations {
		return &Pass{}, Decision{OK: true}
	}
	limit := limits[c.Operation]
	size := max(limit.Requests, r.perWorker*workers)
	var (
		of   *caller
		wait time.Duration
		busy bool
	)
	r.callers.with(now, c, func(v *caller) {
		if busy = v.busy(limit.Concurrent); busy {
			return
		}
		if wait = v.take(now, size); wait == 0 {
			v.inFlight.Add(1)
			of = v
		}
	})
	if of != nil {
		return &Pass{of: of}, Decision{OK: true}
	}
	return nil, refusal(limit, size, busy, wait)
}

func (v *caller) busy(concurrent int) bool {
	return concurrent > 0 && int(v.inFlight.Load()) >= concurrent
}

// take takes one request out of a bucket of size, or says how long there will be none.
func (v *caller) take(now time.Time, size int) (wait time.Duration) {
	// Callers read the clock before they come here, so they come out of order; a Limiter
	// that is moved back refills the same time twice.
	if now.Before(v.last) {
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
	if v.bucket.AllowN(now, 1) {
		return 0
	}
	missing := 1 - v.bucket.TokensAt(now)
	return max(1, time.Duration(math.Ceil(missing/float64(perSecond)*float64(time.Second))))
}

func (v *caller) idle(now time.Time) bool {
	return v.inFlight.Load() == 0 && now.Sub(v.last) >= Period
}

func refusal(l Limit, size int, busy bool, wait time.Duration) Decision {
	d := Decision{Exceeded: l.Name, RetryAfter: max(1, seconds(wait))}
	if busy {
		// When one of them ends is not known: a second is as good as any.
		d.Detail = fmt.Sprintf("concurrency limit exceeded for %s: %d requests at once", l.Name, l.Concurrent)
	} else {
		d.Detail = fmt.Sprintf("rate limit exceeded for %s: %d requests per %d s", l.Name, size, seconds(Period))
	}
	d.States = []State{{Name: l.Name, Quota: size, Window: Period, Reset: d.RetryAfter}}
	return d
}
