package batches

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/queue"
)

const (
	// retryDelay is how long a batch waits after a failure that may pass, such as a store that
	// does not answer.
	retryDelay = time.Second
	// settleDelay is the least time between two writes of the outcomes of a batch.
	settleDelay = time.Second
	// leadPause is how often a server that does not lead looks whether it does.
	leadPause = time.Second
	// lookPeriod is how often all requests are looked at where events of other servers may be
	// lost.
	lookPeriod = time.Minute
)

// A plan knows which batch is due when, and which requests have ended.
type plan struct {
	mu    sync.Mutex
	items map[string]*item
	known bool // the store was read
	idle  bool // another server does what is due
	read  time.Time
	looks time.Time // when all requests are looked at again
}

// An item is what is known of a batch between two steps.
type item struct {
	due    time.Time // of Batch.due; zero: never
	active bool
	ended  []int     // requests whose end was not written
	all    bool      // look at all requests
	settle time.Time // when what has ended is written; zero: nothing has
	wrote  time.Time // when that was done last
}

func (i *item) next() time.Time {
	if i.due.IsZero() || !i.settle.IsZero() && i.settle.Before(i.due) {
		return i.settle
	}
	return i.due
}

func (p *plan) item(id string) *item {
	i := p.items[id]
	if i == nil {
		i = &item{active: true}
		p.items[id] = i
	}
	return i
}

// set plans a batch.
func (p *plan) set(id string, due time.Time, active bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.item(id)
	i.due, i.active = due, active
}

// add plans a batch that was read from the store: a later change counts.
func (p *plan) add(b *Batch, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.items[b.ID] == nil {
		p.items[b.ID] = &item{due: b.due(), active: b.active()}
	}
	if b.active() && b.Status != Draft {
		p.items[b.ID].look(now, true)
	}
}

// again plans a batch that is read again. A known one becomes due earlier only, because who is
// early reads the batch again.
func (p *plan) again(b *Batch, now time.Time, look bool) {
	p.mu.Lock()
	i := p.items[b.ID]
	if i != nil {
		i.active = b.active()
		if due := b.due(); i.due.IsZero() || !due.IsZero() && due.Before(i.due) {
			i.due = due
		}
	}
	p.mu.Unlock()
	if i == nil || look {
		p.add(b, now)
	}
}

// rest makes a server that does not lead forget everything: it reads the store when it leads.
func (p *plan) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.items)
	p.known, p.idle = false, true
}

// resume undoes rest.
func (p *plan) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = false
}

func (p *plan) remove(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.items, id)
}

// look notes that requests of a batch have ended; all says that any may have.
func (p *plan) look(id string, now time.Time, all bool, ended ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.item(id).look(now, all, ended...)
}

func (i *item) look(now time.Time, all bool, ended ...int) {
	if i.all = i.all || all; !i.all {
		i.ended = append(i.ended, ended...)
	}
	if i.all || len(i.ended) > maxNumbers {
		i.all, i.ended = true, nil
	}
	if at := i.wrote.Add(settleDelay); i.settle.IsZero() {
		i.settle = now
		if at.After(now) {
			i.settle = at
		}
	}
}

// events notes what has ended. It reports whether there was anything.
func (p *plan) events(evs []queue.Event, now time.Time) (some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle {
		return false
	}
	for i := range evs {
		switch e := &evs[i]; e.Kind {
		case queue.EventDone:
			if id, n, ok := parseJobID(e.ID); ok {
				p.item(id).look(now, false, n)
				some = true
			}
		case queue.EventGap:
			for _, i := range p.items {
				if i.active {
					i.look(now, true)
					some = true
				}
			}
		}
	}
	return some
}

// A task is a batch that is due.
type task struct {
	id     string
	at     time.Time
	settle bool
	all    bool
	ended  []int
}

// due returns the batches that are due, in order, and takes out what has ended.
func (p *plan) due(now time.Time) (list []task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, i := range p.items {
		at := i.next()
		if at.IsZero() || at.After(now) {
			continue
		}
		t := task{id: id, at: at}
		if !i.settle.IsZero() && !i.settle.After(now) {
			t.settle, t.all, t.ended = true, i.all, i.ended
			i.all, i.ended, i.settle, i.wrote = false, nil, time.Time{}, now
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b task) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id)) })
	return list
}

// next returns the first instant; zero: none.
func (p *plan) next() (first time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.items {
		if at := i.next(); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

func (s *Service) replan(b *Batch, due time.Time) {
	s.plan.set(b.ID, due, b.active())
	s.wakeUp()
}

func (s *Service) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
	s.o.Wake()
}

// Events gets the events of the queue, which say that requests have ended. It does not block.
func (s *Service) Events(evs []queue.Event) {
	if s.plan.events(evs, s.now()) {
		s.wakeUp()
	}
}

// Run does what is due for batches until ctx ends. It returns nil. Call it once.
func (s *Service) Run(ctx context.Context) error {
	defer s.sending.Wait()
	for ctx.Err() == nil {
		next, err := s.Step(ctx, s.o.Clock.Now())
		if err != nil && ctx.Err() == nil {
			s.o.Logger.ErrorContext(ctx, "batches cannot be read", "err", err)
			next = s.o.Clock.Now().Add(retryDelay)
		}
		clock.Nap(ctx, s.o.Clock, next, s.wake)
	}
	return nil
}

// Step does what is due at now: it starts and cancels requests, writes what has ended, sends
// webhooks, and deletes what is no longer kept. It returns the next instant at which something
// is due, or the zero time. A failure of one batch is logged, and it is tried again. Only one
// Step may run at a time. Deliveries continue in goroutines that end with ctx.
func (s *Service) Step(ctx context.Context, now time.Time) (next time.Time, err error) {
	if leads, err := s.leads(ctx); err != nil || !leads {
		return now.Add(leadPause), err
	}
	if err := s.load(ctx, now); err != nil {
		return time.Time{}, err
	}
	for _, t := range s.plan.due(now) {
		if err := s.stepOne(ctx, &t); err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "a batch has to wait", "batch", t.id, "err", err)
			s.plan.set(t.id, now.Add(retryDelay), true)
			if t.settle {
				s.plan.look(t.id, now, t.all, t.ended...)
			}
		}
	}
	return s.next(now), nil
}

// leads reports whether this server does what is due.
func (s *Service) leads(ctx context.Context) (bool, error) {
	if s.o.Lead == nil {
		return true, nil
	}
	leads, err := s.o.Lead(ctx)
	if err != nil || !leads {
		s.plan.rest()
		return false, err
	}
	s.plan.resume()
	return true, nil
}

// next returns when Step has something to do.
func (s *Service) next(now time.Time) time.Time {
	next := s.plan.next()
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if s.o.Refresh > 0 {
		sooner(s.plan.read.Add(s.o.Refresh))
	}
	if s.o.Lead != nil {
		sooner(now.Add(leadPause)) // to keep the lead
	}
	return next
}

// load plans all batches of the store, once, or when they must be read again. The jobs of those
// that have not ended are looked at: they may have ended while no server ran.
func (s *Service) load(ctx context.Context, now time.Time) error {
	if s.plan.known && (s.o.Refresh == 0 || now.Before(s.plan.read.Add(s.o.Refresh))) {
		return nil
	}
	list, err := s.store.All(ctx)
	if err != nil {
		return fmt.Errorf("batches: load: %w", err)
	}
	look := !s.plan.known || !now.Before(s.plan.looks)
	for i := range list {
		s.plan.again(&list[i], now, look)
	}
	if look {
		s.plan.looks = now.Add(lookPeriod)
	}
	s.plan.known, s.plan.read = true, now
	return nil
}

// stepOne does what is due for a batch, and plans it again.
func (s *Service) stepOne(ctx context.Context, t *task) error {
	defer s.lock(t.id)()
	b, err := s.store.Get(ctx, t.id)
	if errors.Is(err, ErrNotFound) {
		s.plan.remove(t.id)
		return nil
	}
	if err != nil {
		return err
	}
	if b.gone(s.now()) {
		return s.remove(ctx, &b)
	}
	if b, err = s.move(ctx, b); err != nil {
		return err
	}
	if t.settle {
		if b, err = s.settle(ctx, b, t); err != nil {
			return err
		}
	}
	if b, err = s.conclude(ctx, b); err != nil {
		return err
	}
	s.plan.set(b.ID, b.due(), b.active())
	return nil
}

// move starts the requests of a batch that was finalized, or ends those of one that was
// cancelled, and records how far it came.
func (s *Service) move(ctx context.Context, b Batch) (Batch, error) {
	for b.moving() {
		from, status := b.Moved, b.Status
		to := min(from+moveStep, len(b.Outcomes))
		found, err := s.moveSome(ctx, &b, from, to)
		if err != nil {
			return b, err
		}
		b, err = s.update(ctx, b.ID, func(b *Batch, now time.Time) error {
			for n, o := range found {
				b.note(n, o)
			}
			if b.Moved == from && b.Status == status {
				b.moved(to)
			}
			b.end(now)
			return nil
		})
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

// moveSome moves requests, and returns the outcomes of those that have ended.
func (s *Service) moveSome(ctx context.Context, b *Batch, from, to int) (map[int]Outcome, error) {
	kind := queue.OpStart
	if b.Status == Cancelled {
		kind = queue.OpPurge
	}
	var pending []int
	for n := from; n < to; n++ {
		if b.outcome(n) == Pending {
			pending = append(pending, n)
		}
	}
	found, started := map[int]Outcome{}, map[int]queue.Instant{}
	err := s.each(ctx, b, pending, func(n int) []queue.Op { return []queue.Op{{Ref: b.ref(n), Kind: kind}} }, func(n int, r *queue.Result) {
		switch {
		case errors.Is(r.Err, queue.ErrNotFound):
			found[n] = Expired
		case r.State.Status.Terminal():
			found[n] = outcomeOf(r.State.Status)
		case kind == queue.OpStart:
			started[n] = queue.At(b.Finalized).Add(r.State.Retain)
		}
	})
	if err != nil || kind != queue.OpStart {
		return found, err
	}
	return found, s.expire(ctx, b, started)
}

// expire sets when requests expire that were started.
func (s *Service) expire(ctx context.Context, b *Batch, at map[int]queue.Instant) error {
	var list []int
	for n := range at {
		list = append(list, n)
	}
	slices.Sort(list)
	return s.each(ctx, b, list, func(n int) []queue.Op {
		return []queue.Op{{Ref: b.ref(n), Kind: queue.OpSetTTL, Until: at[n]}}
	}, func(int, *queue.Result) {})
}

// settle writes the outcomes of requests that have ended.
func (s *Service) settle(ctx context.Context, b Batch, t *task) (Batch, error) {
	if b.Status == Draft && !t.all || b.Cleaned {
		return b, nil
	}
	look := t.ended
	if t.all {
		look = b.with(Pending)
	}
	look = slices.DeleteFunc(slices.Clone(look), func(n int) bool { return n >= len(b.Outcomes) })
	states, err := s.states(ctx, &b, look)
	if err != nil {
		return b, err
	}
	return s.update(ctx, b.ID, func(b *Batch, now time.Time) error {
		for _, n := range look {
			switch st, there := states[n]; {
			case !there && b.outcome(n) == Pending:
				b.note(n, Expired)
			case there && st.Status.Terminal():
				b.note(n, outcomeOf(st.Status))
			}
		}
		b.end(now)
		return nil
	})
}

// conclude sends the webhook of a batch that has ended, and deletes its results in time.
func (s *Service) conclude(ctx context.Context, b Batch) (Batch, error) {
	now := s.now()
	if b.active() {
		return b, nil
	}
	if b.unsent() && !b.Notice.Next.After(now) {
		var err error
		if b, err = s.notify(ctx, b, now); err != nil {
			return b, err
		}
	}
	if b.Cleaned || now.Before(b.Ended.Add(ResultRetention)) {
		return b, nil
	}
	if err := s.clean(ctx, &b); err != nil {
		return b, err
	}
	return s.update(ctx, b.ID, func(b *Batch, _ time.Time) error { b.Cleaned = true; return nil })
}

// clean deletes the jobs of a batch that have ended.
func (s *Service) clean(ctx context.Context, b *Batch) error {
	return s.each(ctx, b, b.with(Completed, Faulty, Stopped, TimedOut), func(n int) []queue.Op {
		return []queue.Op{{Ref: b.ref(n), Kind: queue.OpDelete}}
	}, func(int, *queue.Result) {})
}

// remove deletes a batch that is no longer kept, and its jobs first. The caller has locked the
// batch, or nobody else can change it.
func (s *Service) remove(ctx context.Context, b *Batch) error {
	if b.Status == Draft {
		s.discard(ctx, b, b.with(Pending, Reserved, Stopped))
	} else if err := s.clean(ctx, b); err != nil {
		return err
	}
	if err := s.store.Delete(ctx, b.ID); ignore(err, ErrNotFound) != nil {
		return fmt.Errorf("batches: delete %q: %w", b.ID, err)
	}
	s.plan.remove(b.ID)
	return nil
}
