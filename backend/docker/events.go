package docker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// errEventsLost is what Watch returns while no events arrive from the engine.
var errEventsLost = errors.New("the engine was lost, list again")

// instanceFilters selects objects with the instance label of this Runtime.
func (r *Runtime) instanceFilters(more ...string) client.Filters {
	return make(client.Filters).Add("label", labelInstance+"="+r.instance).Add("label", more...)
}

// watchEvents reads the engine's events until ctx ends.
func (r *Runtime) watchEvents(ctx context.Context) {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	reported, again := false, false
	for {
		err := r.streamEvents(ctx, again, func() { wait.Reset(); reported, again = false, true })
		if ctx.Err() != nil {
			return
		}
		r.hub.Disconnect(errEventsLost)
		if !reported {
			r.opts.Logger.Warn("docker: the stream of the engine's events is broken", "err", err)
			reported = true
		}
		t := time.NewTimer(wait.NextBackOff())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// streamEvents handles events until the stream breaks. After it subscribes it inspects
// every container, because earlier changes send no event. again: there was a stream before.
func (r *Runtime) streamEvents(ctx context.Context, again bool, found func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := r.api.Events(ctx, client.EventsListOptions{Filters: r.instanceFilters().Add("type", string(events.ContainerEventType))})
	select {
	case err := <-stream.Err:
		return err
	default:
	}
	ended := r.endsPods.Load() // the engine that was there before; live-restore may have been changed since
	if err := r.readLiveRestore(ctx); err != nil {
		return err
	}
	if again && (ended || r.endsPods.Load()) {
		r.engineRuns.Add(1)
	}
	if err := r.resync(ctx, true); err != nil {
		return err
	}
	found()
	r.hub.Reconnect()
	for _, p := range r.pods.All() {
		p.wakeWaiters() // readers of logs whose stream broke
	}
	tick := time.NewTicker(r.opts.Resync)
	defer tick.Stop()
	for {
		select {
		case m := <-stream.Messages:
			r.handleEvent(m)
		case err := <-stream.Err:
			return err
		case <-tick.C:
			if err := r.resync(ctx, false); err != nil {
				return err
			}
		}
	}
}

// handleEvent refreshes the pod of an event.
func (r *Runtime) handleEvent(m events.Message) {
	action, _, _ := strings.Cut(string(m.Action), ":")
	if action == "cleanup" && m.Actor.Attributes[labelPod] != "" { // Podman has deleted its network
		r.noteIsolationBroken()
	}
	id := m.Actor.Attributes[labelPod]
	if id == "" {
		id = strings.TrimPrefix(m.Actor.Attributes["name"], "podyard-"+r.instance+"-")
	}
	switch action {
	case "kill":
		_, _ = r.pods.Call(id, func(p *pod) { p.noteSignal(time.Unix(0, m.TimeNano)) })
		return
	case "start", "die", "died", "stop", "oom", "health_status", "destroy", "remove", "unpause", "restart":
	default:
		return
	}
	// A closed Runtime ignores events.
	_, _ = r.pods.Call(id, func(p *pod) { p.queueRefresh() })
}

// readLiveRestore finds out whether containers end with the engine. Docker ends them when it stops, and after a
// crash when it starts, unless it has live-restore. Podman is no process that containers need.
func (r *Runtime) readLiveRestore(ctx context.Context) error {
	if r.engine.podman {
		return nil
	}
	answer, err := r.api.Info(ctx, client.InfoOptions{})
	if err == nil {
		r.endsPods.Store(!answer.Info.LiveRestoreEnabled)
	}
	return err
}

// engineEnd is how long an engine that stops may take from the signal to its containers until it is gone: its
// shutdown-timeout is 15 s.
const engineEnd = 20 * time.Second

// engineWent reports whether the engine has been restarted, with the end of its containers, since the
// container of p was started or last seen running.
func (p *pod) engineWent() bool { return p.engineRun < p.r.engineRuns.Load() }

// noteSignal notes that the engine has sent a signal to the container, at an instant of its clock.
func (p *pod) noteSignal(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signalled, p.signalledAt = time.Now(), at
}

// mayEndWithEngine reports whether a container that has ended may have been ended by an engine that stops. Docker
// tells of such an end as of a docker stop by somebody else, before it is gone itself. Then the pod is looked at
// again when the engine is back, or has not gone. A signal that ended an earlier run says nothing of this one.
func (p *pod) mayEndWithEngine(c *container.InspectResponse) bool {
	if p.rec.StopRequested || p.engineWent() || !p.r.endsPods.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	left := engineEnd - time.Since(p.signalled)
	if left <= 0 || p.signalledAt.Before(parseTime(c.State.StartedAt)) {
		return false
	}
	if p.lookAgain.IsZero() {
		p.lookAgain = p.signalled.Add(engineEnd)
		p.r.spawn(func(ctx context.Context) {
			t := time.NewTimer(left)
			defer t.Stop()
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			p.mu.Lock()
			p.lookAgain = time.Time{}
			p.mu.Unlock()
			p.queueRefresh()
		})
	}
	return true
}

// resync lists all containers and refreshes the pods whose state differs from the list, or
// every pod if all is set. It returns after the refreshes.
func (r *Runtime) resync(ctx context.Context, all bool) error {
	list, err := r.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: r.instanceFilters()})
	if err != nil {
		return err
	}
	there := map[string]container.ContainerState{}
	for _, c := range list.Items {
		if id := c.Labels[labelPod]; plainName(id) && c.Labels[labelInstance] == r.instance {
			there[id] = c.State
		}
	}
	var wait []chan struct{}
	err = r.pods.Meet(slices.Collect(maps.Keys(there)), r.newPod, func(id string, p *pod) {
		if state, found := there[id]; all || p.needsRefresh(state, found) {
			done := make(chan struct{})
			if p.tryRefresh(func() { close(done) }) {
				wait = append(wait, done)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, done := range wait {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// needsRefresh reports whether the container differs from the state.
func (p *pod) needsRefresh(state container.ContainerState, found bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	runs := found && (state == container.StateRunning || state == container.StatePaused)
	shown := p.state.Phase == pods.PhaseStarting || p.state.Phase == pods.PhaseHealthy
	return !p.known() || runs != shown
}

// tryRefresh queues a refresh if the pod has no jobs. If it has, the last job will show the
// state.
func (p *pod) tryRefresh(done func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.removals == 0 && p.jobs.TryDo(p.r.lifetime(func(ctx context.Context) {
		defer done()
		p.refresh(ctx)
	}))
}
