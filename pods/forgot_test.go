package pods_test

import (
	"context"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
)

// on is w's store under another service, on another runtime.
func (w *world) on(rt pods.Runtime) *world {
	w.t.Helper()
	s, err := pods.New(w.store, w.Catalog(), pods.Hosts(w.Catalog(), rt), &pods.Options{Clock: w.clock})
	if err != nil {
		w.t.Fatal(err)
	}
	return &world{s, w.t, w.clock, w.store, w.runtime}
}

func TestAStartThatItsHostForgotIsMadeAgain(t *testing.T) {
	w := newWorld(t, nil)
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

// A lame runtime was about to make a container when it died, and does so when it is asked
// once more.
type lame struct {
	*memory.Runtime
	pending pods.State
}

func (l *lame) List(ctx context.Context) ([]pods.State, error) {
	if l.pending.PodID != "" {
		return []pods.State{l.pending}, nil
	}
	return l.Runtime.List(ctx)
}

func (l *lame) Ensure(ctx context.Context, s pods.Spec) error {
	l.pending = pods.State{}
	return l.Runtime.Ensure(ctx, s)
}

func (l *lame) Stop(ctx context.Context, id string, grace time.Duration) error {
	if l.pending.PodID != "" {
		l.pending.Phase, l.pending.Stopped = pods.Down, true
	}
	return l.Runtime.Stop(ctx, id, grace)
}

func TestAStartThatItsHostDiedOverIsMadeAgainUnlessItWasStopped(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		w := newWorld(t, nil)
		p := w.create(slow())
		w.advance(time.Second)
		want := pods.Running
		if stopped {
			want = pods.Exited
			w.act(p.ID, pods.Stop)
		}
		rt := memory.NewRuntime(&memory.RuntimeOptions{Clock: w.clock, Scripts: scripts()})
		w = w.on(&lame{Runtime: rt, pending: pods.State{PodID: p.ID, Gen: 1, Run: 1, Phase: pods.Pulling}})
		w.advance(5 * time.Minute)
		w.want(p.ID, want)
	}
}
