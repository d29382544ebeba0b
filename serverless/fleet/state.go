package fleet

// A State is the state of a worker of the fleet.
type State uint8

// The states of a worker.
const (
	Requested State = iota // decided; the fleet has not been asked yet
	Launching              // the fleet is being asked
	Throttled              // the fleet had no capacity
	Starting               // the fleet has it; it has not asked for a job yet
	Idle                   // it has asked for jobs and has none
	Busy                   // it has a job
	Draining               // it gets no more jobs, and is stopped after its current ones
	Stopping               // the fleet must stop it; its process may still run
	Failed                 // its process ended by itself before its start was a success
	Lost                   // its process ended by itself later
	Ended                  // its process has ended; the fleet must forget it
	Gone                   // the fleet does not have it
)

var stateNames = [...]string{
	"requested", "launching", "throttled", "starting", "idle", "busy",
	"draining", "stopping", "failed", "lost", "ended", "gone",
}

// String returns the name of the state in lower case.
func (s State) String() string { return stateNames[s] }

// TakesJobs reports whether a worker takes jobs, or will when it has started.
func (s State) TakesJobs() bool { return s != Throttled && s < Draining }

// HasProcess reports whether a process of the worker runs or will run.
func (s State) HasProcess() bool { return s != Throttled && s < Failed }

// isLeaving reports whether the worker must go, whatever it does.
func (s State) isLeaving() bool { return s == Stopping || s >= Ended }

// hasExited reports whether the worker's process has ended.
func (s State) hasExited() bool { return s >= Failed }

// An event is something that happens to a worker.
type event uint8

// The events.
const (
	evAsk          event = iota // the fleet is asked to start it
	evAccepted                  // the fleet has it
	evRefused                   // the fleet has no capacity for it
	evStartFailed               // the fleet failed to start it, but may have it
	evAgain                     // there may be capacity now
	evSeenIdle                  // the registry has it, without a job
	evSeenBusy                  // the registry has it, with a job
	evSeenDraining              // the registry has it, with a job, and drains it
	evUnhealthy                 // it reported itself unhealthy
	evSilent                    // it is not heard from any more, or never was
	evCrashed                   // its process ended by itself before its start was a success
	evDied                      // its process ended by itself later
	evTerminated                // its process ended because it or its host was asked to
	evStop                      // it is not needed any more
	evKill                      // it must go at once
	evReap                      // its jobs were taken from it, and its log is not needed any more
	evRemoved                   // the fleet has stopped it and does not list it any more
	eventCount
)

var eventNames = [eventCount]string{
	"ask", "accepted", "refused", "startFailed", "again", "seenIdle", "seenBusy", "seenDraining",
	"unhealthy", "silent", "crashed", "died", "terminated", "stop", "kill", "reap", "removed",
}

func (e event) String() string { return eventNames[e] }

// An effect is what the table must do after a transition.
type effect uint8

// The effects.
const (
	doFail     effect = 1 << iota // count a failed start
	doBlame                       // count a failed start, unless the start was a success; remember the reason
	doDrain                       // drain it in the registry
	doUseStart                    // its use of compute begins
	doUseEnd                      // its use of compute ends
	doQuick                       // it gets a short time to stop
)

// next is the state machine of a worker. It returns the state after an event and the effects.
// It is pure. For an event that cannot happen in a state, ok is false, there are no effects
// and the state stays.
func (s State) next(e event) (to State, do effect, ok bool) {
	switch s {
	case Requested:
		return requestedNext(e)
	case Launching:
		return launchingNext(e)
	case Throttled:
		return throttledNext(e)
	case Starting, Idle, Busy, Draining:
		return s.runningNext(e)
	case Stopping:
		return stoppingNext(e)
	case Failed, Lost, Ended:
		return s.exitedNext(e)
	}
	return Gone, 0, e == evStop || e == evKill
}

func requestedNext(e event) (to State, do effect, ok bool) {
	switch e {
	case evAsk:
		return Launching, 0, true
	case evStop, evKill:
		return Gone, 0, true // the fleet was not asked yet
	}
	return Requested, 0, false
}

func throttledNext(e event) (to State, do effect, ok bool) {
	switch e {
	case evAgain:
		return Requested, 0, true
	case evStop, evKill:
		return Gone, 0, true
	}
	return Throttled, 0, false
}

// launchingNext handles a worker while the fleet is asked to start it. A call that was cut
// off is repeated. Before the answer, the worker may already join the registry, end, or be in
// the fleet's list.
func launchingNext(e event) (to State, do effect, ok bool) {
	switch e {
	case evAsk:
		return Launching, 0, true
	case evAccepted:
		return Starting, doUseStart, true
	case evRefused:
		return Throttled, doFail, true
	}
	return Launching.runningNext(e)
}

// runningNext handles a worker that the fleet probably has.
func (s State) runningNext(e event) (to State, do effect, ok bool) {
	switch e {
	case evAccepted, evRefused, evStartFailed:
		return s.answered(e)
	case evSeenIdle, evSeenBusy, evSeenDraining:
		return s.seen(e)
	case evUnhealthy:
		return Stopping, doBlame, true
	case evSilent:
		return Stopping, doBlame | doQuick, true
	case evCrashed:
		return Failed, doBlame | doUseEnd, true
	case evDied:
		return Lost, doBlame | doUseEnd, true
	case evTerminated:
		return Ended, doQuick | doUseEnd, true
	case evStop:
		return Stopping, 0, true
	case evKill:
		return Stopping, doQuick, true
	}
	return s, 0, false
}

// answered handles the fleet's answer to a start. The worker may have joined the registry
// before it.
func (s State) answered(e event) (to State, do effect, ok bool) {
	switch {
	case s == Starting: // a second answer
		return s, 0, false
	case e == evAccepted:
		return s, doUseStart, true
	}
	return Stopping, doFail | doQuick, true // stop what may exist of it
}

// seen handles a worker that the registry has. A draining worker stays draining, even if the
// registry has forgotten that.
func (s State) seen(e event) (to State, do effect, ok bool) {
	switch {
	case e == evSeenDraining:
		return Draining, 0, true
	case s == Draining:
		return Draining, doDrain, true
	case e == evSeenBusy:
		return Busy, 0, true
	}
	return Idle, 0, true
}

func stoppingNext(e event) (to State, do effect, ok bool) {
	switch e {
	case evAccepted: // it was stopped while the fleet was asked to start it
		return Stopping, doUseStart, true
	case evRefused:
		return Gone, doFail | doUseEnd, true
	case evStartFailed:
		return Stopping, doFail, true
	case evCrashed, evDied, evTerminated:
		return Ended, doUseEnd, true
	case evRemoved:
		return Gone, doUseEnd, true
	case evStop, evKill:
		return Stopping, 0, true
	}
	return Stopping, 0, false
}

// exitedNext handles a worker whose process has ended. It does not run again, whatever a late
// answer says. It keeps its state until its jobs are taken from it, because the state decides
// how.
func (s State) exitedNext(e event) (to State, do effect, ok bool) {
	switch e {
	case evReap:
		if s != Ended {
			return Ended, doQuick, true
		}
	case evRemoved:
		if s == Ended {
			return Gone, 0, true
		}
	case evAccepted, evRefused, evStartFailed, evStop, evKill:
		return s, 0, true
	}
	return s, 0, false
}
