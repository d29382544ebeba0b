package balance

import (
	"context"
	"time"

	"github.com/podyard/podyard/internal/clock"
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

// check checks a worker until ctx ends.
func (b *Balancer) check(ctx context.Context, m *member) {
	since := b.now()
	for ctx.Err() == nil {
		h := b.probe(ctx, m)
		if ctx.Err() != nil {
			return
		}
		b.judge(m, h)
		pause := healthyPeriod
		if h != Healthy {
			pause = min(max(minPeriod, b.now().Sub(since)/8), maxPeriod)
		}
		b.sleep(ctx, m, pause)
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

// sleep waits for d, or until a check is wanted at once.
func (b *Balancer) sleep(ctx context.Context, m *member, d time.Duration) {
	over := make(chan struct{})
	defer b.o.Clock.AfterFunc(b.o.Clock.Now().Add(d), func() { close(over) })()
	select {
	case <-over:
	case <-m.poke:
	case <-ctx.Done():
	}
}
