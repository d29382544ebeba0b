package serverless

import (
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
	fleet  Fleet // nil: there is none
	url    func() string
	adopts bool  // keys of an earlier process are known
	meter  Meter // nil: there is none

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
	f.fleet, f.url, f.adopts, f.meter = o.Fleet, o.WorkerURL, len(o.WorkerSecret) > 0, o.Meter
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
		at = max(now, q.looked.Add(staffPause))
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

// staffEvents looks at the endpoints at which jobs came or ended.
func (s *Service) staffEvents(evs []Event) {
	if s.force.fleet == nil {
		return
	}
	now := s.now()
	for i := range evs {
		switch evs[i].Kind {
		case EventReady, EventDone:
			if at := s.force.rouse(evs[i].Endpoint, now); at != 0 {
				s.arm(at)
			}
		case EventGap:
			s.restaff()
		}
	}
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
