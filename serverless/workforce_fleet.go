package serverless

import (
	"context"
	"errors"
	"slices"
	"time"
)

// takeStock asks the fleet for all it has, when that is due.
func (s *Service) takeStock(ctx context.Context, now Instant) {
	f := &s.force
	f.mu.Lock()
	if f.listing || f.listAt > now {
		f.mu.Unlock()
		return
	}
	f.listing = true
	f.lists++
	n := f.lists
	f.mu.Unlock()
	f.begin(s, func() {
		list, err := f.fleet.Workers(ctx)
		at := s.now()
		if err != nil && ctx.Err() == nil {
			s.log.Error("the fleet does not say what it has", "err", err)
		}
		f.stock(at, n, list, err)
		s.arm(at)
	})
}

// stock is what the fleet answered to the list with number n. Workers that nobody asked
// for here were started by an earlier process and go on, if their keys are known.
func (f *workforce) stock(now Instant, n uint64, list []FleetWorker, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listing, f.next = false, now
	if err != nil {
		f.listAt = now.Add(time.Second)
		return
	}
	f.known, f.listAt = true, f.patrol(now, resyncPeriod)
	there := map[memberKey]bool{}
	for _, w := range list {
		k := memberKey{w.Endpoint, w.ID}
		there[k] = true
		q := f.squad(w.Endpoint)
		h := q.hands[w.ID]
		if h == nil {
			h = &hand{memberKey: k, ordered: now, asked: true, accepted: true}
			if w.State != FleetEnded { // else nobody saw when that was
				h.use.From = now.Time()
			}
			q.hands[w.ID] = h
			if !f.adopts {
				h.end(endGrace)
			}
		}
		f.update(q, h, w, now)
	}
	for _, q := range f.squads {
		for _, h := range q.hands {
			f.compare(q, h, there[h.memberKey], now, n)
		}
	}
}

// compare sees whether list n misses a worker that should be in it.
func (f *workforce) compare(q *squad, h *hand, there bool, now Instant, n uint64) {
	newer := !h.calling && h.known < n // than what was last asked for h
	switch {
	case !there && newer && h.stopped:
		h.gone = true
		f.close(h, now)
		f.soon(q, now)
	case !there && newer && h.accepted && !h.ended && !h.stop:
		h.seen.Exit = "it is no longer there"
		f.over(h, now)
		f.soon(q, now)
	case h.stopped && !h.gone && newer:
		f.listAt = min(f.listAt, now.Add(time.Second))
	case h.stopped && !h.gone:
		f.listAt = now
	}
}

// update notes what the fleet says of a worker.
func (f *workforce) update(q *squad, h *hand, w FleetWorker, now Instant) {
	if h.ended {
		return // it does not come back; what was under way may still say otherwise
	}
	if w != h.seen {
		f.soon(q, now)
	}
	h.seen = w
	f.measure(h)
	if w.State == FleetEnded {
		f.over(h, now)
	}
}

// over notes that the worker has ended.
func (f *workforce) over(h *hand, now Instant) {
	h.ended, h.endedAt = true, now
	h.blame = !h.stop && !h.seen.Stopped
	f.close(h, now)
}

// soon has a squad looked at.
func (f *workforce) soon(q *squad, now Instant) {
	q.next = sooner(q.next, max(now, q.looked.Add(f.pause())))
	f.next = sooner(f.next, q.next)
}

// listenToFleet listens to the fleet, if there is one, until the end of ctx or the call of
// stop, which waits for the end.
func (s *Service) listenToFleet(ctx context.Context) (stop func()) {
	if s.force.fleet == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watchFleet(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// watchFleet listens to the fleet until ctx ends.
func (s *Service) watchFleet(ctx context.Context) {
	f := &s.force
	for ctx.Err() == nil {
		err := f.fleet.Watch(ctx, func(w FleetWorker) {
			now := s.now()
			f.heard(w, now)
			s.arm(now)
		})
		if ctx.Err() != nil {
			return
		}
		s.log.Error("the fleet was lost", "err", err)
		f.mu.Lock()
		f.listAt, f.next = 1, 1 // long due
		f.mu.Unlock()
		s.pause(ctx)
	}
}

func (f *workforce) heard(w FleetWorker, now Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.squads[w.Endpoint]; q != nil {
		if h := q.hands[w.ID]; h != nil {
			f.update(q, h, w, now)
			return
		}
	}
	f.listAt, f.next = now, now // somebody else's, or one that has gone meanwhile
}

// begin has a call of the fleet go on beside Step, or makes it at once in lockstep.
func (f *workforce) begin(s *Service, call func()) {
	if f.lockstep {
		call()
		return
	}
	s.runs.Go(call)
}

// callFleet asks the fleet to start and stop what it should, one call at a time for each
// worker.
func (s *Service) callFleet(ctx context.Context, now Instant) {
	for _, call := range s.fleetCalls(ctx, now) {
		s.force.begin(s, call)
	}
}

// fleetCalls is what the fleet is to be asked now, by endpoint and worker.
func (s *Service) fleetCalls(ctx context.Context, now Instant) (calls []func()) {
	f := &s.force
	f.mu.Lock()
	defer f.mu.Unlock()
	var busy []string
	for endpoint, q := range f.squads {
		if len(q.hands) > 0 {
			busy = append(busy, endpoint)
		}
	}
	slices.Sort(busy)
	for _, endpoint := range busy {
		q := f.squads[endpoint]
		for _, h := range q.byID() {
			switch {
			case h.calling || f.calls == fleetCalls:
			case h.retry > now:
				q.next = sooner(q.next, h.retry)
			case h.stop && !h.asked:
				h.gone = true
				f.soon(q, now)
			case h.stop && !h.stopped && !h.gone:
				grace := h.grace
				calls = append(calls, f.call(s, q, h, func() { s.stopHand(ctx, h, grace) }))
			case !h.stop && !h.asked && !h.noRoom:
				h.asked = true
				spec := h.spec
				calls = append(calls, f.call(s, q, h, func() { s.startHand(ctx, q, h, spec) }))
			}
		}
	}
	return calls
}

// call is do with what is noted before and after.
func (f *workforce) call(s *Service, q *squad, h *hand, do func()) func() {
	h.calling = true
	f.calls++
	return func() {
		do()
		now := s.now()
		f.mu.Lock()
		h.calling, h.known = false, f.lists
		f.calls--
		f.soon(q, now)
		f.mu.Unlock()
		s.arm(now.Add(f.pause()))
	}
}

func (s *Service) startHand(ctx context.Context, q *squad, h *hand, spec WorkerSpec) {
	f := &s.force
	err := f.fleet.Start(ctx, spec)
	now := s.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		h.accepted, h.spec = true, WorkerSpec{}
		if !h.ended {
			h.use.From = now.Time()
			f.turn()
		}
	case ctx.Err() != nil: // whoever comes next finds out what became of it
	case errors.Is(err, ErrNoRoom):
		h.noRoom, h.asked = true, false
		q.fail(h, now, true, "there is no capacity for a worker")
	default:
		s.log.Error("starting a worker failed", "endpoint", h.endpoint, "worker", h.id, "err", err)
		q.fail(h, now, false, "a worker could not be started: "+detail(err))
		h.end(killGrace) // it may have been started
	}
}

func (s *Service) stopHand(ctx context.Context, h *hand, grace time.Duration) {
	f := &s.force
	err := f.fleet.Stop(ctx, h.endpoint, h.id, grace)
	now := s.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		h.stopped = true
		f.listAt, f.next = now, now // to see it gone
	case ctx.Err() == nil:
		s.log.Error("stopping a worker failed", "endpoint", h.endpoint, "worker", h.id, "err", err)
		h.retry = now.Add(time.Second)
	}
}

// replaceStubborn ends workers that go on with a job which they were told to stop. Their
// other jobs are not charged for it.
func (s *Service) replaceStubborn(ctx context.Context, now Instant) {
	f := &s.force
	for _, m := range s.crew.stubborn(now) {
		f.mu.Lock()
		var h *hand
		if q := f.squads[m.endpoint]; q != nil {
			h = q.hands[m.id]
		}
		f.mu.Unlock()
		if h == nil || h.stop {
			continue
		}
		s.log.Warn("a worker goes on with a job it was told to stop", "endpoint", m.endpoint, "worker", m.id)
		s.crew.dismiss(m)
		if err := s.takeAway(ctx, m, OpRelease); err != nil {
			s.log.Error("replacing a worker failed", "err", err)
			continue
		}
		f.mu.Lock()
		h.end(killGrace)
		f.soon(f.squads[m.endpoint], now)
		f.mu.Unlock()
	}
}
