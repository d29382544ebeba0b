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

// errLost is what watchers get while the engine does not tell of changes.
var errLost = errors.New("the engine was lost, list again")

// ours selects what bears the name of this Runtime.
func (r *Runtime) ours(more ...string) client.Filters {
	return make(client.Filters).Add("label", labelInstance+"="+r.instance).Add("label", more...)
}

// follow listens to the engine as long as the Runtime is open.
func (r *Runtime) follow(ctx context.Context) {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	told := false
	for {
		err := r.listen(ctx, func() { wait.Reset(); told = false })
		if ctx.Err() != nil {
			return
		}
		r.hub.Lose(errLost)
		if !told {
			r.opts.Logger.Warn("docker: the engine does not tell of changes", "error", err)
			told = true
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

// listen takes events until there are no more. It looks at everything once it listens:
// what happened before is told by no event.
func (r *Runtime) listen(ctx context.Context, found func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told := r.api.Events(ctx, client.EventsListOptions{Filters: r.ours().Add("type", string(events.ContainerEventType))})
	select {
	case err := <-told.Err:
		return err
	default:
	}
	if err := r.resync(ctx, true); err != nil {
		return err
	}
	found()
	r.hub.Found()
	for _, p := range r.pods.All() {
		p.rouse() // followers of logs that broke off
	}
	tick := time.NewTicker(r.opts.Resync)
	defer tick.Stop()
	for {
		select {
		case m := <-told.Messages:
			r.notice(m)
		case err := <-told.Err:
			return err
		case <-tick.C:
			if err := r.resync(ctx, false); err != nil {
				return err
			}
		}
	}
}

// notice looks at the pod that an event is about.
func (r *Runtime) notice(m events.Message) {
	action, _, _ := strings.Cut(string(m.Action), ":")
	if action == "cleanup" && m.Actor.Attributes[labelPod] != "" { // Podman has given up its network
		r.tear()
	}
	switch action {
	case "start", "die", "died", "stop", "oom", "health_status", "destroy", "remove", "unpause", "restart":
	default:
		return
	}
	id := m.Actor.Attributes[labelPod]
	if id == "" {
		id = strings.TrimPrefix(m.Actor.Attributes["name"], "podyard-"+r.instance+"-")
	}
	// The event is not told to a closed Runtime: its work is over.
	_, _ = r.pods.Call(id, func(p *pod) { p.glance() })
}

// resync asks for all containers, and looks at those of which it is not known what the
// engine says, or at all. It returns when it has looked.
func (r *Runtime) resync(ctx context.Context, all bool) error {
	list, err := r.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: r.ours()})
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
	r.pods.Meet(slices.Collect(maps.Keys(there)), r.newPod, func(id string, p *pod) {
		if state, found := there[id]; all || p.differs(state, found) {
			done := make(chan struct{})
			if p.lookThen(func() { close(done) }) {
				wait = append(wait, done)
			}
		}
	})
	for _, done := range wait {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// differs says whether the container is not what its state says.
func (p *pod) differs(state container.ContainerState, found bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	runs := found && (state == container.StateRunning || state == container.StatePaused)
	shown := p.state.Phase == pods.Coming || p.state.Phase == pods.Up
	return !p.known || runs != shown
}

// lookThen looks at once when the pod has nothing else to do. One that has will show what
// comes of that.
func (p *pod) lookThen(done func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.going == 0 && p.jobs.TryDo(p.r.lifetime(func(ctx context.Context) {
		defer done()
		p.look(ctx)
	}))
}
