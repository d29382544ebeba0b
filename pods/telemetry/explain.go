package telemetry

import "time"

// An Explanation says why a pod does not run, or cannot start, in words for its user.
type Explanation struct {
	Text    string    // sentences; empty: the pod runs
	Since   time.Time // when it began to be so; zero: not known
	Tries   int       // failed calls to the host since then
	NextTry time.Time // of that call; zero: none is due
	Failure string    // what the last of these calls failed with, as the host says it: for operators
	// Hosts are those that were looked at for a place, in the order of placement: for operators.
	Hosts []Refusal
}

// A RefusalKind is why a host does not take a pod.
type RefusalKind string

// The kinds of refusals.
const (
	HostFits       RefusalKind = "room"       // it does, now
	HostCordoned   RefusalKind = "cordoned"   // an operator has cordoned it: Since
	HostFull       RefusalKind = "full"       // it has room when others end
	HostTooSmall   RefusalKind = "small"      // it has less than the pod needs, also when it is empty
	HostUnsuitable RefusalKind = "unsuitable" // it is elsewhere, of another tier, or has other hardware
)

// A Refusal says why a host does not take a pod.
type Refusal struct {
	Host  string
	Kind  RefusalKind
	Text  string
	Since time.Time // of a cordon, if known
}

// CallCounts are what this program has asked of the runtime of a host since it started. They
// count what CallEvent and the LoopEvents of LoopWatch report. A call for
// hosts that share a runtime counts for the first of them.
type CallCounts struct {
	Calls         int64
	Failed        int64
	WatchRestarts int64
	Last          CallFailure // the last call that failed
}

// A CallFailure is a call of a runtime that failed.
type CallFailure struct {
	At    time.Time // zero: there was none
	Call  string    // ensure, stop, remove, list or watch
	Error string    // at most 500 bytes
}
