package pods

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// accepted notes that the host took on the container that is wanted.
func (p *Pod) accepted(now time.Time) {
	if p.Seen.Gen != p.Want.Gen {
		p.note(now, "making a container of "+p.Want.Applied.Image)
	}
	p.Seen.Gen, p.Seen.Run = p.Want.Gen, p.Want.Run
	p.Seen.Phase, p.Seen.Reason = Pulling, ""
	p.Seen.Tries, p.Seen.RetryAt = 0, time.Time{}
	p.Seen.Ports, p.Seen.IP = nil, ""
	p.Seen.Status = p.beginning()
}

// observe takes in what a runtime reports and says whether that is news. Reports of
// another container than the wanted one are not, nor is anything after its end.
func (p *Pod) observe(st State, now time.Time) bool {
	if p.Want.Power == Gone {
		return false
	}
	if p.Want.Power == Off && st.Phase >= Down && p.Seen.Phase < Down {
		p.ended(st, now)
		return true
	}
	if st.Gen != p.Want.Gen || st.Run < p.Want.Run {
		return false
	}
	if p.Seen.Gen != p.Want.Gen || p.Seen.Run != p.Want.Run {
		// The host took it on, and we were gone before we could note that.
		p.accepted(now)
	}
	if p.Seen.Phase >= Down || st.Phase < p.Seen.Phase {
		return false
	}
	switch st.Phase {
	case Coming:
		return p.coming(st, now)
	case Up:
		return p.up(st, now)
	case Down, Failed:
		p.ended(st, now)
		return true
	}
	return false
}

func (p *Pod) coming(st State, now time.Time) bool {
	if p.Seen.Phase >= Coming {
		return false
	}
	p.Seen.Phase, p.Seen.Status, p.Seen.Started = Coming, Starting, now
	if !st.Started.IsZero() && st.Started.Before(now) {
		p.Seen.Started = st.Started
	}
	p.note(now, "container started")
	return true
}

func (p *Pod) up(st State, now time.Time) bool {
	p.coming(st, now) // a runtime may have no phase before
	if p.Seen.Phase == Up && slices.Equal(p.Seen.Ports, st.Ports) && p.Seen.CUDA == st.CUDA && p.Seen.IP == st.IP {
		return false
	}
	if p.Seen.Phase != Up {
		p.note(now, "container is healthy")
	}
	p.Seen.Phase, p.Seen.Status = Up, Running
	p.Seen.Ports, p.Seen.CUDA, p.Seen.IP = slices.Clone(st.Ports), st.CUDA, st.IP
	return true
}

// ended is the end of a run: decisions 18.
func (p *Pod) ended(st State, now time.Time) {
	switch {
	case p.Want.Power == Off:
		p.end(Exited, "stopped by its user", now)
	case st.Phase == Failed:
		p.end(Errored, cmp.Or(st.Reason, "the container could not be made"), now)
	case st.Stopped:
		p.end(Exited, cmp.Or(st.Reason, "stopped with its host"), now)
	case st.OOM:
		p.end(Errored, "container ran out of memory and was killed", now)
	case st.ExitCode == 0:
		p.end(Exited, cmp.Or(st.Reason, "container exited with code 0"), now)
	default:
		p.end(Errored, cmp.Or(st.Reason, fmt.Sprintf("container exited with code %d", st.ExitCode)), now)
	}
}

// end gives up the compute of p. Its host stays its host.
func (p *Pod) end(status Status, reason string, now time.Time) {
	p.Seen.Status, p.Seen.Phase, p.Seen.Reason = status, Down, reason
	p.Seen.Ports, p.Seen.IP = nil, ""
	p.Seen.Tries, p.Seen.RetryAt = 0, time.Time{}
	p.used(now)
	p.Placement.Claims, p.Placement.Devices = nil, nil
	p.note(now, reason)
}

// lacks says that a host which lists st has not the container that it took on: it knows of
// an earlier run only, or is about to make one and may have died over that. A service that
// has just begun, after a crash perhaps, asks it again, which changes nothing if it did not.
func (p *Pod) lacks(st State, first bool) bool {
	if p.Want.Power != On {
		return false // to stop it is right in any case
	}
	return cmp.Or(cmp.Compare(st.Gen, p.Seen.Gen), cmp.Compare(st.Run, p.Seen.Run)) < 0 || first && st.Phase == Pulling
}

// vanished takes in that the host has no container of p, as of when p was seen like was.
// One that never started is made again; one that ran has ended.
func (p *Pod) vanished(was Seen, now time.Time) bool {
	if was.Gen == 0 || p.Seen.Gen != was.Gen || p.Seen.Run != was.Run || p.Seen.Phase >= Down || p.Want.Power == Gone {
		return false
	}
	if p.Want.Power == On {
		if p.Seen.Gen != p.Want.Gen || p.Seen.Run != p.Want.Run {
			return false // another run was asked for since: it will be made
		}
		if p.Seen.Phase == Pulling {
			p.Seen.Gen = 0
			return true
		}
	}
	p.end(Exited, "the container was gone from its host", now)
	return true
}
