package postgres

import (
	"math"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

const (
	// dueLag is how far behind the present the floor of job_due is. Jobs are armed for later than the
	// present, so a row appears below it only if the clocks of servers differ by more, or if a
	// transaction takes longer.
	dueLag = 10_000
	// dueAnew is how often, and dueShare for which part of the time, a sweep begins at 0 and finds
	// those rows, too.
	dueAnew  = 10 * time.Second
	dueShare = 50
)

// dueFloor is the instant from which on sweeps read job_due. While anybody has an old transaction open, the
// database keeps the entries of rows that were dropped, and a scan from the front reads all of them again.
type dueFloor struct {
	q *Jobs

	mu    sync.Mutex
	at    queue.Instant
	low   queue.Instant // the earliest that was armed here since the sweep began
	busy  bool          // a sweep will set the floor
	from0 time.Time     // when a sweep begins at 0 next
}

// begin returns where a sweep at now begins to read. done is called with the instant that it has found
// to be next.
func (d *dueFloor) begin(now queue.Instant) (from queue.Instant, done func(next queue.Instant, err error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy {
		return d.at, func(queue.Instant, error) {}
	}
	began := d.q.s.opts.Clock.Now()
	d.busy, d.low = true, math.MaxInt64
	from = d.at
	anew := d.q.s.pooled || !began.Before(d.from0)
	if anew {
		from = 0
	}
	return from, func(next queue.Instant, err error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.busy = false
		if err != nil {
			return
		}
		d.at = min(now-dueLag, d.low)
		if next != 0 {
			d.at = min(d.at, next)
		}
		if ended := d.q.s.opts.Clock.Now(); anew {
			d.from0 = ended.Add(max(dueAnew, dueShare*ended.Sub(began)))
		}
	}
}

// armed lowers the floor before a job is armed.
func (d *dueFloor) armed(at queue.Instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.low = min(d.at, at), min(d.low, at)
}
