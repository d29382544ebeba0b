package pods

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// runAccepted notes that the host accepted the desired container.
func (p *Pod) runAccepted(now time.Time) {
	if p.Seen.Gen != p.Want.Gen {
		p.appendJournal(now, lineMaking+p.Want.Applied.Image)
	}
	p.Seen.Gen, p.Seen.Run = p.Want.Gen, p.Want.Run
	p.Seen.Phase, p.Seen.Reason = PhasePulling, ""
	p.Seen.succeeded()
	p.Seen.Ports, p.Seen.IP = nil, ""
	p.Seen.Status = p.startupStatus()
}

// observe applies a report of a runtime and reports whether p changed. It ignores reports about
// another container than the desired one, and everything after its end.
func (p *Pod) observe(st ContainerState, now time.Time) bool {
	if p.Want.Power == PowerTerminated {
		return false
	}
	if p.Want.Power == PowerOff && st.Phase >= PhaseExited && p.Seen.Phase < PhaseExited {
		p.containerExited(st, now)
		return true
	}
	if st.Gen != p.Want.Gen || st.Run < p.Want.Run {
		return false
	}
	if p.Seen.Gen != p.Want.Gen || p.Seen.Run != p.Want.Run {
		// The host accepted it, and this program ended before it could note that.
		p.runAccepted(now)
	}
	if p.Seen.Phase >= PhaseExited || st.Phase < p.Seen.Phase {
		return false
	}
	switch st.Phase {
	case PhasePulling:
		return p.containerPulling(st, now)
	case PhaseStarting:
		return p.containerStarted(st, now)
	case PhaseHealthy:
		return p.containerHealthy(st, now)
	case PhaseExited, PhaseFailed:
		p.containerExited(st, now)
		return true
	}
	return false
}

// containerPulling notes what a host says while it gets the image.
func (p *Pod) containerPulling(st ContainerState, now time.Time) bool {
	if st.Reason == "" || st.Reason == p.Seen.Reason {
		return false
	}
	p.Seen.Reason = st.Reason
	p.appendJournal(now, st.Reason)
	return true
}

func (p *Pod) containerStarted(st ContainerState, now time.Time) bool {
	if p.Seen.Phase >= PhaseStarting {
		return false
	}
	p.Seen.Phase, p.Seen.Status, p.Seen.Started, p.Seen.Reason = PhaseStarting, Starting, now, ""
	if !st.Started.IsZero() && st.Started.Before(now) {
		p.Seen.Started = st.Started
	}
	if p.Seen.Began.IsZero() {
		p.Seen.Began = p.Seen.Started
	}
	p.appendJournal(now, lineStarted)
	return true
}

func (p *Pod) containerHealthy(st ContainerState, now time.Time) bool {
	p.containerStarted(st, now) // a runtime may skip PhaseStarting
	if p.Seen.Phase == PhaseHealthy && slices.Equal(p.Seen.Ports, st.Ports) && p.Seen.CUDA == st.CUDA && p.Seen.IP == st.IP {
		return false
	}
	if p.Seen.Phase != PhaseHealthy {
		p.appendJournal(now, "container is healthy")
	}
	p.Seen.Phase, p.Seen.Status = PhaseHealthy, Running
	p.Seen.Ports, p.Seen.CUDA, p.Seen.IP = slices.Clone(st.Ports), st.CUDA, st.IP
	return true
}

// containerExited applies the end of a run (docs/decisions.md 18).
func (p *Pod) containerExited(st ContainerState, now time.Time) {
	if p.Want.Power == PowerOn && p.startsAgain(st, now) {
		return
	}
	switch {
	case p.Want.Power == PowerOff:
		p.finishRun(Exited, cmp.Or(p.Want.Why, "stopped by its user")+killedText(st, p.Want.Grace), now)
	case st.Phase == PhaseFailed:
		p.finishRun(Errored, cmp.Or(st.Reason, "the container could not be made"), now)
	case st.Stopped:
		p.finishRun(Exited, cmp.Or(st.Reason, "stopped with its host"), now)
	case st.OOM:
		p.finishRun(Errored, "container ran out of memory and was killed", now)
	case st.ExitCode == 0:
		p.finishRun(Exited, cmp.Or(st.Reason, "container exited with code 0"), now)
	default:
		p.finishRun(Errored, cmp.Or(st.Reason, fmt.Sprintf("container exited with code %d", st.ExitCode)), now)
	}
}

// succeeded forgets the failed attempts of the last step.
func (s *ObservedState) succeeded() { s.Tries, s.RetryAt, s.Failure = 0, time.Time{}, "" }

// finishRun releases the compute of p. Its host stays the same.
func (p *Pod) finishRun(status Status, reason string, now time.Time) {
	p.Seen.Status, p.Seen.Phase, p.Seen.Reason = status, PhaseExited, reason
	p.Seen.Ports, p.Seen.IP = nil, ""
	p.Seen.succeeded()
	p.closeUsage(now)
	p.Placement.Claims, p.Placement.Devices = nil, nil
	p.appendJournal(now, reason)
}

// hostIsBehind reports whether a host that lists st does not have the container that it
// accepted. It knows an earlier run only, or was making the container, perhaps when it crashed.
// A service that has just started calls Ensure again, which is harmless if nothing was lost.
func (p *Pod) hostIsBehind(st ContainerState, first bool) bool {
	if p.Want.Power != PowerOn {
		return false // a stop is right in any case
	}
	return cmp.Or(cmp.Compare(st.Gen, p.Seen.Gen), cmp.Compare(st.Run, p.Seen.Run)) < 0 || first && st.Phase == PhasePulling
}

// containerLost applies that the host has no container of p. was is the observed state when the
// host was listed. A container that never started is made again; one that ran has ended.
func (p *Pod) containerLost(was ObservedState, now time.Time) bool {
	if was.Gen == 0 || p.Seen.Gen != was.Gen || p.Seen.Run != was.Run || p.Seen.Phase >= PhaseExited || p.Want.Power == PowerTerminated {
		return false
	}
	if p.Want.Power == PowerOn {
		if p.Seen.Gen != p.Want.Gen || p.Seen.Run != p.Want.Run {
			return false // another run was requested since, and will be made
		}
		if p.Seen.Phase == PhasePulling {
			p.Seen.Gen = 0
			return true
		}
	}
	p.finishRun(Exited, "the container was gone from its host", now)
	return true
}
