package fleet

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
	"github.com/podyard/podyard/serverless/workers"
)

// Queue is the part of a queue that a Scaler uses.
type Queue interface {
	Stats(ctx context.Context, now queue.Instant, endpoint string, rules *queue.Rules) (queue.Stats, error)
}

// Endpoints is the part of a store of endpoints that a Scaler uses.
type Endpoints interface {
	Get(ctx context.Context, id string) (*endpoints.Endpoint, error)
	List(ctx context.Context) iter.Seq2[*endpoints.Endpoint, error]
}

// Registry has the workers that have asked for jobs, or are healthy where the endpoint has no
// queue, whoever started them. Its methods are
// safe for concurrent use. Except Release, they do not block.
type Registry interface {
	// List returns the workers of an endpoint, ordered by id.
	List(endpoint string) []workers.View
	// View returns one worker. It reports false for an unknown worker.
	View(k workers.Key) (workers.View, bool)
	// Drain makes a worker get no more jobs. It reports false for an unknown worker.
	Drain(k workers.Key) bool
	// Release takes the jobs from a worker, if it is known. kind is OpWorkerLost if the
	// worker lost them, and OpRelease if the worker is not at fault. why says how it ended, and
	// users of the jobs read it.
	Release(ctx context.Context, k workers.Key, kind queue.OpKind, why string) error
	// Remove forgets a worker, if it is known.
	Remove(k workers.Key)
	// Unresponsive returns the workers that keep running a job that they must stop.
	Unresponsive(now queue.Instant) []workers.Key
}

// A Balancer sends requests to the workers of load-balancing endpoints. Sync does not block.
type Balancer interface {
	// Sync takes the workers that the fleet has for e. What it begins ends with ctx.
	Sync(ctx context.Context, e *endpoints.Endpoint, list []Status)
}

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// Options configures a Scaler. A field without a stated default is required.
type Options struct {
	// Fleet starts and stops workers. Default: none; the scaler then does nothing.
	Fleet     Fleet
	Queue     Queue
	Endpoints Endpoints
	Registry  Registry
	// Balancer gets the workers of load-balancing endpoints. Default: none.
	Balancer Balancer
	// Clock is the clock of decisions. Default: the system's.
	Clock Clock
	// Wake asks the owner of the scaler to call Step at the given instant or earlier. It must not
	// block.
	Wake func(at queue.Instant)
	// NewID returns a new worker id.
	NewID func() (queue.WorkerID, error)
	// Env returns the environment of a new worker. url is the base URL of the jobs API. It must
	// not block.
	Env func(e *endpoints.Endpoint, id queue.WorkerID, url string) map[string]string
	// URL returns the base URL of the jobs API for workers. While it is empty, no worker is
	// started.
	URL func() string
	// Adopt keeps the workers of an earlier process. Default: they are replaced.
	Adopt bool
	// Deterministic makes the scaler depend only on the order of calls and on the clock: Step
	// calls the fleet itself, one call after another, and there are no periodic checks. It is
	// for a program that moves the clock itself. Queue, endpoints and fleet must be in this
	// process, lose no event and not block.
	Deterministic bool
	// Lead says for which endpoints this server decides, where several servers have the same
	// endpoints. It needs Adopt. Default: for all.
	Lead Lead
	// Spent returns why the endpoints of an owner may have no workers, in words for users, and until
	// when unless Resync is called before; empty: they may. Default: all may.
	Spent func(ctx context.Context, owner string) (why string, until time.Time, err error)
	// Meter records the use of workers. Default: none.
	Meter Meter
	// Observer gets what happens to the workers. Default: none.
	Observer telemetry.Observer
	// Logger gets the failures of the fleet, and why workers do not start. Default: nothing is
	// logged.
	Logger *slog.Logger
}

// A Scaler keeps the number of workers of every endpoint at what Decide says. It works in
// Step, which must not run concurrently with itself. The other methods are safe for
// concurrent use.
type Scaler struct {
	o     Options
	table *table
	pace  pace
	calls sync.WaitGroup    // calls of the fleet in progress
	seen  map[string][]byte // by endpoint: what the server that decides has shown
}

// New returns a Scaler. It starts no goroutine.
func New(o Options) *Scaler {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := pace{o.Deterministic}
	t := newTable(p, o.Meter != nil, o.Observer != nil, o.Registry.View)
	if o.Lead != nil {
		t.leads = o.Lead.Leads
	}
	return &Scaler{o: o, pace: p, table: t}
}

func (s *Scaler) now() queue.Instant { return queue.At(s.o.Clock.Now()) }

// Manages reports whether the fleet has the workers of e.
func (s *Scaler) Manages(e *endpoints.Endpoint) bool {
	if s.o.Fleet == nil || e.Container.Image == "" {
		return false
	}
	some, ok := As[WorkerImages](s.o.Fleet)
	return !ok || some.RunsImage(e.Container.Image)
}

// Wake makes Step handle an endpoint soon, because something has happened there.
func (s *Scaler) Wake(endpoint string) {
	if s.o.Fleet == nil {
		return
	}
	if at := s.table.wake(endpoint, s.now()); at != 0 {
		s.o.Wake(at)
	}
}

// Resync makes Step handle all endpoints soon.
func (s *Scaler) Resync() {
	if s.o.Fleet == nil {
		return
	}
	now := s.now()
	s.table.resync(now)
	s.o.Wake(now)
}

// Events wakes the endpoints whose jobs became ready or ended.
func (s *Scaler) Events(events []queue.Event) {
	for i := range events {
		switch events[i].Kind {
		case queue.EventReady, queue.EventDone:
			s.Wake(events[i].Endpoint)
		case queue.EventGap:
			s.Resync()
		}
	}
}

// Step handles the endpoints that have changed or are due. It returns the instant of the next
// call; 0: when Options.Wake is called. Calls of the fleet run in goroutines that end with
// ctx; a later Step sees their results.
func (s *Scaler) Step(ctx context.Context, now queue.Instant) (next queue.Instant) {
	if s.o.Fleet == nil {
		return 0
	}
	s.replaceUnresponsive(ctx, now)
	if next = s.table.nextStep(); next > now {
		return unlessNever(next)
	}
	s.listFleet(ctx, now)
	s.table.offerRoom(now)
	if err := s.reconcile(ctx, now); err != nil && ctx.Err() == nil {
		s.o.Logger.Error("scaling failed", "err", err)
		s.observeError(err)
	}
	for _, o := range s.table.beginCalls(now) {
		s.goCall(func() { s.call(ctx, o) })
	}
	s.tellMeter(ctx, false)
	for _, e := range s.table.takeEvents() {
		s.o.Observer.Worker(e)
	}
	for _, x := range s.table.surprises() {
		s.o.Logger.Error("an event that the state of a worker does not allow was ignored",
			"endpoint", x.worker.Endpoint, "worker", x.worker.ID, "state", x.state, "event", x.event)
	}
	return unlessNever(s.table.settle(now))
}

// unlessNever returns i, and 0 for never.
func unlessNever(i queue.Instant) queue.Instant {
	if i == never {
		return 0
	}
	return i
}

// Close waits for the running calls of the fleet, whose context must have ended, and makes
// the last call of the meter.
func (s *Scaler) Close(ctx context.Context) {
	s.calls.Wait()
	s.tellMeter(ctx, true)
}

// Measure makes an extra call of the meter with the current workers. It is for a program with
// a Deterministic scaler; it must not be called during Step.
func (s *Scaler) Measure(ctx context.Context) { s.tellMeter(ctx, true) }

func (s *Scaler) tellMeter(ctx context.Context, last bool) {
	now := s.now()
	uses, ended, ok := s.table.beginMeter(now, last)
	if !ok {
		return
	}
	err := s.o.Meter.Observe(ctx, now.Time(), uses)
	s.table.endMeter(ended, err == nil)
	if err != nil && ctx.Err() == nil {
		s.o.Logger.Error("metering workers failed", "err", err)
	}
}

// A Status is a snapshot of a worker of the fleet.
type Status struct {
	Instance // the last report of the fleet
	State    State
	Reason   string // text for users; set if Throttled, Failed or Lost
	Hidden   bool   // being removed; not shown to users
}

// Workers returns the fleet's workers of an endpoint, ordered by id.
func (s *Scaler) Workers(endpoint string) []Status { return s.table.statuses(endpoint) }

// Decisions returns the recent decisions for an endpoint, oldest first: at most 100, one for
// each change.
func (s *Scaler) Decisions(endpoint string) []Decision { return s.table.decisions(endpoint) }

// ColdStarts returns the last starts of workers of an endpoint, oldest first: at most MaxColdStarts.
func (s *Scaler) ColdStarts(endpoint string) []ColdStart { return s.table.coldStarts(endpoint) }

// Explain returns sentences for users that say why a job of an endpoint has waited since the
// given instant: the last decision after it, and the failures after it.
func (s *Scaler) Explain(endpoint string, since queue.Instant) []string {
	return s.table.explain(endpoint, since, s.now())
}

// Log yields the output of a worker, if the fleet keeps it. known reports whether the fleet
// has the worker, including an ended worker that is kept for its log. kept reports whether
// there is a log.
func (s *Scaler) Log(ctx context.Context, k workers.Key, q LogQuery) (lines iter.Seq2[LogLine, error], known, kept bool) {
	if !s.table.has(k) {
		return nil, false, false
	}
	logs, ok := As[WorkerLogs](s.o.Fleet)
	if !ok {
		return nil, true, false
	}
	return logs.WorkerLogs(ctx, k.Endpoint, k.ID, q), true, true
}
