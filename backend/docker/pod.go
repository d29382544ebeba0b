package docker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// A pod is the state of one pod on this host. Every action on it is a job, and jobs run one
// at a time, in order. Calls such as Ensure return when the job is queued. An exit and a
// start are never handled at the same time.
type pod struct {
	r    *Runtime
	id   string
	jobs podhost.Queue

	mu               sync.Mutex
	refreshQueued    bool                // a refresh is in the queue
	state            pods.ContainerState // as List shows it, empty: there is none; its Gen and Run are the last that Ensure accepted
	startInterrupted bool                // the state's Gen and Run were never started, because the server stopped
	removals         int                 // calls of Remove that wait, or have removed it
	startCancel      chan struct{}
	deadline         time.Time     // when its container gets SIGKILL; zero: never
	deadlineChanged  chan struct{} // closed when deadline gets earlier
	signalled        time.Time     // when the engine last sent a signal to its container
	signalledAt      time.Time     // the same by the clock of the engine
	lookAgain        time.Time     // when a refresh follows because of mayEndWithEngine; zero: none does
	changed          chan struct{} // closed at the next change; nil: no more changes, the pod is removed or the Runtime is closed

	limits struct{ VCPU, Memory int } // copied from rec, for samples
	load   podhost.CPULoad

	nextDisk time.Time // when its disk is measured again; only watchDisks uses it

	// Only jobs use the fields below.
	rec        record
	engineRun  uint64    // Runtime.engineRuns when the container was started, or last seen running
	unverified bool      // rec is from an earlier server, and was not compared with the engine yet
	checked    time.Time // start time of the container whose health check runs here
}

func (r *Runtime) newPod(id string) *pod {
	return &pod{r: r, id: id, engineRun: r.engineRuns.Load(), jobs: podhost.Queue{Go: r.work.Go}, deadlineChanged: make(chan struct{}), changed: make(chan struct{})}
}

// do queues a job. Close cancels its context. It is dropped if the pod has been removed when its turn
// comes: the container and the record of its id may be another pod's by then.
func (p *pod) do(job func(context.Context)) {
	p.jobs.Do(p.r.lifetime(func(ctx context.Context) {
		if _, open := p.changes(); open {
			job(ctx)
		}
	}))
}

func (p *pod) currentState() (pods.ContainerState, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return podhost.CopyState(p.state), p.known()
}

// known reports whether there is a state. The caller holds mu.
func (p *pod) known() bool { return p.state.PodID != "" }

// queueRemoval queues the removal. From now on ensure returns an error. The job is never dropped, because
// somebody waits for its result.
func (p *pod) queueRemoval(job func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removals++
	p.jobs.Do(p.r.lifetime(job))
}

// ensure accepts s unless s was accepted before. It sets the state at once, so that a List
// after Ensure shows the new Gen and Run.
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
	p.shortenGraceLocked(podhost.Grace(&s, defaultGrace))
	halted := make(chan struct{})
	p.startCancel = halted
	p.setLocked(pods.ContainerState{PodID: s.PodID, Gen: s.Gen, Run: s.Run, Phase: pods.PhasePulling, At: time.Now()})
	p.do(func(ctx context.Context) { p.start(ctx, s, halted) })
	return nil
}

// cancelStart cancels a start that has not created a container yet.
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

// setLocked sets the state. The caller holds mu. The state goes to the hub under mu, so
// that watchers see states in order.
func (p *pod) setLocked(s pods.ContainerState) {
	p.state = s
	p.wakeLocked()
	p.r.hub.Send(s)
}

// wakeLocked wakes those who wait for a change. The caller holds mu.
func (p *pod) wakeLocked() {
	if p.changed != nil {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// closeWaiters wakes those who wait for a change, for the last time.
func (p *pod) closeWaiters() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// wakeWaiters wakes those who wait for a change.
func (p *pod) wakeWaiters() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeLocked()
}

// changes returns a channel that is closed at the next change, and whether changes can
// come.
func (p *pod) changes() (changed <-chan struct{}, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed, p.changed != nil
}

// publish saves a state, and shows it unless Ensure has accepted another generation or run
// meanwhile.
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

// save writes the record. A failure is logged and does not fail the pod: this server has
// the record in memory, and the next server loses only what the engine does not know.
func (p *pod) save() {
	if err := p.r.dir.write(p.rec); err != nil {
		p.r.opts.Logger.Error("docker: the record of a pod cannot be written", "pod", p.id, "err", err)
	}
}

// superseded reports whether Ensure has accepted another generation or run than that of s.
func (p *pod) superseded(s pods.Spec) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Gen != s.Gen || p.state.Run != s.Run
}

// clearInterrupted cancels the repetition of an interrupted start.
func (p *pod) clearInterrupted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.startInterrupted = false
}

// defaultGrace is between the stop signal and SIGKILL for a container that is replaced.
const defaultGrace = time.Second

// shortenGrace makes a wait for the container's end last at most grace from now.
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

// graceLeft returns the time until deadline, and a channel that is closed when deadline
// gets earlier.
func (p *pod) graceLeft() (time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.deadline), p.deadlineChanged
}

// clearDeadline removes the deadline: its container has ended.
func (p *pod) clearDeadline() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = time.Time{}
}
