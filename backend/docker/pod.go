package docker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// A pod is what this host has of one pod. Everything that happens to it is a job, and its
// jobs run one after the other: a call returns when its job is in the queue, and an exit
// cannot cross a start.
type pod struct {
	r    *Runtime
	id   string
	jobs podhost.Queue

	mu               sync.Mutex
	refreshQueued    bool                // a look is in the queue
	state            pods.ContainerState // as List shows it, empty: there is none; its Gen and Run are the last that were asked for
	startInterrupted bool                // the state's Gen and Run were never started: the server ended over it
	removals         int                 // calls of Remove that wait for their turn, or have removed it
	startCancel      chan struct{}
	deadline         time.Time     // when the patience with its container ends; zero: never
	deadlineChanged  chan struct{} // closed when deadline gets nearer
	changed          chan struct{} // closed at the next change, for followers; nil: there is none, it is gone or the Runtime is closed

	limits struct{ VCPU, Memory int } // those of rec, for samples
	load   podhost.CPULoad

	// What only jobs use.
	rec        record
	unverified bool      // rec is of another server, and was not compared with the engine
	checked    time.Time // start of the container whose health we look after
}

func (r *Runtime) newPod(id string) *pod {
	return &pod{r: r, id: id, jobs: podhost.Queue{Go: r.work.Go}, deadlineChanged: make(chan struct{}), changed: make(chan struct{})}
}

// do queues a job. Its context ends with Close.
func (p *pod) do(job func(context.Context)) { p.jobs.Do(p.r.lifetime(job)) }

func (p *pod) currentState() (pods.ContainerState, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return podhost.CopyState(p.state), p.known()
}

// known reports whether there is a state, for who holds mu.
func (p *pod) known() bool { return p.state.PodID != "" }

// queueRemoval queues the removal; from now on Ensure is refused.
func (p *pod) queueRemoval(job func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removals++
	p.do(job)
}

// ensure accepts s unless it is what was asked for already. The state shows it at once,
// so that whoever lists after Ensure finds what it asked for.
func (p *pod) ensure(s pods.Spec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removals > 0 {
		return errors.New("it is being removed")
	}
	if p.known() && p.state.Gen == s.Gen && s.Run <= p.state.Run && !p.startInterrupted {
		return nil
	}
	p.startInterrupted = false
	p.cancelStartLocked()
	p.shortenGraceLocked(p.r.opts.Grace)
	halted := make(chan struct{})
	p.startCancel = halted
	p.setLocked(pods.ContainerState{PodID: s.PodID, Gen: s.Gen, Run: s.Run, Phase: pods.PhasePulling, At: time.Now()})
	p.do(func(ctx context.Context) { p.start(ctx, s, halted) })
	return nil
}

// cancelStart ends a start that has not come to making a container.
func (p *pod) cancelStart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancelStartLocked()
}

func (p *pod) cancelStartLocked() {
	if p.startCancel != nil {
		close(p.startCancel)
		p.startCancel = nil
	}
}

// setLocked shows a state, for who holds mu. The hub is told under the lock so that watchers
// see the order in which states were set.
func (p *pod) setLocked(s pods.ContainerState) {
	p.state = s
	p.wakeLocked()
	p.r.hub.Send(s)
}

// wakeLocked tells those who wait for a change, for who holds mu.
func (p *pod) wakeLocked() {
	if p.changed != nil {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// closeWaiters ends those who wait for a change: there are none to come.
func (p *pod) closeWaiters() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// wakeWaiters makes who waits look again.
func (p *pod) wakeWaiters() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeLocked()
}

// changes returns what is closed at the next change, and whether one can come.
func (p *pod) changes() (changed <-chan struct{}, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed, p.changed != nil
}

// publish records a state and shows it, unless something else was asked for meanwhile: then
// it is history.
func (p *pod) publish(s pods.ContainerState) {
	s.At = time.Now()
	p.rec.State = s
	p.save()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known() || p.state.Gen == s.Gen && p.state.Run == s.Run {
		p.limits.VCPU, p.limits.Memory = p.rec.VCPU, p.rec.Memory
		p.setLocked(s)
	}
}

// save writes the record. A failure is not the pod's: it costs the next server what the
// engine cannot say, and this one nothing.
func (p *pod) save() {
	if err := p.r.dir.write(p.rec); err != nil {
		p.r.opts.Logger.Error("docker: the record of a pod cannot be written", "pod", p.id, "err", err)
	}
}

// superseded says whether another container than that of s has been asked for.
func (p *pod) superseded(s pods.Spec) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Gen != s.Gen || p.state.Run != s.Run
}

// clearInterrupted takes back that the present run is to be asked for again.
func (p *pod) clearInterrupted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.startInterrupted = false
}

// shortenGrace makes whoever waits for the end of the container wait no longer than grace.
func (p *pod) shortenGrace(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shortenGraceLocked(grace)
}

func (p *pod) shortenGraceLocked(grace time.Duration) {
	if d := time.Now().Add(grace); p.deadline.IsZero() || d.Before(p.deadline) {
		p.deadline = d
		close(p.deadlineChanged)
		p.deadlineChanged = make(chan struct{})
	}
}

// graceLeft is how long to wait yet, and what tells that it is less.
func (p *pod) graceLeft() (time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.deadline), p.deadlineChanged
}

// clearDeadline forgets deadlines: they were for a container that has ended.
func (p *pod) clearDeadline() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = time.Time{}
}
