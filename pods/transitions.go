package pods

import (
	"slices"

	"github.com/podyard/podyard/problem"
)

// What an action that cannot be done is answered with.
var (
	ErrStatus = problem.New(problem.Conflict, "the status of the pod does not allow this")
	ErrLocked = problem.New(problem.Conflict, "the pod is locked")
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

// locked is what a lock forbids.
var locked = []Action{Stop, Restart, Reset}

// Actions are the values of a pod's field "actions": what can be asked of p now. Reset
// has an operation of its own and is not among them.
func Actions(p *Pod) []Action {
	list := []Action{}
	for _, a := range transitions[p.Status()] {
		if a != Reset && check(p, a) == nil {
			list = append(list, a)
		}
	}
	return list
}

// check says whether a can be asked of p now.
func check(p *Pod, a Action) error {
	status := p.Status()
	if !slices.Contains(transitions[status], a) {
		return problem.Newf(problem.Conflict, "%w: %s of a pod that is %s", ErrStatus, a, status)
	}
	if p.Locked && slices.Contains(locked, a) {
		return problem.Newf(problem.Conflict, "%w: %s needs it unlocked", ErrLocked, a)
	}
	return nil
}

// Status is what p is for its user. It is what was last seen, unless something newer was
// asked for and is not seen yet: a pod that is to start again is not RUNNING any more,
// while one that is to stop is what it is until its container has ended and its compute
// is free.
func (p *Pod) Status() Status {
	switch {
	case p.Want.Power == Gone:
		return Terminated
	case p.Want.Power == On && (p.Seen.Gen != p.Want.Gen || p.Seen.Run != p.Want.Run),
		p.Want.Power == Off && p.Seen.over() && len(p.Placement.Claims) > 0: // a start that was taken back
		return p.beginning()
	default:
		return p.Seen.Status
	}
}

// over says that the last run that was seen has ended.
func (s *Seen) over() bool { return s.Status == Exited || s.Status == Errored }

// beginning is the status before the container runs: a pod that never had one is being
// provisioned, any other has its place already and starts.
func (p *Pod) beginning() Status {
	if p.Seen.Started.IsZero() {
		return Provisioning
	}
	return Starting
}

// Cost is USD an hour now: nothing while the pod holds no compute (decisions 22).
func (p *Pod) Cost() float64 {
	switch p.Status() {
	case Exited, Errored, Terminated:
		return 0
	}
	return p.Placement.Price
}
