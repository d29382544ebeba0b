package pods

import (
	"context"
	"sync"
	"time"

	"github.com/podyard/podyard/pods/telemetry"
)

// runs has when the first call was made for each run that is not healthy yet. It is empty
// without an observer.
type runs struct {
	mu    sync.Mutex
	began map[string]time.Time
}

func (r *runs) begin(id string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began == nil {
		r.began = map[string]time.Time{}
	}
	if _, ok := r.began[id]; !ok {
		r.began[id] = now
	}
}

func (r *runs) end(id string) (began time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	began, ok = r.began[id]
	delete(r.began, id)
	return began, ok
}

// call makes a call of a runtime, counts it and reports it.
func (s *Service) call(name, host, pod string, f func() error) error {
	began := s.clock.Now()
	if name == "ensure" && s.observer != nil {
		s.runs.begin(pod, began)
	}
	err := f()
	now := s.clock.Now()
	s.calls.add(host, name, now, err)
	if s.observer == nil {
		return err
	}
	s.observer.Call(telemetry.CallEvent{Call: name, Pod: pod, Host: host, At: now, Took: now.Sub(began), Err: err})
	return err
}

// listContainers lists the containers of the runtime of a host.
func (s *Service) listContainers(ctx context.Context, host string, rt Runtime) (list []ContainerState, err error) {
	err = s.call("list", host, "", func() error {
		list, err = rt.List(ctx)
		return err
	})
	return list, err
}

func (s *Service) stopContainer(ctx context.Context, h *Host, p *Pod) error {
	return s.call("stop", h.ID, p.ID, func() error { return h.Runtime.Stop(ctx, p.ID, p.Want.Grace) })
}

// observeChange reports what a change of the observed state means. states are the reports that
// it comes from.
func (s *Service) observeChange(was ObservedState, p *Pod, states []ContainerState) {
	if s.observer == nil || was.Phase == p.Seen.Phase {
		return
	}
	e := telemetry.PodEvent{Pod: p.ID, Host: p.Placement.Host, At: s.clock.Now()}
	switch p.Seen.Phase {
	case PhaseHealthy:
		began, ok := s.runs.end(p.ID)
		if !ok {
			return // it was healthy before this program had started
		}
		e.Change, e.Took = telemetry.Started, e.At.Sub(began)
	case PhaseExited, PhaseFailed:
		_, _ = s.runs.end(p.ID)
		e.Change, e.Cause = telemetry.Ended, p.endCause(states)
	default:
		return
	}
	s.observer.Pod(e)
}

// observeRemoved reports the end of a pod that ran until it was terminated.
func (s *Service) observeRemoved(p *Pod) {
	if s.observer == nil {
		return
	}
	if _, _ = s.runs.end(p.ID); p.Seen.Gen == 0 || p.Seen.ended() {
		return
	}
	s.observer.Pod(telemetry.PodEvent{Change: telemetry.Ended, Pod: p.ID, Host: p.Placement.Host, At: s.clock.Now(), Cause: telemetry.ByUser})
}

// endCause returns why a pod has ended, by the same rules as containerExited.
func (p *Pod) endCause(states []ContainerState) string {
	var last ContainerState
	for _, st := range states {
		if st.Phase >= PhaseExited {
			last = st
		}
	}
	switch {
	case p.Want.Power != PowerOn:
		return telemetry.ByUser
	case last.Phase == PhaseFailed:
		return telemetry.ByImage
	case last.Phase == PhaseExited && last.OOM && !last.Stopped:
		return telemetry.ByOOM
	case last.Phase == PhaseExited && last.ExitCode == 0 && !last.Stopped:
		return telemetry.ByExit
	case last.Phase == PhaseExited && !last.Stopped:
		return telemetry.ByError
	case p.Seen.Status == Errored:
		return telemetry.ByImage // its credential is gone
	}
	return telemetry.ByHost
}

// observeLoop reports a round of a loop; due is when it had to begin, or zero.
func (s *Service) observeLoop(loop, host string, due time.Time, err error) {
	if loop == telemetry.LoopWatch {
		s.calls.watchRestarted(host, s.clock.Now(), err)
	}
	if s.observer == nil {
		return
	}
	e := telemetry.LoopEvent{Loop: loop, Host: host, Err: err}
	if !due.IsZero() {
		e.Lag = max(s.clock.Now().Sub(due), 0)
	}
	s.observer.Loop(e)
}
