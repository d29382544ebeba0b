// Package telemetry has what a service of pods reports of its work to whoever makes metrics or
// traces of it, and what it explains to people. Package prometheus below backend is an [Observer].
package telemetry

import "time"

// An Observer gets what has happened to pods and what was asked of their hosts. Its methods are
// called after the commit and outside locks, by many goroutines at once. They must not block.
type Observer interface {
	Pod(PodEvent)
	Call(CallEvent)
	Loop(LoopEvent)
}

// A PodChange is what has happened to a pod.
type PodChange uint8

// The changes of a pod.
const (
	Started PodChange = iota // its container is healthy for the first time in this run: Took
	Ended                    // its container has ended: Cause
)

// The causes of an end.
const (
	ByUser  = "user"  // stopped by its user
	ByExit  = "exit"  // its program has ended with code 0
	ByError = "error" // its program has ended with another code
	ByOOM   = "oom"   // killed for its memory
	ByImage = "image" // its container could not be made
	ByHost  = "host"  // stopped with its host, or gone from it
)

// A PodEvent is a change of one pod.
type PodEvent struct {
	Change PodChange
	Pod    string // id
	Host   string
	At     time.Time
	Took   time.Duration // from the request for this run to a healthy container
	Cause  string
}

// A CallEvent is a call of the runtime of a host.
type CallEvent struct {
	Call string // ensure, stop, remove or list
	Pod  string // id; empty: list
	Host string
	At   time.Time // its end
	Took time.Duration
	Err  error
}

// The loops of a service.
const (
	LoopPods  = "pods"
	LoopWatch = "watch" // a runtime is watched again: Host is the first host that it has
)

// A LoopEvent is one round of a loop.
type LoopEvent struct {
	Loop string
	Host string
	Lag  time.Duration // how late the round began
	Err  error         // nil: it succeeded
}
