package pods

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Pauses before a container starts again by its policy, and how long it must have run for the count
// to begin anew.
const (
	restartPauseMin = 10 * time.Second
	restartPauseMax = 5 * time.Minute
	restartForget   = 10 * time.Minute
)

// startsAgain notes that the container of p starts again after the end st, if it does: its policy
// says so, or its host went away and is back (docs/decisions.md 51). Its compute stays its own.
func (p *Pod) startsAgain(st ContainerState, now time.Time) bool {
	if st.HostWent {
		p.runAgain(cmp.Or(st.Reason, "its host went away"), "it starts again", now, 0)
		return true
	}
	x := &p.Config.Extras
	failed := st.OOM || st.ExitCode != 0
	if st.Phase != PhaseExited || st.Stopped || x.Restart != RestartAlways && (x.Restart != RestartOnFailure || !failed) {
		return false
	}
	if !p.Seen.Started.IsZero() && now.Sub(p.Seen.Started) >= restartForget {
		p.Seen.Restarts = 0
	}
	if p.Seen.Restarts >= x.Restarts() {
		p.appendJournal(now, fmt.Sprintf("it was started again %d times, and is not any more", p.Seen.Restarts))
		return false
	}
	pause := min(restartPauseMin<<min(p.Seen.Restarts, 10), restartPauseMax)
	p.Seen.Restarts++
	next := fmt.Sprintf("it starts again in %v, time %d of %d", pause, p.Seen.Restarts, x.Restarts())
	p.runAgain(cmp.Or(st.Reason, fmt.Sprintf("container exited with code %d", st.ExitCode)), next, now, pause)
	return true
}

// runAgain asks for another run of the container that has ended.
func (p *Pod) runAgain(ended, next string, now time.Time, pause time.Duration) {
	p.Want.Run++
	p.Want.Pull = false
	p.Seen.Status, p.Seen.Phase, p.Seen.Reason = Exited, PhaseExited, ended
	p.Seen.Ports, p.Seen.IP = nil, ""
	p.Seen.succeeded()
	if pause > 0 {
		p.Seen.RetryAt = now.Add(pause)
	}
	p.appendJournal(now, ended+"; "+next)
}

// killedText follows the reason of a stop that did not end in its grace.
func killedText(st ContainerState, grace time.Duration) string {
	if !st.Killed {
		return ""
	}
	return fmt.Sprintf("; it did not end in %v and was killed", grace)
}

// keepTerms stops a pod whose time is over or that idles too long, and sees to it that the pod is
// looked at again when that may be.
func (s *Service) keepTerms(ctx context.Context, p *Pod, now time.Time) (stops bool, err error) {
	x := p.Config.Extras
	var end time.Time
	if x.StopAfter > 0 {
		end = p.began().Add(x.StopAfter)
		if !now.Before(end) {
			return true, s.stopBySelf(ctx, p, now, fmt.Sprintf("stopped %v after its start, as its stopAfter says", x.StopAfter))
		}
	}
	if x.Idle == nil {
		s.loop.clearIdle(p.ID)
		if !end.IsZero() {
			s.loop.scheduleAt(p.ID, end)
		}
		return false, nil
	}
	idle, load := s.idles(ctx, p, *x.Idle)
	since := s.loop.noteIdle(p.ID, p.Want.Run, idle, now)
	if idle && now.Sub(since) >= x.Idle.For {
		return true, s.stopBySelf(ctx, p, now, fmt.Sprintf("stopped because it did nothing for %v: %s", x.Idle.For, load))
	}
	// One look is due at a time: each would leave another one for the end.
	look := now.Add(min(max(x.Idle.For/10, idleLookMin), idleLookMax))
	if !end.IsZero() && end.Before(look) {
		look = end
	}
	s.loop.scheduleAt(p.ID, look)
	return false, nil
}

// How often the load of a pod is looked at that may not idle.
const (
	idleLookMin = 5 * time.Second
	idleLookMax = time.Minute
)

// began is when p first ran since its user started it.
func (p *Pod) began() time.Time {
	if p.Seen.Began.IsZero() {
		return p.Seen.Started // of a record from before there was Began
	}
	return p.Seen.Began
}

// idles reports whether the load of p is below both bounds of x, and says what it is. A load that is
// not known is not idle.
func (s *Service) idles(ctx context.Context, p *Pod, x Idle) (idle bool, load string) {
	_, loads, err := s.readers(ctx, p.Placement.Host)
	if err != nil || loads == nil {
		return false, ""
	}
	sample, ok := loads.Sample(ctx, p.ID)
	if !ok || p.GPU != nil && len(sample.GPUs) == 0 {
		return false, ""
	}
	most := 0
	for _, g := range sample.GPUs {
		most = max(most, g.Util)
	}
	if p.GPU == nil {
		return sample.CPU <= x.CPU, fmt.Sprintf("its CPU was at %d %% last", sample.CPU)
	}
	return sample.CPU <= x.CPU && most <= x.GPU, fmt.Sprintf("its GPUs were at %d %%, its CPU at %d %% last", most, sample.CPU)
}

// stopBySelf stops a pod for a reason that is not its user's wish.
func (s *Service) stopBySelf(ctx context.Context, p *Pod, now time.Time, why string) error {
	s.loop.clearIdle(p.ID)
	_, err := s.update(ctx, p.ID, func(q *Pod) bool {
		if q.Want.Power != PowerOn || q.Want.Run != p.Want.Run || q.Seen.ended() {
			return false
		}
		q.Want.Power, q.Want.Grace, q.Want.Why = PowerOff, q.Config.Extras.Grace(), why
		q.appendJournal(now, why)
		return true
	})
	s.loop.push(p.ID, nil)
	return err
}

// An idleTime is since when a run has idled.
type idleTime struct {
	run   uint64
	since time.Time
}

// noteIdle notes what the load of a run was at now, and returns since when it has idled.
func (l *loop) noteIdle(id string, run uint64, idle bool, now time.Time) (since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.idle[id]
	switch {
	case !idle:
		delete(l.idle, id)
		return now
	case !ok || t.run != run:
		l.idle[id] = idleTime{run, now}
		return now
	}
	return t.since
}

func (l *loop) clearIdle(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.idle, id)
}
