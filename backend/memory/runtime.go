package memory

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
)

// RuntimeOptions configures a simulated runtime. The zero value and nil work.
type RuntimeOptions struct {
	Clock   pods.Clock // default: the system's
	Seed    uint64     // seed of all delays; the same seed gives the same delays
	Scripts []Script   // the first that matches an image applies, else DefaultScript
	// CUDA is the version that hosts report for pods with GPUs, other than AMD's. Default
	// "12.8".
	CUDA string
}

// Runtime is a pods.Runtime that simulates containers: they go through the stages of their
// script. It also implements pods.LogReader, pods.Sampler and pods.Notifier. It is safe for
// concurrent use. It has no goroutines: everything happens in calls and in timer functions of
// its clock.
type Runtime struct {
	clock   pods.Clock
	seed    uint64
	scripts []Script
	cuda    string

	mu          sync.Mutex
	containers  map[string]*simContainer
	listeners   map[*simListener]bool
	undelivered []pods.ContainerState
	delivering  bool
	ports       int // published so far
	addresses   int // given out so far
}

var (
	_ pods.Runtime   = (*Runtime)(nil)
	_ pods.LogReader = (*Runtime)(nil)
	_ pods.Sampler   = (*Runtime)(nil)
	_ pods.Notifier  = (*Runtime)(nil)
)

type simListener struct{ f func(pods.ContainerState) }

// simContainer is one container.
type simContainer struct {
	spec         pods.Spec
	script       *Script
	state        pods.ContainerState
	stage        int         // index of the current stage
	epoch        uint64      // grows with each command, so that timers of earlier commands do nothing
	stop         func() bool // the timer of the next stage
	stopDeadline time.Time   // when a stop in progress ends the container; zero: no stop
	log          simLog
	over         chan struct{} // closed when this run ends; nil: no command waits for that

	// What the pod keeps over runs and generations.
	public map[pods.Port]int
	ip     string // in the private network; empty until it has one
}

// NewRuntime returns a runtime without containers. o may be nil.
func NewRuntime(o *RuntimeOptions) *Runtime {
	var opt RuntimeOptions
	if o != nil {
		opt = *o
	}
	r := &Runtime{
		clock: opt.Clock, seed: opt.Seed, cuda: cmp.Or(opt.CUDA, "12.8"),
		scripts:    append(slices.Clone(opt.Scripts), DefaultScript()),
		containers: make(map[string]*simContainer), listeners: make(map[*simListener]bool),
	}
	if r.clock == nil {
		r.clock = clock.System{}
	}
	return r
}

// CUDAVersion implements pods.CUDAVersioner.
func (r *Runtime) CUDAVersion() string { return r.cuda }

// Capabilities implements pods.Runtime.
func (r *Runtime) Capabilities() pods.Capabilities {
	return pods.Capabilities{GPUs: true, DiskLimit: true, PrivateNetworks: true, Pull: true}
}

// Ensure implements pods.Runtime.
func (r *Runtime) Ensure(ctx context.Context, s pods.Spec) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	c := r.containers[s.PodID]
	switch {
	case c == nil:
		c = &simContainer{}
		r.containers[s.PodID] = c
	case c.spec.Gen == s.Gen && c.spec.Run >= s.Run:
		r.mu.Unlock()
		return nil
	case c.state.Phase < pods.PhaseExited:
		r.end(c, pods.ContainerState{Phase: pods.PhaseExited, Stopped: true, Reason: "replaced"})
	}
	again := c.spec.Gen == s.Gen && c.state.Phase != pods.PhaseFailed
	c.spec, c.script = s, r.scriptOf(s.Image)
	c.cancel()
	c.state = pods.ContainerState{PodID: s.PodID, Gen: s.Gen, Run: s.Run, Phase: pods.PhasePulling, At: r.clock.Now()}
	c.stage = 0
	if again {
		for c.stage < len(c.script.Stages)-1 && c.script.Stages[c.stage].Phase == pods.PhasePulling {
			c.stage++
		}
	}
	r.unlockAndEnter(c, again)
	return nil
}

func (r *Runtime) scriptOf(image string) *Script {
	i := slices.IndexFunc(r.scripts, func(s Script) bool { return simMatch(s.Image, image) && len(s.Stages) > 0 })
	return &r.scripts[i] // the last one matches everything
}

// AddScript adds a script before the existing ones. It applies to containers that are created
// afterwards.
func (r *Runtime) AddScript(s Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts = append([]Script{s}, r.scripts...)
}

// Kill ends a container as a crash does. It does nothing if there is no such container.
func (r *Runtime) Kill(podID string, exitCode int, reason string) {
	r.mu.Lock()
	if c := r.containers[podID]; c != nil && c.state.Phase < pods.PhaseExited {
		r.end(c, pods.ContainerState{Phase: pods.PhaseExited, ExitCode: exitCode, Reason: reason})
	}
	r.mu.Unlock()
	r.deliver()
}

// cancel stops the timer of the next stage.
func (c *simContainer) cancel() {
	c.epoch++
	c.stopDeadline = time.Time{}
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

// end ends c with the exit code and reason of st.
func (r *Runtime) end(c *simContainer, st pods.ContainerState) {
	c.cancel()
	c.state.Phase, c.state.At = st.Phase, r.clock.Now()
	c.state.ExitCode, c.state.Stopped, c.state.Reason = st.ExitCode, st.Stopped, st.Reason
	c.state.Killed, c.state.HostWent = st.Killed, st.HostWent
	c.state.Ports, c.state.IP = nil, ""
	if c.over != nil {
		close(c.over)
		c.over = nil
	}
	r.undelivered = append(r.undelivered, simCopy(c.state))
}

// Stop implements pods.Runtime.
func (r *Runtime) Stop(ctx context.Context, podID string, grace time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	c := r.containers[podID]
	if c == nil || c.state.Phase >= pods.PhaseExited {
		r.mu.Unlock()
		return nil
	}
	wait, code := c.script.StopAfter, 0
	if c.script.StopAfter > grace {
		wait, code = grace, 137
	}
	at := r.clock.Now().Add(wait)
	if !c.stopDeadline.IsZero() && !at.Before(c.stopDeadline) {
		r.mu.Unlock()
		return nil // it ends before that: a later call does not give it more time
	}
	c.cancel()
	ended := pods.ContainerState{Phase: pods.PhaseExited, Stopped: true, ExitCode: code, Killed: code != 0}
	if wait <= 0 || c.state.Phase == pods.PhasePulling {
		r.end(c, ended)
		r.mu.Unlock()
		r.deliver()
		return nil
	}
	epoch := c.epoch
	c.stopDeadline = at
	r.mu.Unlock()
	r.clock.AfterFunc(at, func() {
		r.mu.Lock()
		if c.epoch == epoch {
			r.end(c, ended)
		}
		r.mu.Unlock()
		r.deliver()
	})
	return nil
}

// Remove implements pods.Runtime. It does not wait, because no process has to end.
func (r *Runtime) Remove(ctx context.Context, podID string, _ time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	c := r.containers[podID]
	if c != nil {
		if c.state.Phase < pods.PhaseExited {
			r.end(c, pods.ContainerState{Phase: pods.PhaseExited, Stopped: true, Reason: "removed"})
		}
		c.cancel()
		delete(r.containers, podID)
		c.log.close()
	}
	r.mu.Unlock()
	r.deliver()
	return nil
}

// List implements pods.Runtime. The result is ordered by id.
func (r *Runtime) List(ctx context.Context) ([]pods.ContainerState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]pods.ContainerState, 0, len(r.containers))
	for _, c := range r.containers {
		list = append(list, simCopy(c.state))
	}
	slices.SortFunc(list, func(a, b pods.ContainerState) int { return cmp.Compare(a.PodID, b.PodID) })
	return list, ctx.Err()
}

// Watch implements pods.Runtime.
func (r *Runtime) Watch(ctx context.Context, f func(pods.ContainerState)) error {
	defer r.Notify(f)()
	<-ctx.Done()
	return ctx.Err()
}

// Notify implements pods.Notifier.
func (r *Runtime) Notify(f func(pods.ContainerState)) (stop func()) {
	l := &simListener{f}
	r.mu.Lock()
	r.listeners[l] = true
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		delete(r.listeners, l)
		r.mu.Unlock()
	}
}

// deliver passes new states to the listeners, in order. Only one caller delivers at a time;
// it also delivers the states of the others.
func (r *Runtime) deliver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.delivering {
		return
	}
	r.delivering = true
	for len(r.undelivered) > 0 {
		news := r.undelivered
		r.undelivered = nil
		list := make([]*simListener, 0, len(r.listeners))
		for l := range r.listeners {
			list = append(list, l)
		}
		r.mu.Unlock()
		for _, st := range news {
			for _, l := range list {
				l.f(simCopy(st))
			}
		}
		r.mu.Lock()
	}
	r.delivering = false
}
