package serverless

import (
	"context"
	"fmt"
	"math"
	"time"
)

// expireStep is how many jobs one call of the queue moves.
const expireStep = 1024

// Step does everything that is due at now: leases of in-process workers are renewed,
// jobs past a deadline are moved, the fleet is kept at what Decide says, webhooks go out. It returns the next instant at which
// something will be due, zero when nothing is scheduled. Calling it too early or too often
// is harmless; it is for one caller at a time. Deliveries and calls of the fleet run on in
// goroutines that end with ctx.
func (s *Service) Step(ctx context.Context, now time.Time) (next time.Time, err error) {
	at := At(now)
	due := s.renew(ctx, at)
	for {
		n, err := s.queue.Expire(ctx, at, expireStep)
		if err != nil {
			return time.Time{}, fmt.Errorf("serverless: expire: %w", err)
		}
		if n == 0 || n > at {
			due = sooner(due, n)
			break
		}
	}
	due = sooner(due, s.staff(ctx, at))
	n, err := s.deliver(ctx, at)
	if err != nil {
		return time.Time{}, fmt.Errorf("serverless: deliver: %w", err)
	}
	return sooner(due, n).Time(), nil
}

// sooner is the earlier of two instants, where 0 is never.
func sooner(a, b Instant) Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// renew keeps the leases of in-process workers, three times a lease, and forgets remote
// workers that have not been heard of.
func (s *Service) renew(ctx context.Context, now Instant) (next Instant) {
	next, left := s.crew.sweep(now)
	for _, endpoint := range left {
		s.rouse(endpoint)
	}
	if !s.crew.holdsLocally() {
		return next
	}
	if due := s.renewed.Add(s.local / 3); s.renewed <= now && now < due {
		return sooner(next, due) // steps come as often as there is anything to do
	}
	ops := s.crew.renewals(now.Add(s.local))
	res := make([]Result, len(ops))
	if err := s.queue.Apply(ctx, now, ops, res); err != nil {
		s.log.Error("renewal failed", "err", err)
		return sooner(next, now.Add(time.Second))
	}
	for i := range res {
		if res[i].Err != nil { // and the event that says so was lost
			s.stop(ops[i].Ref, ops[i].Worker)
		}
	}
	s.renewed = now
	return sooner(next, now.Add(s.local/3))
}

// Listen passes the events of queue and fleet on to those who wait, until ctx ends; its error is
// ctx's, or the queue's. Run does it; a program that calls Step itself does it beside.
func (s *Service) Listen(ctx context.Context) error {
	s.hub.events([]Event{{Kind: EventGap}})
	defer s.listenToFleet(ctx)()
	err := s.queue.Watch(ctx, func(evs []Event) {
		s.hub.events(evs)
		s.staffEvents(evs)
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serverless: watch the queue: %w", err)
	}
	return ctx.Err()
}

// Run lets the service work until ctx ends, and returns when every goroutine it started
// has: it listens, and steps whenever something is due. A store that fails is asked again
// after a second. It returns nil.
func (s *Service) Run(ctx context.Context) error {
	s.runs.Go(func() {
		for ctx.Err() == nil {
			if err := s.Listen(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("listening failed", "err", err)
				s.pause(ctx)
			}
		}
	})
	for ctx.Err() == nil {
		s.armed.Store(math.MaxInt64)
		next, err := s.Step(ctx, s.clock.Now())
		if err != nil && ctx.Err() == nil {
			s.log.Error("step failed", "err", err)
			next = s.clock.Now().Add(time.Second)
		}
		if !next.IsZero() {
			s.lower(At(next))
		}
		s.sleep(ctx)
	}
	s.runs.Wait()
	s.tellMeter(context.WithoutCancel(ctx), true)
	return nil
}

// sleep waits until the armed instant or an earlier one is asked for.
func (s *Service) sleep(ctx context.Context) {
	wake := make(chan struct{})
	stop := func() bool { return true }
	if at := s.armed.Load(); at != math.MaxInt64 {
		stop = s.clock.AfterFunc(Instant(at).Time(), func() { close(wake) })
	}
	defer stop()
	select {
	case <-wake:
	case <-s.kick:
	case <-ctx.Done():
	}
}

// arm has Run look at the latest at due.
func (s *Service) arm(due Instant) {
	if s.lower(due) {
		signal(s.kick)
	}
}

// lower moves the armed instant earlier; it reports false when it was early enough.
func (s *Service) lower(due Instant) bool {
	for {
		at := s.armed.Load()
		if int64(due) >= at {
			return false
		}
		if s.armed.CompareAndSwap(at, int64(due)) {
			return true
		}
	}
}
