package double

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
)

// A podStore is the product's store of pods, watched, and with the faults that happen to
// it.
type podStore struct {
	pods.Store
	act    *activity
	faults *faults
	kick   func()
}

// Unwrap gives the powers of the store inside.
func (s *podStore) Unwrap() pods.Store { return s.Store }

func (s *podStore) changed() {
	s.act.bump()
	s.kick()
}

func (s *podStore) Create(ctx context.Context, p *pods.Pod) error {
	if down(ctx) {
		return errStore
	}
	err := s.Store.Create(ctx, p)
	if err == nil {
		s.changed()
	}
	return err
}

func (s *podStore) Get(ctx context.Context, id string) (*pods.Pod, error) {
	if down(ctx) {
		return nil, errStore
	}
	return s.Store.Get(ctx, id)
}

func (s *podStore) Update(ctx context.Context, id string, fn func(*pods.Pod) error) (*pods.Pod, error) {
	if down(ctx) {
		return nil, errStore
	}
	p, err := s.Store.Update(ctx, id, fn)
	if err == nil {
		s.changed()
	}
	return p, err
}

func (s *podStore) Delete(ctx context.Context, id string) error {
	err := s.Store.Delete(ctx, id)
	if err == nil {
		s.changed()
	}
	return err
}

// Used says that everything is taken where a fault says so: a store whose Create refused
// instead would look like a race that somebody else won, and be asked again.
func (s *podStore) Used(ctx context.Context, resource string) (int64, error) {
	if down(ctx) {
		return 0, errStore
	}
	if x := exchangeOf(ctx); x != nil && x.isFull(resource) {
		return math.MaxInt32, nil
	}
	return s.Store.Used(ctx, resource)
}

// Images that faults put in the place of others: the simulation has scripts for them.
const (
	imageUnpullable = "podyard.test/unpullable"
	imageUnhealthy  = "podyard.test/unhealthy"
	imageCrashing   = "podyard.test/crashing"
	imageOOM        = "podyard.test/out-of-memory"
)

var imageOfFault = map[string]string{
	FaultPull: imageUnpullable, FaultUnhealthy: imageUnhealthy, FaultCrash: imageCrashing, FaultOOM: imageOOM,
}

// faultScripts are how containers behave that a fault has found.
func faultScripts() []memory.Script {
	begin := func(rest ...memory.Stage) []memory.Stage {
		return append([]memory.Stage{{Phase: pods.Pulling}}, rest...)
	}
	coming := memory.Stage{Phase: pods.Coming, After: 500 * time.Millisecond}
	up := memory.Stage{Phase: pods.Up, After: 500 * time.Millisecond, Lines: []string{"ready"}}
	return []memory.Script{
		{Image: imageUnpullable, Stages: begin(memory.Stage{
			Phase: pods.Failed, After: 500 * time.Millisecond, Reason: "the image could not be pulled",
		})},
		{Image: imageUnhealthy, Stages: begin(coming)},
		{Image: imageCrashing, Stages: begin(coming, up, memory.Stage{
			Phase: pods.Down, After: time.Second, ExitCode: 1, Lines: []string{"panic: a fault of the test double"},
		})},
		{Image: imageOOM, Stages: begin(coming, up, memory.Stage{
			Phase: pods.Down, After: time.Second, ExitCode: 137, OOM: true,
		})},
	}
}

// A podRuntime is the product's simulation, with the faults that happen to containers.
type podRuntime struct {
	pods.Runtime
	faults  *faults
	watched func() // called once, when somebody watches

	once  sync.Once
	mu    sync.Mutex
	found map[string]taken // by pod
}

// taken is what was decided for a run of a pod: a repeated call must not decide anew.
type taken struct {
	gen, run uint64
	image    string // in place of the pod's; empty: none
}

// Unwrap gives the powers of the runtime inside.
func (r *podRuntime) Unwrap() pods.Runtime { return r.Runtime }

func (r *podRuntime) Ensure(ctx context.Context, s pods.Spec) error {
	r.mu.Lock()
	t, ok := r.found[s.PodID]
	if !ok || t.gen != s.Gen || t.run != s.Run {
		t = taken{gen: s.Gen, run: s.Run}
		f := r.faults.hit(func(f *Fault) bool {
			_, ours := imageOfFault[f.Name]
			return ours && (f.Image == "" || like(f.Image, s.Image))
		})
		if f != nil {
			t.image = imageOfFault[f.Name]
		}
		r.found[s.PodID] = t
	}
	r.mu.Unlock()
	if t.image != "" {
		s.Image = t.image
	}
	return r.Runtime.Ensure(ctx, s)
}

// faulty reports whether a fault has found a container.
func (r *podRuntime) faulty(podID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[podID].image != ""
}

// Watch says when it has begun: what happens before that is not told.
func (r *podRuntime) Watch(ctx context.Context, f func(pods.State)) error {
	n, ok := pods.As[pods.Notifier](r.Runtime)
	if !ok {
		return r.Runtime.Watch(ctx, f)
	}
	defer n.Notify(f)()
	r.once.Do(r.watched)
	<-ctx.Done()
	return ctx.Err()
}

func (r *podRuntime) Remove(ctx context.Context, podID string, grace time.Duration) error {
	r.mu.Lock()
	delete(r.found, podID)
	r.mu.Unlock()
	return r.Runtime.Remove(ctx, podID, grace)
}
