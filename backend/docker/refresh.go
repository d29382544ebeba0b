package docker

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// queueRefresh queues a refresh, unless one waits already.
func (p *pod) queueRefresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refreshQueued {
		return
	}
	p.refreshQueued = true
	p.do(func(ctx context.Context) {
		p.mu.Lock()
		p.refreshQueued = false
		p.mu.Unlock()
		p.refresh(ctx)
	})
}

// refresh updates the state from the engine.
func (p *pod) refresh(ctx context.Context) {
	c, err := p.inspect(ctx)
	if err != nil {
		p.logError(ctx, "cannot be looked at", err)
		return
	}
	if _, known := p.currentState(); !known && !p.adopt(c) {
		p.r.pods.Forget(p.id, p)
		return
	}
	inherited := p.unverified
	p.unverified = false
	switch {
	case p.rec.Starting && inherited:
		p.recover(ctx, c)
	case p.rec.Starting, p.rec.StartCanceled: // a queued job sets the state, or the start was canceled
	case c == nil:
		p.containerRemoved()
	case c.Config.Labels[labelGen] == strconv.FormatUint(p.rec.State.Gen, 10):
		p.updateFrom(c)
	}
}

// adopt makes a record for a container that has none. It reports whether there is a
// container.
func (p *pod) adopt(c *container.InspectResponse) bool {
	if c == nil || p.rec.State.PodID != "" {
		return c != nil
	}
	labels := c.Config.Labels
	gen, _ := strconv.ParseUint(labels[labelGen], 10, 64)
	run, _ := strconv.ParseUint(labels[labelRun], 10, 64)
	p.rec.State = pods.ContainerState{PodID: p.id, Gen: gen, Run: run, Phase: pods.PhasePulling}
	if c.HostConfig != nil {
		p.rec.Network = p.r.bridgeIn(c)
		p.r.networks.restore(p.rec.Network, p.id)
		p.rec.Memory = int(c.HostConfig.Memory / gigabyte)
		p.rec.VCPU = int(c.HostConfig.NanoCPUs / 1e9)
		for private, bound := range c.HostConfig.PortBindings {
			for _, b := range bound {
				public, _ := strconv.Atoi(b.HostPort)
				udp := private.Proto() == "udp"
				p.rec.Ports = append(p.rec.Ports, podhost.Port{Private: int(private.Num()), UDP: udp, Public: public})
				p.rec.RequestedPorts = append(p.rec.RequestedPorts, pods.Port{Private: int(private.Num()), Protocol: string(private.Proto())})
				p.r.ports.Reserve(udp, public)
			}
		}
	}
	p.publish(p.rec.State)
	return true
}

// recover handles a start that the previous server did not finish.
func (p *pod) recover(ctx context.Context, c *container.InspectResponse) {
	p.rec.Starting = false
	if c != nil && c.State.Running {
		if err := checkGPUs(c); err != nil {
			p.failContainer(ctx, c, err)
			return
		}
	}
	if c != nil && c.Config.Labels[labelGen] == strconv.FormatUint(p.rec.State.Gen, 10) && p.started(c) {
		p.updateFrom(c)
		return
	}
	// The container was not started: the next Ensure starts it.
	p.rec.Starting = true
	p.mu.Lock()
	defer p.mu.Unlock()
	p.startInterrupted = true
}

// failContainer kills a container that may not run, and fails the pod.
func (p *pod) failContainer(ctx context.Context, c *container.InspectResponse, why error) {
	if err := p.terminate(ctx, c, 0); err != nil {
		p.logError(ctx, "cannot be stopped", err)
	}
	s := p.rec.State
	s.Phase, s.Reason = pods.PhaseFailed, errorText(why)
	p.publish(s)
}

// containerRemoved is for a container that somebody else removed.
func (p *pod) containerRemoved() {
	s := p.rec.State
	if s.Phase == pods.PhaseExited || s.Phase == pods.PhaseFailed {
		return
	}
	s.Phase, s.Ports, s.IP, s.ExitCode, s.Stopped = pods.PhaseExited, nil, "", -1, p.rec.StopRequested
	s.Reason = "its container was removed by somebody else: its exit code is not known"
	p.publish(s)
}

// updateFrom updates the state from c. c is of the generation and run in the record.
func (p *pod) updateFrom(c *container.InspectResponse) {
	s := p.rec.State
	switch {
	case c.State.Running:
		p.running(c, &s)
	case c.State.Status == container.StateCreated, s.Phase == pods.PhaseFailed, s.Phase == pods.PhaseExited, p.mayEndWithEngine(c):
		return
	default:
		p.ended(c, &s)
	}
	if !reflect.DeepEqual(s, p.rec.State) {
		p.publish(s)
	}
}

func (p *pod) running(c *container.InspectResponse, s *pods.ContainerState) {
	p.engineRun = p.r.engineRuns.Load()
	s.Started, s.Reason, s.ExitCode, s.Stopped, s.OOM = parseTime(c.State.StartedAt), "", 0, false, false
	s.Ports, s.IP = podhost.Mapping(cmp.Or(p.rec.Host, "127.0.0.1"), p.rec.Publication, p.rec.RequestedPorts, p.rec.Ports), p.address(c)
	p.rec.Healthy = p.rec.Healthy || p.healthy(c)
	s.Phase = pods.PhaseStarting
	if p.rec.Healthy {
		s.Phase = pods.PhaseHealthy
	}
}

const (
	lastSignal = 64
	killedCode = 128 + 9
)

func (p *pod) ended(c *container.InspectResponse, s *pods.ContainerState) {
	s.Phase, s.Ports, s.IP, s.Started = pods.PhaseExited, nil, "", parseTime(c.State.StartedAt)
	s.ExitCode, s.Stopped, s.Killed = c.State.ExitCode, p.rec.StopRequested, p.rec.Killed
	switch {
	case s.Stopped:
	case podhost.Rebooted(p.rec.Boot):
		s.HostWent, s.Stopped, s.Reason = true, true, "its host was restarted"
		return
	case p.engineWent():
		s.HostWent, s.Stopped, s.Reason = true, true, "its engine was restarted"
		return
	}
	// The engine says that some process of the container was killed for its memory. That need not
	// be the first one, with whose end the container ends.
	killed := s.ExitCode == killedCode
	s.OOM = !s.Stopped && killed && (c.State.OOMKilled || p.r.engine.podman && p.rec.Memory > 0)
	switch {
	case s.OOM:
		s.Reason = fmt.Sprintf("killed for want of memory: its limit is %d GB", p.rec.Memory)
	case s.ExitCode > 128 && s.ExitCode <= 128+lastSignal:
		s.Reason = fmt.Sprintf("exited with code %d, as after signal %d", s.ExitCode, s.ExitCode-128)
	default:
		s.Reason = fmt.Sprintf("exited with code %d", s.ExitCode)
	}
	if c.State.OOMKilled && !killed {
		s.Reason += fmt.Sprintf("; one of its processes was killed for want of memory: its limit is %d GB", p.rec.Memory)
	}
	if c.State.Error != "" {
		s.Reason += ": " + c.State.Error
	}
}

// parseTime returns zero for a container that was never started.
func parseTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 1971 {
		return time.Time{}
	}
	return t.UTC()
}
