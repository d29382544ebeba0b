package pods_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
)

// reopen returns another service on the store of w, as after a crash. A nil rt is a host that
// lost everything.
func (w *testEnv) reopen(rt *memory.Runtime, set func(*pods.Options)) *testEnv {
	w.t.Helper()
	if rt == nil {
		rt = memory.NewRuntime(&memory.RuntimeOptions{Clock: w.clock, Scripts: scripts()})
	}
	o := &pods.Options{Clock: w.clock}
	if set != nil {
		set(o)
	}
	s, err := pods.New(w.store, w.Catalog(), pods.SimulatedHosts(w.Catalog(), rt), o)
	if err != nil {
		w.t.Fatal(err)
	}
	return &testEnv{s, w.t, w.clock, w.store, rt}
}

func TestARestartedServiceFindsItsContainersAgain(t *testing.T) {
	w := newTestEnv(t, nil)
	up, ends := w.running(gpuPod()), gpuPod()
	ends.Image = "ends/badly"
	p := w.create(ends)
	w.advance(2 * time.Second)
	w.want(p.ID, pods.Running)
	if err := w.clock.Advance(t.Context(), time.Minute); err != nil { // no service processes it
		t.Fatal(err)
	}
	w = w.reopen(w.runtime, nil)
	w.advance(0)
	w.want(p.ID, pods.Errored)
	if got := w.want(up.ID, pods.Running); !got.Seen.Started.Equal(up.Seen.Started) {
		t.Errorf("started = %v after a restart of the service, was %v", got.Seen.Started, up.Seen.Started)
	}
}

func TestWhatAHostLostIsMadeAgainUnlessItRan(t *testing.T) {
	w := newTestEnv(t, nil)
	up := w.running(gpuPod())
	stopping := w.running(gpuPod())
	stopped := w.running(gpuPod())
	w.act(stopped.ID, pods.Stop)
	w.advance(0)
	coming := w.create(slow())
	w.advance(time.Second)
	w.act(stopping.ID, pods.Stop)
	gone := w.create(gpuPod())
	if err := w.Terminate(t.Context(), alice, gone.ID); err != nil {
		t.Fatal(err)
	}
	w = w.reopen(nil, nil)
	w.advance(time.Second)
	if got := w.want(up.ID, pods.Exited); got.Seen.Reason != "the container was gone from its host" || len(got.Placement.Claims) != 0 {
		t.Errorf("reason %q, claims %v; want it told and free", got.Seen.Reason, got.Placement.Claims)
	}
	w.want(stopping.ID, pods.Exited)
	w.want(stopped.ID, pods.Exited)
	w.want(coming.ID, pods.Provisioning)
	if _, err := w.store.Get(t.Context(), gone.ID); !errors.Is(err, pods.ErrNotFound) {
		t.Errorf("a terminated pod is still there: %v", err)
	}
	w.advance(5 * time.Minute)
	w.want(coming.ID, pods.Running)
	w.act(up.ID, pods.Start)
	w.advance(5 * time.Minute)
	w.want(up.ID, pods.Running)
}

func TestContainersOfNoPodAreRemovedUnlessTheyAreSomebodyElses(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.running(gpuPod())
	for _, id := range []string{"stray", "theirs"} {
		if err := w.runtime.Ensure(t.Context(), pods.Spec{PodID: id, Gen: 1, Run: 1, Image: "img"}); err != nil {
			t.Fatal(err)
		}
	}
	w.advance(time.Minute)
	w = w.reopen(w.runtime, func(o *pods.Options) { o.Foreign = func(id string) bool { return id == "theirs" } })
	w.advance(0)
	list, err := w.runtime.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, st := range list {
		ids = append(ids, st.PodID)
	}
	slices.Sort(ids)
	want := []string{"theirs", p.ID}
	slices.Sort(want)
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
}

func TestPodsOnHostsOfAnotherServerAreLeftAlone(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.create(gpuPod())
	other := memory.NewRuntime(&memory.RuntimeOptions{Clock: w.clock})
	host := pods.Host{ID: "another", DataCenter: "US-TX-3", Runtime: other, VCPU: map[string]int{"cpu3c": 8}}
	s, err := pods.New(w.store, w.Catalog(), []pods.Host{host}, &pods.Options{Clock: w.clock})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.clock.Advance(t.Context(), time.Hour, s); err != nil {
		t.Fatal(err)
	}
	w.want(p.ID, pods.Provisioning)
	if list, _ := other.List(t.Context()); len(list) != 0 {
		t.Errorf("another server's pod was made here: %+v", list)
	}
}

// brokenWatchRuntime is a runtime whose watch breaks off now and then, and whose reports of an end are
// lost.
type brokenWatchRuntime struct {
	pods.Runtime
	breaks int
	lost   bool
}

func (d *brokenWatchRuntime) Watch(ctx context.Context, f func(pods.ContainerState)) error {
	if d.breaks > 0 {
		d.breaks--
		return errRefused
	}
	return d.Runtime.Watch(ctx, func(st pods.ContainerState) {
		if d.lost && st.Phase == pods.PhaseExited {
			return
		}
		f(st)
	})
}

func onBrokenWatch(t *testing.T, d *brokenWatchRuntime, test func(ctx context.Context, w *testEnv)) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestEnv(t, func(s *envConfig) {
			s.options.Clock, s.runtime.Clock = nil, nil
			s.hosts = func(rt pods.Runtime) []pods.Host {
				d.Runtime = rt
				return pods.SimulatedHosts(s.catalog, d)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		test(ctx, w)
		cancel()
		<-ended
	})
}

func TestABrokenWatchIsTakenUpAgainAndNothingIsMissed(t *testing.T) {
	onBrokenWatch(t, &brokenWatchRuntime{breaks: 3}, func(_ context.Context, w *testEnv) {
		p := w.create(gpuPod())
		time.Sleep(time.Minute)
		synctest.Wait()
		w.want(p.ID, pods.Running)
	})
}

// unlistableRuntime reports changes and cannot be listed while it is away.
type unlistableRuntime struct {
	*memory.Runtime
	away  atomic.Bool
	asked atomic.Int64
}

func (l *unlistableRuntime) List(ctx context.Context) ([]pods.ContainerState, error) {
	if l.away.Load() {
		l.asked.Add(1)
		return nil, errRefused
	}
	return l.Runtime.List(ctx)
}

func TestAHostThatIsAwayAtTheStartIsAskedAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestEnv(t, func(s *envConfig) { s.options.Clock, s.runtime.Clock = nil, nil })
		p := w.create(gpuPod())
		away := &unlistableRuntime{Runtime: w.runtime}
		away.away.Store(true)
		s, err := pods.New(w.store, w.Catalog(), pods.SimulatedHosts(w.Catalog(), away), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := away.asked.Load(); n < 5 || n > 11 {
			t.Errorf("%d calls in 10 s, want one a second", n)
		}
		away.away.Store(false)
		time.Sleep(time.Minute)
		w.want(p.ID, pods.Running)
		cancel()
		<-ended
	})
}

func TestAStopThatNobodyReportsIsLookedInto(t *testing.T) {
	onBrokenWatch(t, &brokenWatchRuntime{lost: true}, func(_ context.Context, w *testEnv) {
		p := w.create(gpuPod())
		time.Sleep(time.Minute)
		w.act(p.ID, pods.Stop)
		time.Sleep(pods.DefaultStopGrace + 4*time.Second)
		synctest.Wait()
		w.want(p.ID, pods.Running)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.want(p.ID, pods.Exited)
	})
}
