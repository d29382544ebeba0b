package process

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// A pod is the state of one pod on this host. Every change is a job, and the jobs of a pod run
// one after the other. So a call returns when its job is in the queue, and an exit is never
// mixed up with a start.
type pod struct {
	r    *Runtime
	id   string
	over chan struct{} // closed when it is removed

	jobs podhost.Queue

	mu               sync.Mutex
	state            pods.ContainerState // as List shows it; Gen and Run are the last ones that were asked for
	known            bool                // state is set
	startInterrupted bool                // the server crashed before Gen and Run were started
	removals         int                 // calls of Remove that wait or have ended
	published        *proc               // proc, for readers

	// Used by jobs only.
	rec    record
	proc   *proc
	policy *policy // of the last start
}

func (r *Runtime) newPod(id string) *pod {
	return &pod{r: r, id: id, over: make(chan struct{}), jobs: podhost.Queue{Go: r.start}}
}

// gone reports whether no line of its log will come.
func (p *pod) gone() bool {
	select {
	case <-p.over:
	case <-p.r.closed:
	default:
		return false
	}
	return true
}

// do queues a job. It is dropped if the pod has been removed when its turn comes: its directory may
// be another pod's of the same id by then.
func (p *pod) do(job func()) {
	p.jobs.Do(func() {
		select {
		case <-p.over:
		default:
			job()
		}
	})
}

func (p *pod) currentState() (pods.ContainerState, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return podhost.CopyState(p.state), p.known
}

// queueRemoval queues the removal; from now on Ensure is refused. The job is never dropped, because
// somebody waits for its result.
func (p *pod) queueRemoval(job func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removals++
	p.jobs.Do(job)
}

// ensure accepts s unless it was asked for already. The state shows it at once, so that List
// after Ensure has it.
func (p *pod) ensure(s pods.Spec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removals > 0 {
		return errors.New("it is being removed")
	}
	if p.known && p.state.Gen == s.Gen && s.Run <= p.state.Run && !p.startInterrupted {
		return nil
	}
	p.startInterrupted = false
	if p.published != nil {
		p.published.shortenGrace(podhost.Grace(&s, p.r.opts.Grace))
	}
	p.setLocked(pods.ContainerState{PodID: s.PodID, Gen: s.Gen, Run: s.Run, Phase: pods.PhasePulling, At: time.Now()})
	p.do(func() { p.start(s) })
	return nil
}

// setLocked sets the state and reports it to the hub; the caller holds mu. It reports under the
// lock so that watchers see states in order.
func (p *pod) setLocked(s pods.ContainerState) {
	p.state, p.known = s, true
	p.r.hub.Send(s)
}

// publish records a state, and shows it unless another run was asked for meanwhile.
func (p *pod) publish(s pods.ContainerState) {
	s.At = time.Now()
	p.rec.State = s
	p.save()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Gen == s.Gen && p.state.Run == s.Run {
		p.setLocked(s)
	}
}

// save writes the record. A failure does not fail the pod: only the next server misses the last
// change.
func (p *pod) save() {
	if err := p.rec.write(p.r.root.record(p.id)); err != nil {
		p.r.opts.Logger.Error("process: state of a pod cannot be written", "pod", p.id, "err", err)
	}
}

func (p *pod) setProc(x *proc) {
	p.proc = x
	p.mu.Lock()
	defer p.mu.Unlock()
	p.published = x
}

// stop is the job of Stop. A reason replaces the text about how it ended.
func (p *pod) stop(grace time.Duration, reason string) {
	x := p.proc
	if x == nil {
		p.cancelStart(reason)
		return
	}
	if !x.Over() {
		x.stopRequested, x.reason = true, reason
		p.terminate(x, grace)
	}
	p.recordExit(x)
}

// cancelStart stops a pod whose start was interrupted by a crash of the server.
func (p *pod) cancelStart(reason string) {
	p.mu.Lock()
	again := p.startInterrupted
	p.startInterrupted = false
	p.mu.Unlock()
	if again {
		s := p.rec.State
		s.Phase, s.Stopped, s.Reason = pods.PhaseExited, true, cmp.Or(reason, "stopped before it was started")
		p.publish(s)
	}
}

// terminate returns when nothing of x is left.
func (p *pod) terminate(x *proc, grace time.Duration) {
	x.shortenGrace(grace)
	if x.graceLeft() > 0 {
		p.r.driver.Terminate(x.Proc)
	}
	x.exitGrace(p.r.killNow)
	x.killed = x.stopRequested && !x.Over()
	p.r.driver.Kill(x.Proc)
}

// shortenGrace makes a job that waits for the end of the pod's process wait at most grace, so
// that a new call waits no longer for its turn.
func (p *pod) shortenGrace(grace time.Duration) {
	p.mu.Lock()
	x := p.published
	p.mu.Unlock()
	if x != nil {
		x.shortenGrace(grace)
	}
}

// recordExit is the job that follows an exit.
func (p *pod) recordExit(x *proc) {
	<-x.Ended
	if p.proc != x {
		return
	}
	p.setProc(nil)
	p.rec.Running = false
	s := p.rec.State
	s.Phase, s.Ports = pods.PhaseExited, nil
	s.ExitCode, s.Reason = x.Exit.Code, x.Exit.Reason
	s.Stopped, s.Killed = x.stopRequested, x.killed
	if x.Exit.OOM && !x.stopRequested {
		s.OOM, s.Reason = true, "killed, as it seems for want of memory"
	}
	if x.reason != "" {
		s.Reason = x.reason
	}
	if x.failure != "" {
		s.Phase, s.Stopped, s.Reason = pods.PhaseFailed, false, x.failure
	}
	if x.KillErr != nil {
		s.Reason += "; " + x.KillErr.Error()
	}
	p.publish(s)
}

// markHealthy is the job that follows when a pod became healthy.
func (p *pod) markHealthy(x *proc) {
	if p.proc != x || x.Over() || p.rec.State.Phase != pods.PhaseStarting {
		return
	}
	s := p.rec.State
	s.Phase = pods.PhaseHealthy
	p.publish(s)
}

// remove is the job of Remove.
func (p *pod) remove(grace time.Duration) error {
	if p.r.pods.Find(p.id) != p {
		return nil // an earlier call removed it; the id now belongs to another pod
	}
	x := p.proc
	p.stop(grace, "")
	var err error
	if x != nil {
		err = x.KillErr
	}
	if err == nil {
		err = p.r.trash.Put(p.r.root.pod(p.id))
	}
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.removals--
		return err
	}
	p.r.ports.Release(p.rec.Ports)
	p.rec = record{}
	p.r.pods.Forget(p.id, p)
	close(p.over)
	return nil
}
