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

// RuntimeOptions are what a simulated runtime can do without.
type RuntimeOptions struct {
	Clock   pods.Clock // default: the system's
	Seed    uint64     // of all jitter: the same seed, the same delays
	Scripts []Script   // tried in order; DefaultScript comes last
	// CUDA is the version that hosts report for pods with GPUs, other than AMD's. Default
	// "12.8".
	CUDA string
}

// Runtime is a pods.Runtime whose containers exist in name only: they go through the
// stages of their script. It has the powers pods.Logs, pods.Sampler and pods.Notifier. It
// is safe for concurrent use and has no goroutines: everything happens in calls and in
// functions of its clock.
type Runtime struct {
	clock   pods.Clock
	seed    uint64
	scripts []Script
	cuda    string

	mu         sync.Mutex
	containers map[string]*simContainer
	listeners  map[*simListener]bool
	news       []pods.State // not delivered yet
	delivering bool
	ports      int // published so far
	addresses  int // given out so far
}

var (
	_ pods.Runtime  = (*Runtime)(nil)
	_ pods.Logs     = (*Runtime)(nil)
	_ pods.Sampler  = (*Runtime)(nil)
	_ pods.Notifier = (*Runtime)(nil)
)

type simListener struct{ f func(pods.State) }

// simContainer is one container.
type simContainer struct {
	spec   pods.Spec
	script *Script
	state  pods.State
	stage  int         // index of the present stage
	epoch  uint64      // grows with each order, so that timers of older ones do nothing
	stop   func() bool // the timer of the next stage
	endBy  time.Time   // when a stop that is under way ends it; zero: there is none
	log    simLog

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

// CUDAVersion implements pods.CUDAHost.
func (r *Runtime) CUDAVersion() string { return r.cuda }

// Capabilities implements pods.Runtime.
func (r *Runtime) Capabilities() pods.Capabilities {
	return pods.Capabilities{GPUs: true, DiskLimit: true, Networks: true, Pull: true}
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
	case c.state.Phase < pods.Down:
		r.end(c, pods.State{Phase: pods.Down, Stopped: true, Reason: "replaced"})
	}
	again := c.spec.Gen == s.Gen && c.state.Phase != pods.Failed
	c.spec, c.script = s, r.scriptOf(s.Image)
	c.cancel()
	c.state = pods.State{PodID: s.PodID, Gen: s.Gen, Run: s.Run, Phase: pods.Pulling, At: r.clock.Now()}
	c.stage = 0
	if again {
		for c.stage < len(c.script.Stages)-1 && c.script.Stages[c.stage].Phase == pods.Pulling {
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

// AddScript has containers that are made from now on behave by s, before the scripts
// there are.
func (r *Runtime) AddScript(s Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts = append([]Script{s}, r.scripts...)
}

// Kill ends a container by itself, as a crash does. One that is not there: nothing.
func (r *Runtime) Kill(podID string, exitCode int, reason string) {
	r.mu.Lock()
	if c := r.containers[podID]; c != nil && c.state.Phase < pods.Down {
		r.end(c, pods.State{Phase: pods.Down, ExitCode: exitCode, Reason: reason})
	}
	r.mu.Unlock()
	r.deliver()
}

// cancel makes the timer of the next stage do nothing.
func (c *simContainer) cancel() {
	c.epoch++
	c.endBy = time.Time{}
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

// end makes c what st says of its end.
func (r *Runtime) end(c *simContainer, st pods.State) {
	c.cancel()
	c.state.Phase, c.state.At = st.Phase, r.clock.Now()
	c.state.ExitCode, c.state.Stopped, c.state.Reason = st.ExitCode, st.Stopped, st.Reason
	c.state.Ports, c.state.IP = nil, ""
	r.news = append(r.news, simCopy(c.state))
}

// Stop implements pods.Runtime.
func (r *Runtime) Stop(ctx context.Context, podID string, grace time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	c := r.containers[podID]
	if c == nil || c.state.Phase >= pods.Down {
		r.mu.Unlock()
		return nil
	}
	wait, code := c.script.StopAfter, 0
	if c.script.StopAfter > grace {
		wait, code = grace, 137
	}
	at := r.clock.Now().Add(wait)
	if !c.endBy.IsZero() && !at.Before(c.endBy) {
		r.mu.Unlock()
		return nil // it ends before that: a later call does not give it more time
	}
	c.cancel()
	ended := pods.State{Phase: pods.Down, Stopped: true, ExitCode: code}
	if wait <= 0 || c.state.Phase == pods.Pulling {
		r.end(c, ended)
		r.mu.Unlock()
		r.deliver()
		return nil
	}
	epoch := c.epoch
	c.endBy = at
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

// Remove implements pods.Runtime. It does not wait: nothing has to end.
func (r *Runtime) Remove(ctx context.Context, podID string, _ time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	c := r.containers[podID]
	if c != nil {
		if c.state.Phase < pods.Down {
			r.end(c, pods.State{Phase: pods.Down, Stopped: true, Reason: "removed"})
		}
		c.cancel()
		delete(r.containers, podID)
		c.log.close()
	}
	r.mu.Unlock()
	r.deliver()
	return nil
}

// List implements pods.Runtime. Its order is that of the ids.
func (r *Runtime) List(ctx context.Context) ([]pods.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]pods.State, 0, len(r.containers))
	for _, c := range r.containers {
		list = append(list, simCopy(c.state))
	}
	slices.SortFunc(list, func(a, b pods.State) int { return cmp.Compare(a.PodID, b.PodID) })
	return list, ctx.Err()
}

// Watch implements pods.Runtime.
func (r *Runtime) Watch(ctx context.Context, f func(pods.State)) error {
	defer r.Notify(f)()
	<-ctx.Done()
	return ctx.Err()
}

// Notify implements pods.Notifier.
func (r *Runtime) Notify(f func(pods.State)) (stop func()) {
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

// deliver tells the listeners what is new, in order, from one caller at a time: others
// leave what they have to the one who is at it.
func (r *Runtime) deliver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.delivering {
		return
	}
	r.delivering = true
	for len(r.news) > 0 {
		news := r.news
		r.news = nil
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
