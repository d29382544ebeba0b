package serverless

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/problem"
)

// How often things are looked at again when nothing hints at a change.
const (
	resyncPeriod = 10 * time.Second       // all endpoints, and all that the fleet has
	staffPeriod  = time.Second            // an endpoint with workers, or with jobs that wait
	staffPause   = 100 * time.Millisecond // one endpoint at most so often, however many jobs come
)

const (
	// endGrace is how long a worker that is to end may take.
	endGrace = 30 * time.Second
	// killGrace is for one that did not react when it was told to.
	killGrace = time.Second
	// startLimit is how long a process may run before it first comes for a job, if its
	// RUNPOD_INIT_TIMEOUT does not say. A model takes its time.
	startLimit = 15 * time.Minute
	// keepEnded is how long the last worker that ended before it had done a job is kept,
	// for its log.
	keepEnded = 5 * time.Minute
	// steady is how long a worker without a job has to be there before its start counts as
	// a success.
	steady = time.Minute
	// fleetCalls is how many calls of the fleet are under way at once.
	fleetCalls = 256
)

// A workforce is the workers of the endpoints that have an image: what was asked of the
// fleet, what the fleet says, and what was decided. Its mutex is held over memory only.
type workforce struct {
	fleet    Fleet // nil: there is none
	lockstep bool
	url      func() string
	adopts   bool  // keys of an earlier process are known
	meter    Meter // nil: there is none

	mu     sync.Mutex
	squads map[string]*squad
	fresh  map[string]bool // endpoints that something happened at and that have no squad
	next   Instant         // of the earliest thing to do
	resync Instant

	known   bool // the fleet has said what it has
	listing bool
	listAt  Instant
	lists   uint64 // how many were begun
	calls   int

	ended   []WorkerUse // what the meter was not told of yet
	told    Instant     // when it was told last
	meterAt Instant     // when to tell it next; 0: when something begins or ends
}

// A squad is the workers of one endpoint.
type squad struct {
	endpoint  string
	plain     bool // the endpoint has no image, or is gone
	version   int
	backoff   Backoff
	hands     map[WorkerID]*hand
	log       []Decision // the last ones, oldest first
	lastEnd   string     // how the last worker that ended by itself did
	lastEndAt Instant
	looked    Instant
	next      Instant // when to look again; 0: when something happens
	spare     lows    // of how many workers had no job from one look to the next
}

// A hand is one worker of the fleet.
type hand struct {
	memberKey
	spec    WorkerSpec // until the fleet has accepted it
	seen    FleetWorker
	ordered Instant // when it was asked for, or found
	retry   Instant // no call of the fleet before

	calling  bool   // the fleet is being asked, and nothing else is asked meanwhile
	asked    bool   // it may have it
	accepted bool   // the fleet has it
	noRoom   bool   // the fleet has no place for it
	known    uint64 // lists up to this one may not know of the last call
	ended    bool
	endedAt  Instant
	blame    bool // it ended by itself: neither it nor its host was asked to
	lost     bool // its jobs were taken away after that
	failed   bool // it has counted as a failure
	stop     bool // it is to go
	grace    time.Duration
	stopped  bool // the fleet has accepted that
	gone     bool // the fleet does not have it any more

	met    Instant // since when the crew knows it; 0: it has not come yet
	served bool

	use WorkerUse // what the meter is told; no From: nothing yet
}

func (f *workforce) init(o *Options) {
	f.fleet, f.url, f.adopts, f.meter, f.lockstep = o.Fleet, o.WorkerURL, len(o.WorkerSecret) > 0, o.Meter, o.Lockstep
	if f.url == nil {
		f.url = func() string { return "" }
	}
	f.squads = map[string]*squad{}
	f.fresh = map[string]bool{}
	f.next = 1
	f.turn() // what an earlier process left may be gone
}

// squad is that of the endpoint, made if it is not there.
func (f *workforce) squad(endpoint string) *squad {
	q := f.squads[endpoint]
	if q == nil {
		q = &squad{endpoint: endpoint, hands: map[WorkerID]*hand{}}
		f.squads[endpoint] = q
	}
	return q
}

// rouse has the endpoint looked at soon, and says when; 0 for one without workers.
func (f *workforce) rouse(endpoint string, now Instant) Instant {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := now
	switch q := f.squads[endpoint]; {
	case q == nil:
		f.fresh[endpoint] = true
	case q.plain && len(q.hands) == 0:
		return 0
	default:
		at = max(now, q.looked.Add(f.pause()))
		q.next = sooner(q.next, at)
	}
	f.next = sooner(f.next, at)
	return at
}

// review has all endpoints looked at: one has changed.
func (f *workforce) review(now Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resync, f.next = 0, now
}

// restaff has the workers follow a change of an endpoint.
func (s *Service) restaff() {
	if s.force.fleet != nil {
		s.force.review(s.now())
	}
	s.arm(s.now())
}

// Restaff has the scaler look at all endpoints soon: what the fleet can run has changed.
func (s *Service) Restaff() { s.restaff() }

// rouse has the scaler look at an endpoint soon: something has happened there.
func (s *Service) rouse(endpoint string) {
	if s.force.fleet == nil {
		return
	}
	if at := s.force.rouse(endpoint, s.now()); at != 0 {
		s.arm(at)
	}
}

// staffed reports whether the workers of e are the fleet's.
func (s *Service) staffed(e *Endpoint) bool {
	if s.force.fleet == nil || e.Container.Image == "" {
		return false
	}
	some, ok := asFleet[WorkerImages](s.force.fleet)
	return !ok || some.RunsImage(e.Container.Image)
}

// staffEvents looks at the endpoints at which jobs came or ended.
func (s *Service) staffEvents(evs []Event) {
	if s.force.fleet == nil {
		return
	}
	for i := range evs {
		switch evs[i].Kind {
		case EventReady, EventDone:
			s.rouse(evs[i].Endpoint)
		case EventGap:
			s.restaff()
		}
	}
}

// never is an instant that does not come.
const never Instant = math.MaxInt64

// unlessNever is i, and 0 in place of never.
func (i Instant) unlessNever() Instant {
	if i == never {
		return 0
	}
	return i
}

// pause is between two looks at an endpoint.
func (f *workforce) pause() time.Duration {
	if f.lockstep {
		return 0 // what follows at one instant is to be done at it
	}
	return staffPause
}

// patrol is when to look again although nothing has happened: after d, or never.
func (f *workforce) patrol(now Instant, d time.Duration) Instant {
	if f.lockstep {
		return never
	}
	return now.Add(d)
}

// byID is the workers in the order of their ids, so that what is done to one after another
// is the same every time.
func (q *squad) byID() []*hand {
	return slices.SortedFunc(maps.Values(q.hands), func(a, b *hand) int { return cmp.Compare(a.id, b.id) })
}

// due is when a worker is to be looked at although nothing has happened to it; 0: never.
func (q *squad) due(now Instant, limit time.Duration) (next Instant) {
	for _, h := range q.hands {
		var at Instant
		switch {
		case h.stop || h.noRoom:
		case h.ended:
			at = h.endedAt.Add(keepEnded)
		case h.met == 0 && h.seen.State == FleetUp:
			at = h.initBy(limit)
		case h.met != 0 && q.backoff.Fails > 0:
			at = h.met.Add(steady)
		}
		if at > now {
			next = sooner(next, at)
		}
	}
	return next
}

// initBy is when a worker that runs has to have come for a job.
func (h *hand) initBy(limit time.Duration) Instant {
	return max(At(h.seen.Started), h.ordered).Add(limit)
}

// live is how many workers are there or on their way.
func (q *squad) live() (n int) {
	for _, h := range q.hands {
		if !h.noRoom && !h.ended && !h.stop {
			n++
		}
	}
	return n
}

func (h *hand) order(spec WorkerSpec, now Instant) {
	h.spec, h.ordered, h.noRoom, h.failed = spec, now, false, false
	h.use.Owner, h.use.Disk = spec.Owner, spec.Container.Disk
	h.seen = FleetWorker{Endpoint: h.endpoint, ID: h.id, Release: spec.Release, Image: spec.Container.Image}
}

// end has the worker go.
func (h *hand) end(grace time.Duration) {
	if !h.stop {
		h.stop, h.grace = true, grace
	}
}

func (s *Service) newWorkerID() (WorkerID, error) {
	w, err := id.New(s.rand)
	return WorkerID(w), err
}

// maxDecisions is how many decisions are kept of an endpoint.
const maxDecisions = 100

// note keeps d if it differs from the last one.
func (q *squad) note(d Decision) {
	if n := len(q.log); n > 0 {
		last := q.log[n-1]
		if len(d.Stop)+len(d.Drain)+d.Start == 0 && d.Want == last.Want && d.Reason == last.Reason {
			return
		}
		if n == maxDecisions {
			q.log = append(q.log[:0], q.log[1:]...)
		}
	}
	q.log = append(q.log, d)
}

// fail counts the failure of a worker, once; each try to find room counts.
func (q *squad) fail(h *hand, now Instant, noRoom bool, reason string) {
	if h.failed && !noRoom {
		return
	}
	h.failed = true
	q.backoff = q.backoff.After(now, h.ordered, noRoom, reason)
}

// detail is what a user may read of err.
func detail(err error) string { return problem.Of(err).Detail }
