package pods

import (
	"slices"

	"github.com/podyard/podyard/problem"
)

// What an action that cannot be done is answered with.
var (
	ErrInvalidStatus = problem.New(problem.Conflict, "the status of the pod does not allow this")
	ErrLocked        = problem.New(problem.Conflict, "the pod is locked")
)

// transitions is what can be asked of a pod in each status.
var transitions = map[Status][]Action{
	Provisioning: {Stop, Terminate},
	Starting:     {Stop, Terminate, Reset},
	Running:      {Stop, Restart, Terminate, Reset},
	Exited:       {Start, Terminate, Reset},
	Errored:      {Start, Terminate, Reset},
	Terminated:   {},
}

// whileStopping is what can be asked of a pod whose stop was accepted and has not ended yet: a
// stop is not taken back.
var whileStopping = []Action{Terminate}

// forbiddenWhenLocked is what a lock forbids.
var forbiddenWhenLocked = []Action{Stop, Restart, Reset}

// Actions are the values of a pod's field "actions": what can be asked of p now. Reset
// has an operation of its own and is not among them.
func Actions(p *Pod) []Action {
	list := []Action{}
	for _, a := range p.allowed() {
		if a != Reset && checkAction(p, a) == nil {
			list = append(list, a)
		}
	}
	return list
}

// checkAction says whether a can be asked of p now.
func checkAction(p *Pod, a Action) error {
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

// allowed is what the status of p allows.
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

// Status is what p is for its user. It is what was last seen, unless something newer was
// asked for and is not seen yet: a pod that is to start again is not RUNNING any more,
// while one that is to stop is what it is until its container has ended and its compute
// is free.
func (p *Pod) Status() Status {
	switch {
	case p.Want.Power == PowerTerminated:
		return Terminated
	case p.Want.Power == PowerOn && (p.Seen.Gen != p.Want.Gen || p.Seen.Run != p.Want.Run),
		p.Want.Power == PowerOff && p.Seen.ended() && len(p.Placement.Claims) > 0: // a start that was taken back
		return p.startupStatus()
	default:
		return p.Seen.Status
	}
}

// ended says that the last run that was seen has ended.
func (s *ObservedState) ended() bool { return s.Status == Exited || s.Status == Errored }

// startupStatus is the status before the container runs: a pod that never had one is being
// provisioned, any other has its place already and starts.
func (p *Pod) startupStatus() Status {
	if p.Seen.Started.IsZero() {
		return Provisioning
	}
	return Starting
}

// Cost is USD an hour now: nothing while the pod holds no compute (docs/decisions.md 22).
func (p *Pod) Cost() float64 {
	switch p.Status() {
	case Exited, Errored, Terminated:
		return 0
	}
	return p.Placement.Price
}
