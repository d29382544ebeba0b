package double

import (
	"context"
	"sync"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/faultplan"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem/idempotency"
)

// A podStore is the product's store of pods, watched.
type podStore struct {
	pods.PodStore
	act  *activity
	wake func()
}

// Unwrap returns the wrapped store.
func (s *podStore) Unwrap() pods.PodStore { return s.PodStore }

func (s *podStore) changed() {
	s.act.bump()
	s.wake()
}

func (s *podStore) Create(ctx context.Context, p *pods.Pod) error {
	err := s.PodStore.Create(ctx, p)
	if err == nil {
		s.changed()
	}
	return err
}

func (s *podStore) CreateKeyed(ctx context.Context, p *pods.Pod, k idempotency.Record) error {
	err := s.PodStore.CreateKeyed(ctx, p, k)
	if err == nil {
		s.changed()
	}
	return err
}

func (s *podStore) CreateAll(ctx context.Context, list []*pods.Pod, k *idempotency.Record) error {
	err := s.PodStore.CreateAll(ctx, list, k)
	if err == nil {
		s.changed()
	}
	return err
}

func (s *podStore) Update(ctx context.Context, id string, fn func(*pods.Pod) error) (*pods.Pod, error) {
	p, err := s.PodStore.Update(ctx, id, fn)
	if err == nil {
		s.changed()
	}
	return p, err
}

func (s *podStore) Delete(ctx context.Context, id string, fn func(*pods.Pod) error) error {
	err := s.PodStore.Delete(ctx, id, fn)
	if err == nil {
		s.changed()
	}
	return err
}

// Images that faults use instead of others. The simulation has scripts for them.
const (
	imageUnpullable = "podyard.test/unpullable"
	imageUnhealthy  = "podyard.test/unhealthy"
	imageCrashing   = "podyard.test/crashing"
	imageOOM        = "podyard.test/out-of-memory"
)

var imageOfFault = map[string]string{
	FaultPull: imageUnpullable, FaultUnhealthy: imageUnhealthy, FaultCrash: imageCrashing, FaultOOM: imageOOM,
}

// faultScripts are the scripts of containers with a fault.
func faultScripts() []memory.Script {
	begin := func(rest ...memory.Stage) []memory.Stage {
		return append([]memory.Stage{{Phase: pods.PhasePulling}}, rest...)
	}
	coming := memory.Stage{Phase: pods.PhaseStarting, After: 500 * time.Millisecond}
	up := memory.Stage{Phase: pods.PhaseHealthy, After: 500 * time.Millisecond, Lines: []string{"ready"}}
	return []memory.Script{
		{Image: imageUnpullable, Stages: begin(memory.Stage{
			Phase: pods.PhaseFailed, After: 500 * time.Millisecond, Reason: "the image could not be pulled",
		})},
		{Image: imageUnhealthy, Stages: begin(coming)},
		{Image: imageCrashing, Stages: begin(coming, up, memory.Stage{
			Phase: pods.PhaseExited, After: time.Second, ExitCode: 1, Lines: []string{"panic: a fault of the test double"},
		})},
		{Image: imageOOM, Stages: begin(coming, up, memory.Stage{
			Phase: pods.PhaseExited, After: time.Second, ExitCode: 137, OOM: true,
		})},
	}
}

// A podRuntime is the product's simulation with the faults of containers.
type podRuntime struct {
	pods.Runtime
	faults  *faults
	onWatch func() // called once, when the watch has begun

	once    sync.Once
	mu      sync.Mutex
	decided map[string]faultDecision // by pod
}

// faultDecision is the decision for a run of a pod. A repeated call must not decide again.
type faultDecision struct {
	gen, run uint64
	image    string // used instead of the pod's; empty: none
}

// Unwrap returns the wrapped runtime.
func (r *podRuntime) Unwrap() pods.Runtime { return r.Runtime }

func (r *podRuntime) Ensure(ctx context.Context, s pods.Spec) error {
	r.mu.Lock()
	t, ok := r.decided[s.PodID]
	if !ok || t.gen != s.Gen || t.run != s.Run {
		t = faultDecision{gen: s.Gen, run: s.Run}
		f := r.faults.hit(func(f *Fault) bool {
			_, ours := imageOfFault[f.Name]
			return ours && (f.Image == "" || faultplan.Like(f.Image, s.Image))
		})
		if f != nil {
			t.image = imageOfFault[f.Name]
		}
		r.decided[s.PodID] = t
	}
	r.mu.Unlock()
	if t.image != "" {
		s.Image = t.image
	}
	return r.Runtime.Ensure(ctx, s)
}

// faulty reports whether a container has a fault.
func (r *podRuntime) faulty(podID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.decided[podID].image != ""
}

// Watch reports when it has begun, because earlier changes are not reported.
func (r *podRuntime) Watch(ctx context.Context, f func(pods.ContainerState)) error {
	n, ok := pods.As[pods.Notifier](r.Runtime)
	if !ok {
		return r.Runtime.Watch(ctx, f)
	}
	defer n.Notify(f)()
	r.once.Do(r.onWatch)
	<-ctx.Done()
	return ctx.Err()
}

func (r *podRuntime) Remove(ctx context.Context, podID string, grace time.Duration) error {
	r.mu.Lock()
	delete(r.decided, podID)
	r.mu.Unlock()
	return r.Runtime.Remove(ctx, podID, grace)
}
