package balance

import (
	"context"
	"strconv"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/queue"
)

// A Prober checks the health of workers. It is safe for concurrent use.
type Prober interface {
	// Probe asks the worker at an address for a path and returns the status of the answer. An
	// error means that there was no answer.
	Probe(ctx context.Context, address, path string) (status int, err error)
}

// A Health is the result of a check.
type Health uint8

// The results.
const (
	Starting  Health = iota // it answers 204, or was not checked yet
	Healthy                 // it answers 200
	Unhealthy               // anything else
)

var healthNames = [...]string{"starting", "healthy", "unhealthy"}

// String returns the name of the state, such as healthy.
func (h Health) String() string {
	if int(h) < len(healthNames) {
		return healthNames[h]
	}
	return "Health(" + strconv.Itoa(int(h)) + ")"
}

// HealthOf returns what an answer to a check means (docs/decisions.md 44).
func HealthOf(status int, err error) Health {
	switch {
	case err == nil && status == 200:
		return Healthy
	case err == nil && status == 204:
		return Starting
	}
	return Unhealthy
}

// Times of checks.
const (
	checkTimeout  = 10 * time.Second
	healthyPeriod = 5 * time.Second
	minPeriod     = 20 * time.Millisecond // right after the start
	maxPeriod     = time.Second           // of a worker that is not healthy
)

// checks are the health checks of a worker, one after another.
type checks struct {
	run     func() // makes one check, and plans the next one
	stop    context.CancelFunc
	since   queue.Instant
	running bool
	again   bool        // the next one is wanted at once
	next    func() bool // stops its timer; nil: it has none
}

// end stops the checks, if there are any.
func (c *checks) end() {
	if c == nil {
		return
	}
	c.stop()
	if c.next != nil {
		c.next()
	}
}

// wake begins a check of a worker now, or after the one that is running. The caller holds the mutex.
func (b *Balancer) wake(m *member) {
	c := m.checks
	switch {
	case c == nil || b.closed:
		return
	case c.running:
		c.again = true
		return
	case c.next != nil:
		c.next()
	}
	c.running, c.next = true, nil
	b.running.Add(1)
	b.o.RunCheck(func() {
		defer b.running.Done()
		c.run()
	})
}

// check makes a check of a worker and plans the next one, unless ctx has ended.
func (b *Balancer) check(ctx context.Context, m *member) {
	h := b.probe(ctx, m)
	if ctx.Err() != nil {
		return
	}
	b.judge(m, h)
	c := m.checks
	pause := healthyPeriod
	if h != Healthy {
		pause = min(max(minPeriod, b.now().Sub(c.since)/8), maxPeriod)
	}
	next := b.o.Clock.AfterFunc(b.o.Clock.Now().Add(pause), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if ctx.Err() == nil {
			b.wake(m)
		}
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	c.running, c.next = false, next
	if c.again {
		c.again = false
		b.wake(m)
	}
}

// probe makes one check.
func (b *Balancer) probe(ctx context.Context, m *member) Health {
	at, ok := b.o.Address(m.key, m.listener.HealthPort)
	to, known := b.o.Address(m.key, m.listener.Port)
	if !ok || !known {
		return Starting
	}
	b.mu.Lock()
	m.address = to
	b.mu.Unlock()
	ctx, cancel := clock.WithDeadline(ctx, b.o.Clock, b.o.Clock.Now().Add(checkTimeout))
	defer cancel()
	return HealthOf(b.o.Prober.Probe(ctx, at, m.listener.HealthPath))
}

// judge records the result of a check.
func (b *Balancer) judge(m *member, h Health) {
	b.mu.Lock()
	now := b.now()
	changed := m.health != h || m.isProven() && m.isDead(now)
	if m.health = h; h == Healthy {
		if !m.isProven() {
			m.idleSince = now
		}
		m.healthyAt = now
		b.dispatch(m.group)
	}
	b.mu.Unlock()
	if changed {
		b.o.Changed(m.key.Endpoint)
	}
}
