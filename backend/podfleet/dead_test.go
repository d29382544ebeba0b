package podfleet_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
)

// crashing returns a runtime whose containers of the image "crash" end with code 1 after a while.
// Those of "img" run on.
func crashing(after time.Duration) *memory.Runtime {
	return memory.NewRuntime(&memory.RuntimeOptions{Scripts: []memory.Script{{Image: "crash", Stages: []memory.Stage{
		{Phase: pods.PhaseHealthy, Lines: []string{"import error"}}, {After: after, Phase: pods.PhaseExited, ExitCode: 1},
	}}}})
}

func TestADeadWorkerHoldsNothingOfItsHostAndItsLogStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, rt := memory.NewPods(), crashing(time.Second)
		f := fleetOn(t, store, []pods.Host{gpuHost(rt)}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		ends := 0
		go func() {
			watched <- f.Watch(ctx, func(w fleet.Instance) {
				if w.State == fleet.InstanceEnded {
					ends++
					wantHolders(t, "when the end is told", store)
				}
			})
		}()
		synctest.Wait()
		w := gpuWorker("a", 2)
		w.Container.Image = "crash"
		if err := f.Start(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		wantHolders(t, "while it runs", store, "worker.ep.a")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if ends != 1 {
			t.Errorf("the end was told %d times, want once", ends)
		}
		list, err := f.Workers(t.Context())
		if err != nil || len(list) != 1 || list[0].GPUs != 2 || list[0].DataCenter != "EU" {
			t.Errorf("Workers = %+v, %v, want the dead worker with what it had", list, err)
		}
		lines := 0
		for line, err := range f.WorkerLogs(t.Context(), "ep", "a", fleet.LogQuery{Tail: -1}) {
			if err != nil || line.Text != "import error" {
				t.Errorf("the log has %q, %v", line.Text, err)
			}
			lines++
		}
		if lines != 1 {
			t.Errorf("the log of the dead worker has %d lines, want its one", lines)
		}
		if err := f.Start(t.Context(), gpuWorker("b", 2)); err != nil {
			t.Errorf("Start of another worker = %v, want the place of the dead one", err)
		}
		if err := f.Stop(t.Context(), "ep", "a", 0); err != nil {
			t.Error(err)
		}
		wantHolders(t, "after the dead one was removed", store, "worker.ep.b")
		cancel()
		<-watched
	})
}

// What no Watch has seen is found by the list: a worker of an earlier server that died meanwhile.
func TestAListFreesWhatDeadWorkersHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, rt := memory.NewPods(), crashing(time.Second)
		hosts := []pods.Host{gpuHost(rt)}
		w := gpuWorker("a", 2)
		w.Container.Image = "crash"
		if err := fleetOn(t, store, hosts, nil).Start(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if _, err := fleetOn(t, store, hosts, nil).Workers(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantHolders(t, "after the list", store)
	})
}

func TestCrashingEndpointsLeaveRoomForHealthyOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 20 * time.Second
		rt, all := crashing(life), memory.NewEndpoints()
		add := func(id, image string) {
			e := &endpoints.Endpoint{
				ID: id, Owner: "alice", Created: time.Now(), Version: 1, Container: endpoints.Container{Image: image, Disk: 1},
				CPU: []endpoints.CPU{{ID: "cpu", VCPU: 2}}, Workers: endpoints.WorkerLimits{Min: 1, Max: 1, Idle: time.Minute},
				Scaling: endpoints.Scaling{Type: endpoints.QueueDelay, Delay: time.Second},
			}
			e.Container.Env = map[string]string{"RUNPOD_INIT_TIMEOUT": "86400"} // no worker asks for jobs here
			if err := all.Create(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 4 {
			add(fmt.Sprintf("crash-%d", i), "crash")
		}
		hosts := []pods.Host{{ID: "h", DataCenter: "EU", Runtime: rt, VCPU: map[string]int{"cpu": 8}}}
		f, err := podfleet.New(memory.NewPods(), prices, hosts, &podfleet.Options{Overcommit: 1})
		if err != nil {
			t.Fatal(err)
		}
		s := serverless.New(memory.NewJobs(), all, &serverless.Options{
			Fleet: f, WorkerURL: func() string { return "http://podyard.test/v2" }, WorkerSecret: []byte("secret"),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		began := time.Now()
		add("healthy", "img") // on a host that is full of workers that will crash
		job, err := s.Submit(t.Context(), "alice", "healthy", serverless.Request{Input: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		why, err := s.Why(t.Context(), "alice", job.Ref)
		if err != nil || !strings.Contains(why, "the room is held by 0 workers of this endpoint, 4 workers of other endpoints and 0 pods") {
			t.Errorf("Why = %q, %v, want who has the room", why, err)
		}
		for !hasWorker(t, f, "healthy") && time.Since(began) < 10*life {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took > life+2*time.Second {
			t.Errorf("the worker of the healthy endpoint started after %v, want it when the crashing ones end, at %v", took, life)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func hasWorker(t *testing.T, f *podfleet.Fleet, endpoint string) bool {
	t.Helper()
	list, err := f.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		if w.Endpoint == endpoint && w.State == fleet.InstanceRunning {
			return true
		}
	}
	return false
}
