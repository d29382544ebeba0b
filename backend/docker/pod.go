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

	mu       sync.Mutex
	looking  bool       // a look is in the queue
	state    pods.State // as List shows it; its Gen and Run are the last that were asked for
	known    bool       // there is a state
	again    bool       // the state's Gen and Run were never started: the server ended over it
	going    int        // calls of Remove that wait for their turn, or have removed it
	gone     bool       // nothing of it is left, or the Runtime is closed
	halting  chan struct{}
	deadline time.Time     // when the patience with its container ends; zero: never
	hastened chan struct{} // closed when deadline gets nearer
	changed  chan struct{} // closed at the next change, for followers

	limits struct{ VCPU, Memory int } // those of rec, for samples
	load   podhost.Load

	// What only jobs use.
	rec       record
	inherited bool      // rec is of another server, and was not compared with the engine
	checked   time.Time // start of the container whose health we look after
}

func (r *Runtime) newPod(id string) *pod {
	return &pod{r: r, id: id, jobs: podhost.Queue{Go: r.work.Go}, hastened: make(chan struct{}), changed: make(chan struct{})}
}

// do queues a job. Its context ends with Close.
func (p *pod) do(job func(context.Context)) { p.jobs.Do(p.r.lifetime(job)) }

func (p *pod) seen() (pods.State, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return podhost.CopyState(p.state), p.known
}

// leave queues the removal; from now on Ensure is refused.
func (p *pod) leave(job func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.going++
	p.do(job)
}

// ensure accepts s unless it is what was asked for already. The state shows it at once,
// so that whoever lists after Ensure finds what it asked for.
func (p *pod) ensure(s pods.Spec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.going > 0 {
		return errors.New("it is being removed")
	}
	if p.known && p.state.Gen == s.Gen && s.Run <= p.state.Run && !p.again {
		return nil
	}
	p.again = false
	p.haltLocked()
	p.hastenLocked(p.r.opts.Grace)
	halted := make(chan struct{})
	p.halting = halted
	p.set(pods.State{PodID: s.PodID, Gen: s.Gen, Run: s.Run, Phase: pods.Pulling, At: time.Now()})
	p.do(func(ctx context.Context) { p.start(ctx, s, halted) })
	return nil
}

// halt ends a start that has not come to making a container.
func (p *pod) halt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.haltLocked()
}

func (p *pod) haltLocked() {
	if p.halting != nil {
		close(p.halting)
		p.halting = nil
	}
}

// set shows a state, for who holds mu. The hub is told under the lock so that watchers
// see the order in which states were set.
func (p *pod) set(s pods.State) {
	p.state, p.known = s, true
	p.wake()
	p.r.hub.Send(s)
}

// wake tells those who wait for a change, for who holds mu.
func (p *pod) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// part ends those who wait for a change: there are none to come.
func (p *pod) part() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	p.wake()
}

// rouse makes who waits look again.
func (p *pod) rouse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake()
}

// waiter returns what is closed at the next change, and whether one can come.
func (p *pod) waiter() (changed <-chan struct{}, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed, !p.gone
}

// show records a state and shows it, unless something else was asked for meanwhile: then
// it is history.
func (p *pod) show(s pods.State) {
	s.At = time.Now()
	p.rec.State = s
	p.save()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known || p.state.Gen == s.Gen && p.state.Run == s.Run {
		p.limits.VCPU, p.limits.Memory = p.rec.VCPU, p.rec.Memory
		p.set(s)
	}
}

// save writes the record. A failure is not the pod's: it costs the next server what the
// engine cannot say, and this one nothing.
func (p *pod) save() {
	if err := p.r.dir.write(p.rec); err != nil {
		p.r.opts.Logger.Error("docker: the record of a pod cannot be written", "pod", p.id, "error", err)
	}
}

// superseded says whether another container than that of s has been asked for.
func (p *pod) superseded(s pods.Spec) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Gen != s.Gen || p.state.Run != s.Run
}

// settle takes back that the present run is to be asked for again.
func (p *pod) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.again = false
}

// hasten makes whoever waits for the end of the container wait no longer than grace.
func (p *pod) hasten(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hastenLocked(grace)
}

func (p *pod) hastenLocked(grace time.Duration) {
	if d := time.Now().Add(grace); p.deadline.IsZero() || d.Before(p.deadline) {
		p.deadline = d
		close(p.hastened)
		p.hastened = make(chan struct{})
	}
}

// patience is how long to wait yet, and what tells that it is less.
func (p *pod) patience() (time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.deadline), p.hastened
}

// calm forgets deadlines: they were for a container that has ended.
func (p *pod) calm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = time.Time{}
}
