package balance

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// Times of docs/decisions.md 44.
const (
	HoldTime  = 2 * time.Minute                // for which a request waits for a worker
	DrainTime = 5*time.Minute + 30*time.Second // for which requests in flight may continue on a worker that is to end
	DeadTime  = fleet.HealthyLimit             // without a health check that succeeds, until a worker is replaced
)

// ErrNoWorkers is returned for a request that got no worker in time.
var ErrNoWorkers = problem.New(problem.BadRequest, "no workers available")

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// Options configures a Balancer. All fields are required, except those with a default.
type Options struct {
	// Clock is the clock of health checks and waits. Default: the system's.
	Clock Clock
	// Prober checks the health of workers. Default: none; only local workers get requests.
	Prober Prober
	// Address returns the address of a TCP port of a worker that the fleet has started. ok is
	// false while it is not known. It must not block or call the Balancer.
	Address func(k workers.Key, port int) (address string, ok bool)
	// Changed is called when the number of requests of an endpoint or the state of one of its
	// workers has changed. It must not block.
	Changed func(endpoint string)
	// RunCheck runs a check of a worker, at once in another goroutine or later: for a program that
	// moves the clock itself. It must not block. Default: in a goroutine of its own.
	RunCheck func(check func())
}

// A Balancer has the workers of load-balancing endpoints. It is safe for concurrent use.
// Except Acquire, Leave and Close, its methods do not block.
type Balancer struct {
	o Options

	mu      sync.Mutex
	groups  map[string]*group // by endpoint
	closed  bool
	running sync.WaitGroup // checks
}

// New returns a Balancer.
func New(o Options) *Balancer {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.RunCheck == nil {
		o.RunCheck = func(check func()) { go check() }
	}
	return &Balancer{o: o, groups: map[string]*group{}}
}

func (b *Balancer) now() queue.Instant { return queue.At(b.o.Clock.Now()) }

// A group has the workers of one endpoint, and the requests that wait for one.
type group struct {
	endpoint string
	members  map[queue.WorkerID]*member
	waiting  []*waiter
	running  int    // requests in flight, those of workers that are gone included
	turn     uint64 // counts the choices
}

// A waiter is a request that waits for a worker.
type waiter struct {
	affinity Affinity
	since    queue.Instant
	got      chan grant // with room for one
}

// A grant ends a wait.
type grant struct {
	lease *Lease
	err   error
}

// An Affinity says which worker a request prefers. The zero value prefers none.
type Affinity struct {
	Worker queue.WorkerID
	Strict bool // no other worker will do
}

// group returns the workers of an endpoint, and creates the entry if there is none.
func (b *Balancer) group(endpoint string) *group {
	g := b.groups[endpoint]
	if g == nil {
		g = &group{endpoint: endpoint, members: map[queue.WorkerID]*member{}}
		b.groups[endpoint] = g
	}
	return g
}

// tidy forgets a group without anything in it.
func (b *Balancer) tidy(g *group) {
	if len(g.members)+len(g.waiting)+g.running == 0 {
		delete(b.groups, g.endpoint)
	}
}

// Acquire returns a lease on a worker for one request. Without a worker in rotation it waits
// until ctx ends, and then returns ErrNoWorkers. A strict affinity to a worker that is gone or
// drains fails at once. If the endpoint is deleted meanwhile, the error is
// endpoints.ErrNotFound.
func (b *Balancer) Acquire(ctx context.Context, endpoint string, a Affinity) (*Lease, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, ErrNoWorkers
	}
	g := b.group(endpoint)
	if m := g.choose(a); m != nil {
		l := b.lease(g, m)
		b.mu.Unlock()
		b.o.Changed(endpoint)
		return l, nil
	}
	if g.isGone(a) {
		b.tidy(g)
		b.mu.Unlock()
		return nil, ErrNoWorkers
	}
	w := &waiter{affinity: a, since: b.now(), got: make(chan grant, 1)}
	g.waiting = append(g.waiting, w)
	b.mu.Unlock()
	b.o.Changed(endpoint)
	select {
	case got := <-w.got:
		return got.lease, got.err
	case <-ctx.Done():
		return b.giveUp(g, w)
	}
}

// giveUp ends a wait, unless it has just succeeded.
func (b *Balancer) giveUp(g *group, w *waiter) (*Lease, error) {
	b.mu.Lock()
	i := slices.Index(g.waiting, w)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		b.tidy(g)
	}
	b.mu.Unlock()
	if i < 0 {
		got := <-w.got
		return got.lease, got.err
	}
	b.o.Changed(g.endpoint)
	return nil, ErrNoWorkers
}

// choose returns the worker for a request, or nil if it has to wait.
func (g *group) choose(a Affinity) (best *member) {
	if a.Worker != "" {
		if m := g.members[a.Worker]; m != nil && m.takes() {
			return m
		}
		if a.Strict {
			return nil
		}
	}
	for _, m := range g.members {
		if m.takes() && (best == nil || m.before(best)) {
			best = m
		}
	}
	return best
}

// isGone reports whether a never gets its worker.
func (g *group) isGone(a Affinity) bool {
	if !a.Strict {
		return false
	}
	m := g.members[a.Worker]
	return m == nil || m.phase != serving
}

// dispatch gives workers to the requests that wait, in their order.
func (b *Balancer) dispatch(g *group) {
	g.waiting = slices.DeleteFunc(g.waiting, func(w *waiter) bool {
		m := g.choose(w.affinity)
		switch {
		case m != nil:
			w.got <- grant{lease: b.lease(g, m)}
		case g.isGone(w.affinity):
			w.got <- grant{err: ErrNoWorkers}
		default:
			return false
		}
		return true
	})
}

// A Demand is the work of an endpoint.
type Demand struct {
	Waiting int
	Running int           // requests in flight
	Oldest  queue.Instant // since when the first of Waiting has waited; 0: none
}

// Demand returns the work of an endpoint; zero for an endpoint that does not balance.
func (b *Balancer) Demand(endpoint string) (d Demand) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[endpoint]
	if g == nil {
		return d
	}
	d.Waiting, d.Running = len(g.waiting), g.running
	if d.Waiting > 0 {
		d.Oldest = g.waiting[0].since
	}
	return d
}

// Busy returns the number of workers of an endpoint that have a request.
func (b *Balancer) Busy(endpoint string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.groups[endpoint]; g != nil {
		for _, m := range g.members {
			if len(m.leases) > 0 {
				n++
			}
		}
	}
	return n
}

// Forget ends the waits for an endpoint that is deleted.
func (b *Balancer) Forget(endpoint string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[endpoint]
	if g == nil {
		return
	}
	for _, w := range g.waiting {
		w.got <- grant{err: endpoints.ErrNotFound}
	}
	g.waiting = nil
	b.tidy(g)
}

// List returns the workers of an endpoint that have been healthy, ordered by id.
func (b *Balancer) List(endpoint string) (list []workers.View) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[endpoint]
	if g == nil {
		return nil
	}
	for _, m := range g.members {
		if m.isProven() {
			list = append(list, m.view(b.now()))
		}
	}
	slices.SortFunc(list, func(a, c workers.View) int { return cmp.Compare(a.ID, c.ID) })
	return list
}

// View returns one worker. It reports false for a worker that has never been healthy.
func (b *Balancer) View(k workers.Key) (workers.View, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.find(k); m != nil && m.isProven() {
		return m.view(b.now()), true
	}
	return workers.View{}, false
}

func (b *Balancer) find(k workers.Key) *member {
	if g := b.groups[k.Endpoint]; g != nil {
		return g.members[k.ID]
	}
	return nil
}

// Drain makes a worker get no more requests. After DrainTime its requests are cancelled. It
// reports false for a worker that has never been healthy.
func (b *Balancer) Drain(k workers.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.find(k)
	if m == nil || !m.isProven() {
		return false
	}
	b.drain(m)
	return true
}

func (b *Balancer) drain(m *member) {
	if m.phase != serving {
		return
	}
	m.phase = draining
	m.stopTimer = b.o.Clock.AfterFunc(b.o.Clock.Now().Add(DrainTime), func() {
		for _, end := range b.endings(m) {
			end()
		}
	})
	b.dispatch(m.group) // strict waits for m fail
}

// endings returns what ends the requests of a worker, and makes later ones end at once.
func (b *Balancer) endings(m *member) (ends []func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.phase = over
	for l := range m.leases {
		if l.end != nil {
			ends = append(ends, l.end)
			l.end = nil
		}
	}
	return ends
}

// Remove forgets a worker, if it is known. Its requests are cancelled.
func (b *Balancer) Remove(k workers.Key) {
	b.mu.Lock()
	m := b.find(k)
	if m != nil {
		m.phase = draining
		delete(m.group.members, k.ID)
		if m.stopTimer != nil {
			m.stopTimer()
		}
		m.checks.end()
		b.dispatch(m.group)
		b.tidy(m.group)
	}
	b.mu.Unlock()
	if m == nil {
		return
	}
	for _, end := range b.endings(m) {
		end()
	}
}

// Sync takes the workers of an endpoint from the scaler: it begins to check new ones, and
// forgets those that have ended or are being stopped. Checks end with ctx.
func (b *Balancer) Sync(ctx context.Context, e *endpoints.Endpoint, list []fleet.Status) {
	b.mu.Lock()
	g := b.groups[e.ID]
	if b.closed || g == nil && !e.Balances() {
		b.mu.Unlock()
		return
	}
	var gone []workers.Key
	alive := map[queue.WorkerID]bool{}
	for i := range list {
		if s := &list[i]; s.State.HasProcess() && s.State != fleet.Stopping {
			alive[s.ID] = true
			if e.Balances() && s.Instance.State == fleet.InstanceRunning && b.find(workers.Key{Endpoint: e.ID, ID: s.ID}) == nil {
				b.add(ctx, e, s)
			}
		}
	}
	if g != nil {
		for id, m := range g.members {
			if !m.isLocal() && !alive[id] {
				gone = append(gone, m.key)
			}
		}
	}
	b.mu.Unlock()
	for _, k := range gone {
		b.Remove(k)
	}
}

// add begins to check a worker of the fleet.
func (b *Balancer) add(ctx context.Context, e *endpoints.Endpoint, s *fleet.Status) {
	now := b.now()
	m := newMember(b.group(e.ID), s.ID, now)
	m.listener = e.Listener()
	if b.o.Prober == nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	m.checks = &checks{since: now, stop: cancel, run: func() { b.check(ctx, m) }}
	b.wake(m)
}

// Close ends all checks, waits and requests.
func (b *Balancer) Close() {
	b.mu.Lock()
	b.closed = true
	var all []workers.Key
	for _, g := range b.groups {
		for _, m := range g.members {
			all = append(all, m.key)
		}
		for _, w := range g.waiting {
			w.got <- grant{err: ErrNoWorkers}
		}
		g.waiting = nil
	}
	b.mu.Unlock()
	for _, k := range all {
		b.Remove(k)
	}
	b.running.Wait()
}
