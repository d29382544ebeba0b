package docker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
)

func TestAnEngineThatDiesAndComesBackLosesNothing(t *testing.T) {
	suite.SkipUnlessLong(t)
	d := requireEngine(t, "dockerd")
	rt := open(t, d, t.TempDir())
	up(t, rt, spec("stays", program("run")))
	up(t, rt, spec("ends", program("run")))
	c, err := rt.pods.Find("ends").inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := make(chan error, 1)
	go func() { lost <- rt.Watch(t.Context(), func(pods.ContainerState) {}) }()

	d.Kill()
	if err := <-lost; err == nil {
		t.Error("Watch of a lost engine = nil, want an error")
	}
	if _, err := rt.List(t.Context()); err == nil {
		t.Error("List of a lost engine = nil, want an error")
	}
	// While the engine is down, accepted work waits. Changes of that time are seen
	// afterwards.
	ensure(t, rt, spec("waits", program("run")))
	kill(t, c.State.Pid)
	if err := d.Start(); err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}

	await(t, rt, "waits", "Up", phase(pods.PhaseHealthy))
	got := await(t, rt, "ends", "end", phase(pods.PhaseExited))
	if got.Stopped {
		t.Errorf("pod that was killed is %+v, want it not Stopped", got)
	}
	list := listOf(t, rt)
	if list["stays"].Phase != pods.PhaseHealthy {
		t.Errorf("pod is %+v, want it Up still", list["stays"])
	}
	wantOneEach(t, rt, "stays", "ends", "waits")
	ensure(t, rt, func() pods.Spec { s := spec("stays", program("run")); s.Run = 2; return s }())
	await(t, rt, "stays", "run 2", func(s pods.ContainerState) bool { return s.Run == 2 && s.Phase == pods.PhaseHealthy })
}

// listOf calls List until the engine answers.
func listOf(t *testing.T, rt *Runtime) map[string]pods.ContainerState {
	t.Helper()
	all, err := rt.List(t.Context())
	if err != nil {
		t.Fatalf("List = %v, want nil", err)
	}
	states := map[string]pods.ContainerState{}
	for _, s := range all {
		states[s.PodID] = s
	}
	return states
}

func wantOneEach(t *testing.T, rt *Runtime, ids ...string) {
	t.Helper()
	list, err := rt.api.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: rt.instanceFilters()})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list.Items {
		got = append(got, c.Labels[labelPod])
	}
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		t.Errorf("containers are of %q, want one each of %q", got, ids)
	}
}

func TestAServerThatDiesAndComesBackFindsItsPods(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		dir := t.TempDir()
		first := open(t, d, dir)
		checkedUp := spec("checked", program("stubborn"))
		checkedUp.Image = checked
		up(t, first, checkedUp)
		up(t, first, spec("runs", program("run")))
		s := spec("exits", program("run"))
		up(t, first, s)
		c, err := first.pods.Find("exits").inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		up(t, first, spec("lost", program("serve")))
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		kill(t, c.State.Pid)
		if err := stateDir(dir).forget("lost"); err != nil {
			t.Fatal(err)
		}

		second := open(t, d, dir)
		await(t, second, "exits", "end", phase(pods.PhaseExited))
		list := listOf(t, second)
		for _, id := range []string{"checked", "runs", "lost"} {
			if got := list[id]; got.Phase != pods.PhaseHealthy || got.Gen != 1 || got.Run != 1 {
				t.Errorf("pod %s is %+v, want it Up as before", id, got)
			}
		}
		wantOneEach(t, second, "checked", "runs", "exits", "lost")
		if err := second.Ensure(t.Context(), spec("runs", program("run"))); err != nil {
			t.Fatal(err)
		}
		if got := listOf(t, second)["runs"]; !got.Started.Equal(list["runs"].Started) {
			t.Errorf("pod was started again at %v, first at %v", got.Started, list["runs"].Started)
		}
	})
}

// A start in the record that did not happen is repeated.
func TestAStartThatWasCutOffIsRepeated(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		dir := t.TempDir()
		first := open(t, d, dir)
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := spec("cut", program("run"))
		rec := record{State: pods.ContainerState{PodID: s.PodID, Gen: 1, Run: 1}, Starting: true}
		if err := stateDir(dir).write(rec); err != nil {
			t.Fatal(err)
		}
		second := open(t, d, dir)
		up(t, second, s)
		if err := second.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		// The container was started, but the server crashed before it recorded that.
		rec, err := stateDir(dir).read("cut")
		if err != nil {
			t.Fatal(err)
		}
		started := rec.State.Started
		rec.State.Phase, rec.State.Started, rec.Starting, rec.PreviousStart = pods.PhasePulling, time.Time{}, true, ""
		if err := stateDir(dir).write(rec); err != nil {
			t.Fatal(err)
		}
		third := open(t, d, dir)
		if got := up(t, third, s); !got.Started.Equal(started) {
			t.Errorf("pod was started again at %v, first at %v", got.Started, started)
		}
	})
}

func BenchmarkCreateToUp(b *testing.B) {
	for _, kind := range []string{"dockerd", "podman"} {
		b.Run(kind, func(b *testing.B) {
			d := requireEngine(b, kind)
			rt := open(b, d, b.TempDir())
			ctx := context.WithoutCancel(b.Context())
			up(b, rt, spec("first", program("run"))) // the owner has a network; the first pod waits for it
			var ours, theirs []time.Duration
			for n := 0; b.Loop(); n++ {
				s := spec("bench", program("run"))
				began := time.Now()
				up(b, rt, s)
				ours = append(ours, time.Since(began))
				config, err := rt.pods.Find("bench").config(ctx, s)
				if err != nil {
					b.Fatal(err)
				}
				if err := rt.Remove(ctx, "bench", time.Second); err != nil {
					b.Fatal(err)
				}
				config.Config.Labels = nil
				began = time.Now()
				if _, err := rt.api.ContainerCreate(ctx, config); err != nil {
					b.Fatal(err)
				}
				if _, err := rt.api.ContainerStart(ctx, config.Name, client.ContainerStartOptions{}); err != nil {
					b.Fatal(err)
				}
				theirs = append(theirs, time.Since(began))
				if _, err := rt.api.ContainerRemove(ctx, config.Name, client.ContainerRemoveOptions{Force: true}); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(ours)
			slices.Sort(theirs)
			b.ReportMetric(float64(ours[len(ours)/2].Milliseconds()), "ms/up-p50")
			b.ReportMetric(float64((ours[len(ours)/2]-theirs[len(theirs)/2]).Microseconds())/1000, "ms/ours-p50")
		})
	}
}

// Without live-restore containers end with the engine: when it is stopped, and after a crash when it starts. Pods
// whose users did not stop them are told apart from those that ended by themselves.
func TestAPodThatEndedWithItsEngineSaysSo(t *testing.T) {
	suite.SkipUnlessLong(t)
	d := requireEngine(t, "dockerd")
	restart := func(end func(), keeps bool) {
		t.Helper()
		end()
		d.KeepsContainers(keeps)
		if err := d.Start(); err != nil {
			t.Fatalf("%v\n%s", err, d.Log())
		}
	}
	restart(d.End, false)
	t.Cleanup(func() { restart(d.End, true) })
	rt := open(t, d, t.TempDir())
	for i, tt := range []struct {
		name  string
		end   func()
		keeps bool // from its next start on
	}{{"stopped", d.End, false}, {"killed", d.Kill, false}, {"stopped, to be started with live-restore", d.End, true}} {
		run := uint64(i + 1)
		again := func(id string) pods.Spec { s := spec(id, program("run")); s.Run = run; return s }
		up(t, rt, again("stays"))
		up(t, rt, again("stopped"))
		if err := rt.Stop(t.Context(), "stopped", 0); err != nil {
			t.Fatal(err)
		}
		await(t, rt, "stopped", "end", phase(pods.PhaseExited))
		restart(tt.end, tt.keeps)
		got := await(t, rt, "stays", "end", phase(pods.PhaseExited))
		if !got.HostWent || got.Reason != "its engine was restarted" {
			t.Errorf("%s: a pod that ended with its engine is %+v, want HostWent with the reason", tt.name, got)
		}
		if got := await(t, rt, "stopped", "end", phase(pods.PhaseExited)); got.HostWent {
			t.Errorf("%s: a pod that had been stopped is %+v, want no HostWent", tt.name, got)
		}
	}
}
