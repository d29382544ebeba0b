package pods

import (
	"slices"

	"github.com/podyard/podyard/problem"
)

// Errors of an action that is not possible.
var (
	ErrInvalidStatus = problem.New(problem.Conflict, "the status of the pod does not allow this")
	ErrLocked        = problem.New(problem.Conflict, "the pod is locked")

	// ErrHostAway is the answer where the server that has the host of a pod is needed, and does not
	// answer (docs/servers.md).
	ErrHostAway = problem.New(problem.Unavailable, "the server that has the host of this pod is away")

	// ErrNoHost is the answer to Cordon and Uncordon of a host that a service does not have.
	ErrNoHost = problem.New(problem.NotFound, "host not found")
)

// transitions has the allowed actions for each status.
var transitions = map[Status][]Action{
	Provisioning: {Stop, Terminate},
	Starting:     {Stop, Terminate, Reset},
	Running:      {Stop, Restart, Terminate, Reset},
	Exited:       {Start, Terminate, Reset},
	Errored:      {Start, Terminate, Reset},
	Terminated:   {},
}

// whileStopping has the allowed actions while a stop is in progress. A stop cannot be
// cancelled.
var whileStopping = []Action{Terminate}

var forbiddenWhenLocked = []Action{Stop, Restart, Reset}

// Actions returns the values of a pod's field "actions": what is allowed now. Reset is not
// among them, because it has an operation of its own.
func Actions(p *Pod) []Action {
	list := []Action{}
	for _, a := range p.allowed() {
		if a != Reset && checkAction(p, a) == nil {
			list = append(list, a)
		}
	}
	return list
}

// checkAction returns an error if a is not allowed now.
func checkAction(p *Pod, a Action) error {
	if err := checkAlone(p); err != nil {
		return err
	}
	if !slices.Contains(p.allowed(), a) {
		status := string(p.Status())
		if p.stopping() {
			status += " and is being stopped"
		}
		return problem.Newf(problem.Conflict, "%w: %s of a pod that is %s", ErrInvalidStatus, a, status)
	}
	if p.Locked && slices.Contains(forbiddenWhenLocked, a) {
		return problem.Newf(problem.Conflict, "%w: %s needs it unlocked", ErrLocked, a)
	}
	return nil
}

// checkAlone returns an error for a member of a cluster.
func checkAlone(p *Pod) error {
	if p.Cluster == nil {
		return nil
	}
	return problem.Newf(problem.Conflict, "%w: cluster %s", ErrMember, p.Cluster.ID)
}

func (p *Pod) allowed() []Action {
	if p.stopping() {
		return whileStopping
	}
	return transitions[p.Status()]
}

// stopping reports whether a stop of p was accepted and has not ended yet.
func (p *Pod) stopping() bool {
	if p.Want.Power != PowerOff {
		return false
	}
	status := p.Status()
	return status != Exited && status != Errored
}

// Status is the status that users see. It is the observed one, unless something newer was
// requested and has not been observed yet. A pod that will start again is not RUNNING any more.
// A pod that will stop keeps its status until its container has ended and its compute is free.
func (p *Pod) Status() Status {
	switch {
	case p.Want.Power == PowerTerminated:
		return Terminated
	case p.Want.Power == PowerOn && (p.Seen.Gen != p.Want.Gen || p.Seen.Run != p.Want.Run),
		p.Want.Power == PowerOff && p.Seen.ended() && len(p.Placement.Claims) > 0: // a start that was cancelled by a stop
		return p.startupStatus()
	default:
		return p.Seen.Status
	}
}

// ended reports whether the last observed run has ended.
func (s *ObservedState) ended() bool { return s.Status == Exited || s.Status == Errored }

// startupStatus is the status before the container runs: PROVISIONING for a pod that never had
// a container, otherwise STARTING.
func (p *Pod) startupStatus() Status {
	if p.Seen.Started.IsZero() {
		return Provisioning
	}
	return Starting
}

// Cost is the present price in USD an hour: 0 while the pod has no compute (docs/decisions.md
// 22).
func (p *Pod) Cost() float64 {
	switch p.Status() {
	case Exited, Errored, Terminated:
		return 0
	}
	return p.Placement.Price
}
