package kube

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// A pod brings one pod to what was wished last. One goroutine does it, a step at a time, and looks again
// when the wish or the Pod has changed. So calls that come faster than the cluster works are one.
type pod struct {
	r       *Runtime
	id      string
	changed chan struct{} // has one token while there is something to look at
	removed chan struct{} // closed when nothing of the pod is left, or the Runtime is closed

	mu          sync.Mutex
	wish        wish
	state       pods.ContainerState // as List shows it, empty: there is none; its Gen and Run are those of the wish
	interrupted bool                // the state's run was not made, because the server ended
	seen        *corev1.Pod         // as the cluster showed it last; nil: there is none
	last        *corev1.Pod         // the one that went away last
	turn        chan struct{}       // closed when seen changes; nil while nobody waits
	spool       []pods.LogLine      // the last lines of the runs before that of seen; never changed in place
	spooled     types.UID           // the Pod whose log is in spool

	// Only the goroutine uses the fields below.
	rec    record
	secret *corev1.Secret // as it was written last
	made   runKey         // the last run whose Pod was made
}

// A wish is what the last calls ask for.
type wish struct {
	spec   *pods.Spec // nil: known from an earlier server, and not asked for since
	stop   bool
	remove bool
	grace  time.Duration // of remove
}

type runKey struct{ gen, run uint64 }

func keyOf(s *pods.ContainerState) runKey { return runKey{s.Gen, s.Run} }

func keyOfPod(p *corev1.Pod) runKey {
	gen, err1 := parseLabel(p.Labels, labelGen)
	run, err2 := parseLabel(p.Labels, labelRun)
	if err1 != nil || err2 != nil {
		return runKey{} // of no run, because runs begin with 1
	}
	return runKey{gen, run}
}

func (r *Runtime) newPod(id string) *pod {
	p := &pod{r: r, id: id, changed: make(chan struct{}, 1), removed: make(chan struct{})}
	r.work.Go(r.lifetime(p.run))
	return p
}

func (p *pod) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// restore takes over what an earlier Runtime knew.
func (p *pod) restore(s *corev1.Secret, rec *record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = rec.State
	p.interrupted = rec.State.Phase == pods.PhasePulling
	p.rec, p.secret = *rec, s // the goroutine waits for a first wake
	if !p.interrupted {
		p.made = keyOf(&rec.State)
	}
	p.wake()
}

func (p *pod) current() (pods.ContainerState, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return podhost.CopyState(p.state), p.state.PodID != ""
}

// ensure accepts s unless it was accepted before. It sets the state at once, so that a List after Ensure
// shows the new run.
func (p *pod) ensure(s *pods.Spec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wish.remove {
		return errors.New("it is being removed")
	}
	if p.state.PodID != "" && p.state.Gen == s.Gen && s.Run <= p.state.Run && !p.interrupted {
		return nil
	}
	p.interrupted = false
	p.wish = wish{spec: s}
	p.setLocked(pods.ContainerState{PodID: s.PodID, Gen: s.Gen, Run: s.Run, Phase: pods.PhasePulling, At: time.Now()})
	p.wake()
	return nil
}

func (p *pod) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wish.stop = true
	p.wake()
}

func (p *pod) remove(grace time.Duration) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wish.remove, p.wish.grace = true, grace
	p.wake()
	return p.removed
}

// setLocked sets the state. The caller holds mu, so that watchers see states in order.
func (p *pod) setLocked(s pods.ContainerState) {
	p.state = s
	p.r.hub.Send(s)
}

// show is called with each state of the Pod.
func (p *pod) show(obj *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.showLocked(obj)
}

func (p *pod) showLocked(obj *corev1.Pod) {
	p.seen = obj
	p.turnLocked()
	if p.state.PodID == "" { // its record is lost
		k := keyOfPod(obj)
		p.state = pods.ContainerState{PodID: p.id, Gen: k.gen, Run: k.run, At: time.Now()}
	}
	if keyOfPod(obj) == keyOf(&p.state) {
		p.interrupted = false
	}
	p.wake()
}

// created is show for a Pod that was just made. The watch may have been faster, and know more.
func (p *pod) created(obj *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := func(o *corev1.Pod) bool { return o != nil && o.UID == obj.UID }
	if !known(p.seen) && !known(p.last) {
		p.showLocked(obj)
	}
}

// vanish is called when the Pod is gone.
func (p *pod) vanish(obj *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = obj
	p.turnLocked()
	if p.seen != nil && p.seen.UID == obj.UID {
		p.seen = nil
	}
	p.wake()
}

// run is the goroutine of p. It ends when the pod is removed or ctx ends.
func (p *pod) run(ctx context.Context) {
	defer close(p.removed)
	timer := time.AfterFunc(time.Hour, p.wake)
	defer timer.Stop()
	select {
	case <-p.r.listed:
	case <-ctx.Done():
		return
	}
	for {
		select {
		case <-p.changed:
		case <-ctx.Done():
			return
		}
		timer.Stop()
		again, done := p.step(ctx)
		if done {
			return
		}
		if again > 0 {
			timer.Reset(again)
		}
	}
}

// retry is the time after which a step is tried again that the API server did not take.
const retry = time.Second

// step brings p nearer to its wish. It returns when to look again, 0 for the next change, and whether the
// pod is removed.
func (p *pod) step(ctx context.Context) (again time.Duration, done bool) {
	v := p.look()
	var err error
	switch {
	case v.wish.remove:
		again, done, err = p.erase(ctx, &v)
	case v.seen != nil && keyOfPod(v.seen) != keyOf(&v.state):
		err = p.replace(ctx, &v)
	case v.seen != nil:
		again, err = p.follow(ctx, &v)
	case final(v.state.Phase):
	case v.wish.stop:
		p.publish(ctx, stopped(v.state, "", time.Now()))
	case p.made == keyOf(&v.state):
		p.publish(ctx, p.taken(&v))
	case v.wish.spec != nil:
		err = p.start(ctx, &v)
	}
	if err != nil && ctx.Err() == nil {
		p.r.opts.Logger.Warn("kube: a step of a pod is tried again", "pod", p.id, "err", err)
		return retry, false
	}
	return again, done
}

// A view is what a step decides by.
type view struct {
	wish  wish
	state pods.ContainerState
	seen  *corev1.Pod
	last  *corev1.Pod
}

func (p *pod) look() view {
	p.mu.Lock()
	defer p.mu.Unlock()
	return view{p.wish, podhost.CopyState(p.state), p.seen, p.last}
}

func stopped(s pods.ContainerState, reason string, at time.Time) pods.ContainerState {
	s.Phase, s.Stopped, s.Reason, s.Ports, s.IP, s.At = pods.PhaseExited, true, reason, nil, "", at
	return s
}

// taken is the state of a pod whose Pod was deleted: by a stop before it had a node, or by others.
func (p *pod) taken(v *view) pods.ContainerState {
	s := stopped(v.state, "", time.Now())
	if v.last == nil || keyOfPod(v.last) != keyOf(&v.state) {
		s.Reason = deletedByOthers
		return s
	}
	if c := status(v.last); c != nil && c.State.Terminated != nil {
		s.ExitCode = int(c.State.Terminated.ExitCode)
	}
	if !v.wish.stop {
		s.Reason = deletedByOthers
	}
	return s
}

// follow publishes what the Pod of the run shows, and stops it if that is asked.
func (p *pod) follow(ctx context.Context, v *view) (again time.Duration, err error) {
	p.made = keyOf(&v.state)
	now := time.Now()
	s := v.state
	if !final(s.Phase) {
		s = p.r.opts.observe(v.seen, v.state, now)
		if v.wish.stop && s.Reason == deletedByOthers {
			s.Reason = ""
		}
		if s.Phase == pods.PhaseStarting || s.Phase == pods.PhaseHealthy {
			s.Ports = p.r.opts.mappings(p.rec.Want, p.rec.Ports, &v.seen.Status)
		}
		p.publish(ctx, s)
	}
	switch {
	case terminal(v.seen):
		return 0, nil
	case final(s.Phase): // the kubelet would go on trying
		return 0, p.deletePod(ctx, v.seen, p.r.opts.Grace)
	case v.wish.stop && v.seen.Spec.NodeName == "":
		return 0, p.deletePod(ctx, v.seen, p.r.opts.Grace)
	case v.wish.stop && v.seen.Spec.ActiveDeadlineSeconds == nil:
		return 0, p.setDeadline(ctx, v.seen)
	}
	return p.r.opts.patience(v.seen, now), nil
}

// replace ends the Pod of an earlier run. One that may take its time is stopped first, so that the end of its
// log can be read.
func (p *pod) replace(ctx context.Context, v *view) error {
	grace := p.r.opts.Grace
	if v.wish.spec != nil {
		grace = min(grace, podhost.Grace(v.wish.spec, grace))
	}
	if v.seen.DeletionTimestamp != nil {
		return nil
	}
	if hasRun(v.seen) && !terminal(v.seen) && grace == p.r.opts.Grace {
		if v.seen.Spec.ActiveDeadlineSeconds == nil {
			return p.setDeadline(ctx, v.seen)
		}
		return nil
	}
	p.saveLog(ctx, v.seen, v.state.Gen)
	return p.deletePod(ctx, v.seen, grace)
}

// publish shows a state unless it is the one that is shown, or another run was accepted meanwhile. What a
// new server must know is kept first.
func (p *pod) publish(ctx context.Context, s pods.ContainerState) {
	was, _ := p.current()
	if same(was, s) {
		return
	}
	if s.Phase != was.Phase && (final(s.Phase) || s.Phase == pods.PhaseHealthy) {
		p.keep(ctx, s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if keyOf(&p.state) == keyOf(&s) {
		p.setLocked(s)
	}
}

func same(a, b pods.ContainerState) bool {
	if len(a.Ports) != len(b.Ports) {
		return false
	}
	for i := range a.Ports {
		if a.Ports[i] != b.Ports[i] {
			return false
		}
	}
	return a.Phase == b.Phase && a.Reason == b.Reason && a.Started.Equal(b.Started) && a.Stopped == b.Stopped &&
		a.ExitCode == b.ExitCode && keyOf(&a) == keyOf(&b)
}

// deadlinePatch asks the kubelet to end a Pod. Unlike a DELETE it leaves the code and the log.
const deadlinePatch = `{"spec":{"activeDeadlineSeconds":1}}`

const patchType = types.StrategicMergePatchType
