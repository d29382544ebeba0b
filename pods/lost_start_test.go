package pods_test

import (
	"context"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
)

// withRuntime returns another service on the store of w, with another runtime.
func (w *testEnv) withRuntime(rt pods.Runtime) *testEnv {
	w.t.Helper()
	s, err := pods.New(w.store, w.Catalog(), pods.SimulatedHosts(w.Catalog(), rt), &pods.Options{Clock: w.clock})
	if err != nil {
		w.t.Fatal(err)
	}
	return &testEnv{s, w.t, w.clock, w.store, w.runtime}
}

func TestAStartThatItsHostForgotIsMadeAgain(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.create(slow())
	w.advance(time.Second)
	w.act(p.ID, pods.Stop)
	w.advance(time.Second)
	w.act(p.ID, pods.Start)
	w.advance(time.Second)
	if p = w.want(p.ID, pods.Provisioning); p.Seen.Run != 2 {
		t.Fatalf("the host took run %d, want 2", p.Seen.Run)
	}
	rt := memory.NewRuntime(&memory.RuntimeOptions{Clock: w.clock, Scripts: scripts()})
	if err := rt.Ensure(t.Context(), pods.Spec{PodID: p.ID, Gen: 1, Run: 1, Image: p.Config.Image}); err != nil {
		t.Fatal(err)
	}
	if err := rt.Stop(t.Context(), p.ID, 0); err != nil {
		t.Fatal(err)
	}
	w = w.reopen(rt, nil)
	w.advance(5 * time.Minute)
	w.want(p.ID, pods.Running)
}

// An interruptedRuntime was about to make a container when it crashed, and makes it at the next
// call.
type interruptedRuntime struct {
	*memory.Runtime
	pending pods.ContainerState
}

func (l *interruptedRuntime) List(ctx context.Context) ([]pods.ContainerState, error) {
	if l.pending.PodID != "" {
		return []pods.ContainerState{l.pending}, nil
	}
	return l.Runtime.List(ctx)
}

func (l *interruptedRuntime) Ensure(ctx context.Context, s pods.Spec) error {
	l.pending = pods.ContainerState{}
	return l.Runtime.Ensure(ctx, s)
}

func (l *interruptedRuntime) Stop(ctx context.Context, id string, grace time.Duration) error {
	if l.pending.PodID != "" {
		l.pending.Phase, l.pending.Stopped = pods.PhaseExited, true
	}
	return l.Runtime.Stop(ctx, id, grace)
}

func TestAStartThatItsHostDiedOverIsMadeAgainUnlessItWasStopped(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		w := newTestEnv(t, nil)
		p := w.create(slow())
		w.advance(time.Second)
		want := pods.Running
		if stopped {
			want = pods.Exited
			w.act(p.ID, pods.Stop)
		}
		rt := memory.NewRuntime(&memory.RuntimeOptions{Clock: w.clock, Scripts: scripts()})
		w = w.withRuntime(&interruptedRuntime{Runtime: rt, pending: pods.ContainerState{PodID: p.ID, Gen: 1, Run: 1, Phase: pods.PhasePulling}})
		w.advance(5 * time.Minute)
		w.want(p.ID, want)
	}
}
