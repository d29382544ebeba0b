package serverless

import (
	"cmp"
	"context"
	"errors"
	"slices"
)

// staff keeps the fleet at what Decide says: it looks at the endpoints at which something
// has happened or is due, and acts. Calls of the fleet go on in goroutines; what becomes
// of them shows in a later step.
func (s *Service) staff(ctx context.Context, now Instant) (next Instant) {
	f := &s.force
	if f.fleet == nil {
		return 0
	}
	s.replaceStubborn(ctx, now)
	f.mu.Lock()
	next = f.next
	f.mu.Unlock()
	if next > now {
		return next.unlessNever()
	}
	s.takeStock(ctx, now)
	if err := s.muster(ctx, now); err != nil && ctx.Err() == nil {
		s.log.Error("staffing failed", "err", err)
	}
	s.callFleet(ctx, now)
	s.tellMeter(ctx, false)
	return f.settle(now).unlessNever()
}

// muster looks at every endpoint that is due.
func (s *Service) muster(ctx context.Context, now Instant) error {
	f := &s.force
	f.mu.Lock()
	if !f.known {
		f.mu.Unlock()
		return nil
	}
	due, all := f.due(now)
	f.mu.Unlock()
	var errs []error
	if all {
		list, err := s.allStaffed(ctx)
		if err != nil {
			f.mu.Lock()
			f.resync = now.Add(staffPeriod)
			f.mu.Unlock()
			errs, list = append(errs, err), due
		}
		due = list
	}
	for _, endpoint := range due {
		e, err := s.endpoints.Get(ctx, endpoint)
		switch {
		case errors.Is(err, ErrNoEndpoint):
			err = s.disband(ctx, now, endpoint)
		case err == nil && !s.staffed(e):
			err = s.disband(ctx, now, endpoint)
		case err == nil:
			err = s.staffOne(ctx, now, e)
		}
		if err != nil {
			f.mu.Lock()
			q := f.squad(endpoint)
			q.next = sooner(q.next, now.Add(staffPeriod))
			f.mu.Unlock()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// due is the endpoints to look at, or all of them.
func (f *workforce) due(now Instant) (list []string, all bool) {
	all = f.resync <= now
	if all {
		f.resync = f.patrol(now, resyncPeriod)
	}
	for endpoint := range f.fresh {
		list = append(list, endpoint)
	}
	clear(f.fresh)
	for endpoint, q := range f.squads {
		if all || q.next != 0 && q.next <= now {
			list = append(list, endpoint)
			q.next = 0 // what happens from here on sets it anew
		}
	}
	slices.Sort(list)
	return slices.Compact(list), all
}

// allStaffed is every endpoint with an image, and every one that still has workers.
func (s *Service) allStaffed(ctx context.Context) (list []string, err error) {
	there := map[string]bool{}
	for e, err := range s.endpoints.List(ctx) {
		if err != nil {
			return nil, err
		}
		if s.staffed(e) {
			there[e.ID] = true
			list = append(list, e.ID)
		}
	}
	f := &s.force
	f.mu.Lock()
	defer f.mu.Unlock()
	var others []string
	for endpoint, q := range f.squads {
		switch {
		case there[endpoint]:
		case len(q.hands) > 0:
			others = append(others, endpoint)
		default:
			delete(f.squads, endpoint)
		}
	}
	slices.Sort(others)
	return append(list, others...), nil
}

// settle says when to look again.
func (f *workforce) settle(now Instant) Instant {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = f.patrol(now, resyncPeriod)
	if !f.listing {
		f.next = min(f.next, f.listAt)
	}
	if !f.known {
		return f.next // the list wakes us
	}
	f.next = sooner(min(f.next, f.resync), f.meterAt)
	if len(f.fresh) > 0 {
		f.next = now
	}
	for _, q := range f.squads {
		f.next = sooner(f.next, q.next)
	}
	return f.next
}

// staffOne looks at one endpoint, decides, and notes what the fleet is to be asked.
func (s *Service) staffOne(ctx context.Context, now Instant, e *Endpoint) error {
	views, err := s.attend(ctx, now, e)
	if err != nil {
		return err
	}
	st, err := s.queue.Stats(ctx, now, e.ID)
	if err != nil {
		return err
	}
	f := &s.force
	f.mu.Lock()
	q := f.squads[e.ID]
	b := q.backoff
	demand := Demand{
		Queued: st.Queued - st.QueuedLow, Low: st.QueuedLow, Running: st.Running, Oldest: st.Oldest,
		Spare: q.spareSince(now, views, cmp.Or(e.Workers.Idle, DefaultIdle)),
	}
	f.mu.Unlock()
	url := f.url()
	if url == "" {
		b = Backoff{Fails: 1, Until: now.Add(staffPeriod), Reason: "the service does not know yet where its workers reach it"}
	}
	d := Decide(now, e, demand, views, b)
	if err := s.act(e, d, url); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	q.note(d)
	q.looked, q.next = now, sooner(sooner(q.next, d.Next), q.due(now, initTimeout(e)))
	if len(q.hands) > 0 || st.Queued > st.QueuedLow {
		q.next = sooner(q.next, f.patrol(now, staffPeriod))
	}
	return nil
}

// disband ends the workers of an endpoint that has none, or is gone.
func (s *Service) disband(ctx context.Context, now Instant, endpoint string) error {
	if _, err := s.attend(ctx, now, &Endpoint{ID: endpoint}); err != nil {
		return err
	}
	f := &s.force
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.squad(endpoint)
	q.plain, q.looked = true, now
	q.log, q.backoff, q.lastEnd = nil, Backoff{}, ""
	for _, h := range q.hands {
		h.end(killGrace)
		q.next = sooner(q.next, f.patrol(now, staffPeriod))
	}
	return nil
}

// act carries a decision out, as far as it is not the fleet's to do.
func (s *Service) act(e *Endpoint, d Decision, url string) error {
	f := &s.force
	for _, w := range slices.Concat(d.Stop, d.Drain) {
		// One that knows us is told first and ends when it has surely no job.
		if m := s.crew.find(e.ID, w); m != nil {
			s.crew.dismiss(m)
			f.rouse(e.ID, s.now())
			continue
		}
		f.mu.Lock()
		f.squads[e.ID].hands[w].end(endGrace)
		f.mu.Unlock()
	}
	fresh := make([]*hand, d.Start)
	for i := range fresh {
		w, err := s.newWorkerID()
		if err != nil {
			return err
		}
		fresh[i] = &hand{memberKey: memberKey{e.ID, w}}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.squads[e.ID]
	if len(d.Stop) > 0 {
		q.spare = nil // they were among those that were spare
	}
	waiting := d.Want - q.live() - d.Start
	for _, h := range q.byID() {
		switch {
		case !h.noRoom || h.stop:
		case len(fresh) > 0: // it has waited for room and goes first
			fresh = fresh[1:]
			h.order(s.workerSpec(e, h.id, url), d.At)
		case waiting > 0:
			waiting--
		default:
			delete(q.hands, h.id)
		}
	}
	for _, h := range fresh {
		h.order(s.workerSpec(e, h.id, url), d.At)
		q.hands[h.id] = h
	}
	return nil
}
