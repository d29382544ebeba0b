package fleet

import (
	"time"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

const (
	// comeLimit is how long a process may run before it first asks for a job, unless
	// RUNPOD_INIT_TIMEOUT sets it. Loading a model takes time.
	comeLimit = 15 * time.Minute
	// HealthyLimit is how long a worker of a load-balancing endpoint may be without a health
	// check that succeeds (docs/decisions.md 44). Then it is replaced.
	HealthyLimit = 8 * time.Minute
	// stopGrace is how long a worker may take to stop.
	stopGrace = 30 * time.Second
	// killGrace is stopGrace for a worker that did not react, or has nothing to finish.
	killGrace = time.Second
	// steady is how long a worker must run without a job before its start counts as a
	// success.
	steady = time.Minute
	// keepFailed is how long the last failed worker is kept for its log: until after the next try.
	keepFailed = maxBackoff + time.Minute
)

// A worker is one worker of the fleet. Only this file uses its fields. The mutex of the table
// guards them.
type worker struct {
	key       workers.Key
	balances  bool // its endpoint has no queue
	adopted   bool // an earlier process started it
	state     State
	spec      WorkerSpec // until the fleet has accepted it
	reported  Instance   // the last report of the fleet
	requested queue.Instant
	refused   queue.Instant // since when there has been no room for it; 0: there was, or it was not tried
	joined    queue.Instant // since when the registry has it; 0: not yet
	served    bool          // it has finished a job
	exited    queue.Instant
	grace     time.Duration // for the stop
	call      call
	use       WorkerUse // reported to the meter; zero From: not started
}

// A call is the state of the calls of the fleet for one worker.
type call struct {
	underWay bool          // a call is in progress; there is one at a time
	stopped  bool          // the fleet has accepted the stop
	lists    uint64        // listings up to this number may not reflect the last call
	retry    queue.Instant // no call before this instant
}

// foundWorker returns a worker that an earlier process started.
func foundWorker(k workers.Key, now queue.Instant, exited bool) *worker {
	w := &worker{key: k, adopted: true, state: Starting, requested: now}
	if !exited { // an exited worker has no known end to bill
		w.use.From = now.Time()
	}
	return w
}

func newWorker(k workers.Key, spec WorkerSpec, now queue.Instant) *worker {
	w := &worker{key: k}
	w.request(spec, now)
	return w
}

// request sets the spec with which w is started.
func (w *worker) request(spec WorkerSpec, now queue.Instant) {
	w.spec, w.requested = spec, now
	w.use.Owner, w.use.Disk = spec.Owner, spec.Container.Disk
	w.reported = Instance{Endpoint: w.key.Endpoint, ID: w.key.ID, Release: spec.Release, Image: spec.Container.Image}
}

func (w *worker) name() workers.Key { return w.key }

func (w *worker) id() queue.WorkerID { return w.key.ID }

func (w *worker) current() State { return w.state }

func (w *worker) requestedAt() queue.Instant { return w.requested }

func (w *worker) exitedAt() queue.Instant { return w.exited }

// refusedAt returns since when w waits for room; 0: it does not.
func (w *worker) refusedAt() queue.Instant {
	if w.state != Throttled {
		return 0
	}
	return w.refused
}

// leavesRoom reports whether w, which was in the state from, has just given its place to others.
func (w *worker) leavesRoom(from State) bool {
	return from.HasProcess() && from != Requested && w.state >= Failed
}

// isLive reports whether w runs or will run.
func (w *worker) isLive() bool { return w.state.HasProcess() && w.state != Stopping }

// isObserved reports whether the state of w in the registry matters.
func (w *worker) isObserved() bool { return w.isLive() && w.state != Requested }

// apply makes a transition and returns its effects. ok is false for an event that cannot
// happen.
func (w *worker) apply(e event, now queue.Instant) (do effect, ok bool) {
	to, do, ok := w.state.next(e)
	if to.isLeaving() && !w.state.isLeaving() {
		w.grace = stopGrace
		if do&doQuick != 0 {
			w.grace = killGrace
		}
	}
	if to.hasExited() && !w.state.hasExited() {
		w.exited = now
	}
	switch {
	case e == evAccepted:
		w.spec, w.refused = WorkerSpec{}, 0
	case e == evRefused && w.refused == 0:
		w.refused = now
	}
	w.state = to
	return do, ok
}

// report records the fleet's report of w. It returns false for a report with nothing new, and
// for a late report after the process has ended.
func (w *worker) report(r Instance) (changed bool) {
	if w.state.hasExited() || r == w.reported && w.use.Worker != "" {
		return false
	}
	w.reported = r
	w.use.Endpoint, w.use.Worker = w.key.Endpoint, w.key.ID
	if r.GPUs != 0 || r.VCPUs != 0 {
		w.use.GPUType, w.use.GPUs, w.use.CPU, w.use.VCPUs = r.GPUType, r.GPUs, r.CPU, r.VCPUs
	}
	return true
}

// isUnborn reports whether the process of w, which the event ends, never ran. A call of the fleet that
// failed says nothing about it: its runtime may be away.
func (w *worker) isUnborn(e event) bool {
	return e == evCrashed && w.joined == 0 && w.reported.Started.IsZero()
}

// exitText says why w ended, as the fleet has reported it.
func (w *worker) exitText() string { return w.reported.Exit }

// vanish records that the fleet no longer has w, and that the end of w was not observed.
func (w *worker) vanish() { w.reported.Exit = "it is no longer there" }

// exit returns the event of a process that has ended. v is the worker in the registry, or
// nil.
func (w *worker) exit(v *workers.View, now queue.Instant) (event, cause) {
	w.served = w.served || v != nil && v.Served
	c := cause{w.reported.Exit, "a worker ended before it had done a job: " + w.reported.Exit}
	switch {
	case w.reported.Stopped:
		return evTerminated, c
	case w.isProven(now):
		return evDied, c
	}
	return evCrashed, c
}

// A cause says why the end of a worker counts as a failure.
type cause struct {
	end    string // what happened
	reason string // the same, as the reason of a back-off
}

// isProven reports whether the start of w was a success.
func (w *worker) isProven(now queue.Instant) bool {
	return w.served || w.joined != 0 && w.joined.Add(steady) <= now
}

// see returns the event that follows from the state of w in the registry. v is nil if the
// registry does not have w. ok is false if there is no event.
func (w *worker) see(v *workers.View, now queue.Instant, limit time.Duration) (e event, c cause, ok bool) {
	if v == nil {
		return w.miss(now, limit)
	}
	w.served = w.served || v.Served
	if v.Starting && w.joined == 0 && v.Unhealthy == "" && !v.Draining {
		return w.miss(now, limit) // it pings, and has not asked for a job
	}
	if w.joined == 0 {
		w.joined = now
	}
	switch {
	case v.Unhealthy != "":
		return evUnhealthy, cause{v.Unhealthy, "a worker is not healthy: " + v.Unhealthy}, true
	case v.Draining && !v.Busy():
		return evStop, cause{}, true
	case v.Draining:
		return evSeenDraining, cause{}, true
	case v.Busy():
		return evSeenBusy, cause{}, true
	}
	return evSeenIdle, cause{}, true
}

// miss is see for a worker that the registry does not have.
func (w *worker) miss(now queue.Instant, limit time.Duration) (e event, c cause, ok bool) {
	switch {
	case w.joined != 0:
		return evSilent, cause{"it was not heard of any more", "a worker was not heard of any more"}, true
	case w.reported.State == InstanceRunning && w.comesBy(limit) <= now:
		return evSilent, w.absence(limit), true
	}
	return 0, cause{}, false
}

// absence says why a running worker counts as one that never began to work.
func (w *worker) absence(limit time.Duration) cause {
	if w.balances {
		return cause{"its health check never succeeded", "a worker ran for " + limit.String() + " and its health check never succeeded"}
	}
	return cause{"it never came for a job", "a worker ran for " + limit.String() + " and never came for a job"}
}

// comesBy returns when a running worker must have asked for a job.
func (w *worker) comesBy(limit time.Duration) queue.Instant {
	return max(queue.At(w.reported.Started), w.requested).Add(limit)
}

// due returns when w must be checked although nothing has happened to it; 0: never.
func (w *worker) due(limit time.Duration, failing bool) queue.Instant {
	switch {
	case w.state == Throttled || w.state.isLeaving():
	case w.state.hasExited():
		return w.exited.Add(keepFailed)
	case w.joined == 0 && w.reported.State == InstanceRunning:
		return w.comesBy(limit)
	case w.joined != 0 && failing:
		return w.joined.Add(steady)
	}
	return 0
}

// belong records the type of the endpoint, and its owner if an earlier process started w.
func (w *worker) belong(e *endpoints.Endpoint) {
	w.balances = e.Balances()
	if w.use.Owner == "" {
		w.use.Owner, w.use.Disk = e.Owner, e.Container.Disk
	}
}

// startUse begins the use that is reported to the meter, once.
func (w *worker) startUse(now queue.Instant) {
	if w.use.From.IsZero() {
		w.use.From = now.Time()
	}
}

// endUse ends the use. ok is false if there is none or it has ended already.
func (w *worker) endUse(now queue.Instant) (u WorkerUse, ok bool) {
	if !w.isMetered() {
		return WorkerUse{}, false
	}
	w.use.To = now.Time()
	return w.use, true
}

// provesAfter reports whether w was started after the failures of b and shows that they are
// over.
func (w *worker) provesAfter(b *Backoff, now queue.Instant) bool {
	return b.Fails > 0 && w.requested > b.At && (w.isProven(now) || b.NoCapacity && w.isAccepted())
}

// isMetered reports whether w uses compute and the fleet has reported how much.
func (w *worker) isMetered() bool {
	return w.use.Worker != "" && !w.use.From.IsZero() && w.use.To.IsZero()
}

// appendUse appends the use of w, if it goes on.
func (w *worker) appendUse(uses []WorkerUse) []WorkerUse {
	if w.isMetered() {
		uses = append(uses, w.use)
	}
	return uses
}

// isAccepted reports whether the fleet has confirmed that it has w.
func (w *worker) isAccepted() bool { return !w.use.From.IsZero() }

// An order is a call of the fleet to make.
type order struct {
	worker workers.Key
	stop   bool // false: start it
	spec   WorkerSpec
	grace  time.Duration
}

// nextOrder returns the call of the fleet to make for w now. later is when to ask again; 0:
// when something happens.
func (w *worker) nextOrder(now queue.Instant) (o order, ok bool, later queue.Instant) {
	starts := w.state == Requested || w.state == Launching
	stops := (w.state == Stopping || w.state == Ended) && !w.call.stopped
	switch {
	case w.call.underWay || !starts && !stops:
		return order{}, false, 0
	case w.call.retry > now:
		return order{}, false, w.call.retry
	case stops:
		return order{worker: w.key, stop: true, grace: w.grace}, true, 0
	}
	return order{worker: w.key, spec: w.spec}, true, 0
}

func (w *worker) beginCall() { w.call.underWay = true }

func (w *worker) endCall(lists uint64) { w.call.underWay, w.call.lists = false, lists }

func (w *worker) stopAccepted() { w.call.stopped = true }

func (w *worker) retryAt(at queue.Instant) { w.call.retry = at }

// isMissing reports whether listing number n, which does not have w, should have it.
func (w *worker) isMissing(n uint64) bool {
	return w.knownBy(n) && w.state >= Starting && w.state <= Draining
}

// isStopped reports whether the fleet has accepted to stop w and may still list it.
func (w *worker) isStopped() bool { return w.call.stopped && w.state != Gone }

// knownBy reports whether listing number n reflects the last call for w.
func (w *worker) knownBy(n uint64) bool { return !w.call.underWay && w.call.lists < n }

// jobsEnd returns the operation that takes the jobs from w. ok is false if w keeps its jobs.
func (w *worker) jobsEnd() (k queue.OpKind, ok bool) {
	switch w.state {
	case Failed, Lost:
		return queue.OpWorkerLost, true
	case Ended, Gone:
		return queue.OpRelease, true
	}
	return 0, false
}

// view returns w as input of Decide.
func (w *worker) view(v *workers.View, version int) WorkerView {
	view := WorkerView{ID: w.key.ID, State: w.state, Started: w.requested, Stale: w.reported.Release != version}
	if v != nil {
		view.IdleSince = v.IdleSince
	}
	return view
}

// status returns w as it is shown to users.
func (w *worker) status(b Backoff) Status {
	s := Status{Instance: w.reported, State: w.state}
	s.Endpoint, s.ID = w.key.Endpoint, w.key.ID
	switch {
	case w.state == Failed || w.state == Lost:
		s.Reason, s.Hidden = w.reported.Exit, b.Fails == 0
	case w.state == Throttled:
		s.Reason = b.Reason
	default:
		s.Hidden = w.state >= Stopping
	}
	return s
}
