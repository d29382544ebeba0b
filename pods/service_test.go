package pods_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
)

const (
	alice   = "alice"
	bob     = "bob"
	rtx4090 = "NVIDIA GeForce RTX 4090"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// testEnv is a service with a store, a simulated runtime and a clock that only advance moves.
type testEnv struct {
	*pods.Service
	t       *testing.T
	clock   *clock.Manual
	store   *memory.Pods
	runtime *memory.Runtime
}

// newTestEnv returns one with the sample catalog. set may change the configuration.
func newTestEnv(t *testing.T, set func(*envConfig)) *testEnv {
	t.Helper()
	c := clock.NewManual(start)
	in := &envConfig{
		options: pods.Options{Clock: c, Rand: rand.NewChaCha8([32]byte{1})},
		runtime: memory.RuntimeOptions{Clock: c, Scripts: scripts()},
		catalog: catalog.Sample(), store: memory.NewPods(),
	}
	in.hosts = func(rt pods.Runtime) []pods.Host { return pods.SimulatedHosts(in.catalog, rt) }
	if set != nil {
		set(in)
	}
	rt := memory.NewRuntime(&in.runtime)
	s, err := pods.New(in.store, in.catalog, in.hosts(rt), &in.options)
	if err != nil {
		t.Fatal(err)
	}
	return &testEnv{s, t, c, in.store, rt}
}

type envConfig struct {
	options pods.Options
	runtime memory.RuntimeOptions
	catalog catalog.Catalog
	hosts   func(pods.Runtime) []pods.Host
	store   *memory.Pods
}

// scripts are images that end in every way.
func scripts() []memory.Script {
	ends := func(image string, last memory.Stage) memory.Script {
		last.After = time.Second
		return memory.Script{Image: image, Stages: []memory.Stage{
			{Phase: pods.PhasePulling}, {Phase: pods.PhaseStarting, After: time.Second}, {Phase: pods.PhaseHealthy, After: time.Second}, last,
		}}
	}
	return []memory.Script{
		ends("ends/well", memory.Stage{Phase: pods.PhaseExited}),
		ends("ends/badly", memory.Stage{Phase: pods.PhaseExited, ExitCode: 3}),
		ends("ends/hungry", memory.Stage{Phase: pods.PhaseExited, ExitCode: 137, OOM: true}),
		ends("ends/orderly", memory.Stage{Phase: pods.PhaseExited, Stopped: true, Reason: "the host was shut down"}),
		{Image: "ends/unpulled", Stages: []memory.Stage{
			{Phase: pods.PhasePulling}, {Phase: pods.PhaseFailed, After: time.Second, Reason: "no such image"},
		}},
		{Image: "busy/*", Stages: []memory.Stage{
			{Phase: pods.PhasePulling},
			{Phase: pods.PhasePulling, After: 10 * time.Second, Reason: "pull failed, try 1: 503 Service Unavailable; next try in 2s"},
			{Phase: pods.PhaseStarting, After: 2 * time.Second},
			{Phase: pods.PhaseHealthy, After: time.Second},
		}},
		{Image: "slow/*", StopAfter: 500 * time.Millisecond, Stages: []memory.Stage{
			{Phase: pods.PhasePulling}, {Phase: pods.PhaseStarting, After: time.Minute}, {Phase: pods.PhaseHealthy, After: time.Minute},
		}},
	}
}

// advance moves the clock by d and does everything that becomes due.
func (w *testEnv) advance(d time.Duration) {
	w.t.Helper()
	if err := w.clock.Advance(w.t.Context(), d, w); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testEnv) create(r pods.CreateRequest) *pods.Pod {
	w.t.Helper()
	p, err := w.Create(w.t.Context(), alice, r)
	if err != nil {
		w.t.Fatalf("Create = %v", err)
	}
	return p
}

// running creates a pod and waits until it runs.
func (w *testEnv) running(r pods.CreateRequest) *pods.Pod {
	w.t.Helper()
	p := w.create(r)
	w.advance(time.Minute * 5)
	return w.want(p.ID, pods.Running)
}

// want reads a pod and fails the test if it has another status.
func (w *testEnv) want(id string, status pods.Status) *pods.Pod {
	w.t.Helper()
	p := w.get(id)
	if p.Status() != status {
		w.t.Fatalf("status = %s, want %s; journal:\n%s", p.Status(), status, journal(p))
	}
	return p
}

func (w *testEnv) get(id string) *pods.Pod {
	w.t.Helper()
	p, err := w.Get(w.t.Context(), alice, id)
	if err != nil {
		w.t.Fatalf("Get = %v", err)
	}
	return p
}

func (w *testEnv) act(id string, a pods.Action) *pods.Pod {
	w.t.Helper()
	p, err := w.Act(w.t.Context(), alice, id, a)
	if err != nil {
		w.t.Fatalf("%s = %v", a, err)
	}
	return p
}

func journal(p *pods.Pod) string {
	var b bytes.Buffer
	for _, l := range p.Journal {
		b.WriteString(l.At.Sub(start).String() + " " + l.Text + "\n")
	}
	return b.String()
}

func gpuPod() pods.CreateRequest {
	return pods.CreateRequest{Name: "g", Image: "img", GPU: &pods.GPURequest{ID: rtx4090}}
}

func cpuPod() pods.CreateRequest {
	return pods.CreateRequest{Name: "c", Image: "img", CPU: &pods.CPURequest{ID: "cpu3c", VCPU: 2}}
}

func TestPodComesUpByWayOfProvisioningAndStarting(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.create(gpuPod())
	if p.Status() != pods.Provisioning || !p.Seen.Started.IsZero() {
		t.Errorf("created pod is %s, started %v; want PROVISIONING, never started", p.Status(), p.Seen.Started)
	}
	w.advance(0)
	w.want(p.ID, pods.Provisioning)
	w.advance(500 * time.Millisecond)
	w.want(p.ID, pods.Starting)
	w.advance(500 * time.Millisecond)
	p = w.want(p.ID, pods.Running)
	if want := start.Add(500 * time.Millisecond); !p.Seen.Started.Equal(want) {
		t.Errorf("started = %v, want %v: when its container started", p.Seen.Started, want)
	}
	if p.Cost() != 0.69 {
		t.Errorf("cost = %v, want the catalog's 0.69", p.Cost())
	}
}

func TestAnotherUsersPodDoesNotExist(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.running(cpuPod())
	ctx := t.Context()
	list, err := w.List(ctx, bob)
	if err != nil || len(list) != 0 {
		t.Errorf("List of another user = %d pods, %v; want none", len(list), err)
	}
	for name, call := range map[string]func(context.Context) error{
		"Get":       func(ctx context.Context) error { _, err := w.Get(ctx, bob, p.ID); return err },
		"Update":    func(ctx context.Context) error { _, err := w.Update(ctx, bob, p.ID, pods.UpdateRequest{}); return err },
		"Act":       func(ctx context.Context) error { _, err := w.Act(ctx, bob, p.ID, pods.Stop); return err },
		"Reset":     func(ctx context.Context) error { _, err := w.Reset(ctx, bob, p.ID); return err },
		"Terminate": func(ctx context.Context) error { return w.Terminate(ctx, bob, p.ID) },
		"Logs": func(ctx context.Context) error {
			_, err := w.Logs(ctx, bob, p.ID, pods.SystemLog, pods.LogQuery{})
			return err
		},
	} {
		if err := call(ctx); !errors.Is(err, pods.ErrNotFound) || problem.Of(err).Status != 404 {
			t.Errorf("%s = %v, want ErrNotFound", name, err)
		}
	}
	w.want(p.ID, pods.Running)
}

func TestACredentialIsInUseWhileAPodPullsWithIt(t *testing.T) {
	w := newTestEnv(t, withDependencies)
	use := func(owner, id string) bool {
		t.Helper()
		used, err := w.RegistryInUse(t.Context(), owner, id)
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	r := gpuPod()
	r.Registry = new("reg")
	p := w.running(r)
	if !use(alice, "reg") || use(bob, "reg") || use(alice, "other") {
		t.Error("the credential of alice's pod is in use for her, and no other is")
	}
	if _, err := w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{Registry: new("")}); err != nil {
		t.Fatal(err)
	}
	if !use(alice, "reg") {
		t.Error("a credential is in use until the container that was pulled with it is replaced")
	}
	w.act(p.ID, pods.Restart)
	if use(alice, "reg") {
		t.Error("a credential is in use that no container needs any more")
	}
}
