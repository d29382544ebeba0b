package serverless

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
)

// expireStep is the most jobs that one call of the queue moves.
const expireStep = 1024

// Step does everything that is due at now. It submits the jobs of schedules, moves batches, renews the leases
// of in-process workers, moves jobs past a deadline, lets the scaler start and stop workers, and
// sends webhooks. It
// returns the next instant at which something is due, and the zero time if nothing is
// scheduled. A call that is early or superfluous is harmless. Only one Step may run at a
// time. Deliveries and calls of the fleet continue in goroutines that end with ctx.
func (s *Service) Step(ctx context.Context, now time.Time) (next time.Time, err error) {
	due, err := s.stepSchedules(ctx, now)
	if err != nil {
		return time.Time{}, err
	}
	counted, err := s.stepBatches(ctx, now)
	if err != nil {
		return time.Time{}, err
	}
	due = queue.Sooner(due, counted)
	if s.logs != nil {
		if at := s.logs.Step(ctx, now); !at.IsZero() {
			due = queue.Sooner(due, At(at))
		}
	}
	next, err = s.step(ctx, now)
	if err != nil || next.IsZero() {
		return due.Time(), err
	}
	return queue.Sooner(due, At(next)).Time(), nil
}

// step is Step without schedules and batches, which have loops of their own in Run: they must not hold up
// leases and deadlines.
func (s *Service) step(ctx context.Context, now time.Time) (next time.Time, err error) {
	at := At(now)
	asked := s.asked
	s.asked = 0
	due := queue.Sooner(s.look(ctx, at), s.renew(ctx, at))
	for {
		n, err := s.queue.Expire(ctx, at, expireStep)
		if err != nil {
			s.observeLoop(telemetry.LoopExpire, 0, err)
			return time.Time{}, fmt.Errorf("serverless: expire: %w", err)
		}
		if n == 0 || n > at {
			due = queue.Sooner(due, n)
			break
		}
	}
	s.observeLoop(telemetry.LoopExpire, asked, nil)
	due = queue.Sooner(due, s.stepFrees(ctx, at))
	due = queue.Sooner(due, s.scaler.Step(ctx, at))
	s.observeLoop(telemetry.LoopScaler, asked, nil)
	n, err := s.deliver(ctx, at)
	s.observeLoop(telemetry.LoopOutbox, asked, err)
	if err != nil {
		return time.Time{}, fmt.Errorf("serverless: deliver: %w", err)
	}
	return queue.Sooner(due, n).Time(), nil
}

// renew extends the leases of in-process workers, three times per lease, and removes remote
// workers whose time has run out.
func (s *Service) renew(ctx context.Context, now Instant) (next Instant) {
	next, left := s.registry.Expire(now)
	for _, endpoint := range left {
		s.scaler.Wake(endpoint)
	}
	if !s.registry.HasLocalLeases() {
		return next
	}
	if due := s.renewed.Add(s.localLease / 3); s.renewed <= now && now < due {
		return queue.Sooner(next, due) // Step is called more often than renewals are due
	}
	ops := s.registry.Renewals(now.Add(s.localLease))
	res := make([]queue.Result, len(ops))
	if err := s.queue.Apply(ctx, now, ops, res); err != nil {
		s.log.Error("renewal failed", "err", err)
		return queue.Sooner(next, now.Add(time.Second))
	}
	for i := range res {
		if res[i].Err != nil { // the lease is gone, and its EventStop was lost
			s.stop(ops[i].Ref, ops[i].Worker)
		}
	}
	s.renewed = now
	return queue.Sooner(next, now.Add(s.localLease/3))
}

// Listen passes the events of the queue and the fleet on to the waiting calls. It returns nil
// when ctx has ended, and otherwise the error of the queue. Run calls Listen; a program that
// calls Step itself runs Listen in a goroutine.
func (s *Service) Listen(ctx context.Context) error {
	s.hub.events([]queue.Event{{Kind: queue.EventGap}})
	defer s.watchFleet(ctx)()
	defer s.keepEvents(ctx)()
	err := s.queue.Watch(ctx, func(evs []queue.Event) {
		s.hub.events(evs)
		s.scaler.Events(evs)
		s.events.Hints(evs)
		if s.schedules != nil {
			s.schedules.Events(evs)
		}
		if s.batches != nil {
			s.batches.Events(evs)
		}
		if s.tails != nil {
			s.tails.events(evs)
		}
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serverless: watch the queue: %w", err)
	}
	return nil
}

// watchFleet watches the fleet until ctx ends or stop is called. stop waits for the end of
// the watch.
func (s *Service) watchFleet(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { s.scaler.Watch(ctx) })
	return func() {
		cancel()
		watch.Wait()
	}
}

// keepEvents reads the jobs of events until ctx ends or stop is called. stop waits for its end.
// Hints that came while nobody listened are lost.
func (s *Service) keepEvents(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() { s.events.Run(ctx) })
	s.events.Hints([]queue.Event{{Kind: queue.EventGap}})
	return func() {
		cancel()
		run.Wait()
	}
}

// Run does the background work of the service until ctx ends: it calls Listen, and Step
// whenever something is due, over a shared queue at least once a second. It repeats a failed call after a second. It returns nil when
// every goroutine that it started has ended. Call it once.
func (s *Service) Run(ctx context.Context) error {
	s.goroutines.Go(func() {
		for ctx.Err() == nil {
			if err := s.Listen(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("listening failed", "err", err)
				s.pause(ctx)
			}
		}
	})
	s.goroutines.Go(func() { s.compareClock(ctx) })
	s.goroutines.Go(func() { clock.Jumps(ctx, s.clock, func(by time.Duration) { s.jumped(ctx, by) }) })
	if s.schedules != nil {
		s.goroutines.Go(func() { _ = s.schedules.Run(ctx) })
	}
	if s.batches != nil {
		s.goroutines.Go(func() { _ = s.batches.Run(ctx) })
	}
	if s.logs != nil {
		s.goroutines.Go(func() { _ = s.logs.Run(ctx) })
	}
	if s.tails != nil {
		s.goroutines.Go(func() { s.tails.run(ctx) })
	}
	for ctx.Err() == nil {
		if at := s.armed.Swap(math.MaxInt64); at != math.MaxInt64 {
			s.asked = Instant(at)
		}
		next, err := s.step(ctx, s.clock.Now())
		if err != nil && ctx.Err() == nil {
			s.log.Error("step failed", "err", err)
			next = s.clock.Now().Add(time.Second)
		}
		if !next.IsZero() {
			s.armEarlier(At(next))
		}
		s.sleep(ctx)
	}
	s.balancer.Close()
	s.goroutines.Wait()
	s.outcomes.wait()
	s.scaler.Close(context.WithoutCancel(ctx))
	return nil
}

// sleep waits until the armed instant, or until an earlier instant is armed, or until ctx
// ends.
func (s *Service) sleep(ctx context.Context) {
	wake := make(chan struct{})
	stop := func() bool { return true }
	if at := s.armed.Load(); at != math.MaxInt64 {
		stop = s.clock.AfterFunc(clock.Within(s.clock, Instant(at).Time()), func() { close(wake) })
	}
	defer stop()
	select {
	case <-wake:
	case <-s.wake:
	case <-ctx.Done():
	}
}

// arm makes Run call Step at due or earlier.
func (s *Service) arm(due Instant) {
	if s.armEarlier(due) {
		signal(s.wake)
	}
}

// armEarlier moves the armed instant to due. It reports false if the armed instant was not
// later than due.
func (s *Service) armEarlier(due Instant) bool {
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
