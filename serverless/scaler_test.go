package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

func TestWorkersStartForJobsAndStopWithoutThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 0, 3))
		last := svc.submit(t, 30, false)
		time.Sleep(time.Second)
		if diff := cmp.Diff(serverless.WorkerCounts{Initializing: 1}, svc.counts(t)); diff != "" {
			t.Errorf("after a second (-want +got):\n%s", diff)
		}
		time.Sleep(7 * time.Second)
		if diff := cmp.Diff(serverless.WorkerCounts{Running: 3}, svc.counts(t)); diff != "" {
			t.Errorf("past the delay and a start (-want +got):\n%s", diff)
		}
		time.Sleep(8 * time.Second)
		if j := svc.job(t, last); j.Status != serverless.Completed {
			t.Errorf("the last job is %v, want COMPLETED", j.Status)
		}
		if diff := cmp.Diff(serverless.WorkerCounts{Idle: 3, Ready: 3}, svc.counts(t)); diff != "" {
			t.Errorf("all done (-want +got):\n%s", diff)
		}
		time.Sleep(14 * time.Second)
		if n := svc.there(); n != 0 {
			t.Errorf("%d workers are there without a job, want 0", n)
		}
		if svc.starts() != 3 {
			t.Errorf("starts = %d, want 3", svc.starts())
		}
		ds, err := svc.Decisions(t.Context(), "e")
		if err != nil || len(ds) < 4 {
			t.Fatalf("Decisions = %+v, %v", ds, err)
		}
		for _, d := range ds {
			if d.Reason == "" || d.At == 0 {
				t.Errorf("decision %+v has no reason or no time", d)
			}
		}
	})
}

func TestSpareWorkersStopAlthoughJobsRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 0, 5))
		svc.submit(t, 30, false)
		time.Sleep(15 * time.Second)
		if n := svc.there(); n != 5 {
			t.Fatalf("%d workers, want 5", n)
		}
		// One job after the other takes one worker, and each of the five would have its turn.
		for range 15 {
			svc.submit(t, 1, false)
			time.Sleep(2 * time.Second)
		}
		if n := svc.there(); n != 1 {
			t.Errorf("%d workers are there for one job after the other, want 1", n)
		}
		if svc.starts() != 5 {
			t.Errorf("starts = %d, want 5", svc.starts())
		}
	})
}

func TestWorkerHasTheEnvironmentOfTheProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 1, 1))
		time.Sleep(3 * time.Second)
		if svc.starts() != 1 {
			t.Fatalf("starts = %d, want 1", svc.starts())
		}
		w := svc.first()
		want := map[string]string{
			"RUNPOD_WEBHOOK_GET_JOB":         "http://127.0.0.1:8080/v2/e/job-take/$ID?gpu=cpu",
			"RUNPOD_WEBHOOK_POST_OUTPUT":     "http://127.0.0.1:8080/v2/e/job-done/$RUNPOD_POD_ID/$ID?gpu=cpu",
			"RUNPOD_WEBHOOK_POST_STREAM":     "http://127.0.0.1:8080/v2/e/job-stream/$RUNPOD_POD_ID/$ID?gpu=cpu",
			"RUNPOD_WEBHOOK_PING":            "http://127.0.0.1:8080/v2/e/ping/$RUNPOD_POD_ID?gpu=cpu",
			"RUNPOD_PING_INTERVAL":           "10000",
			"RUNPOD_POD_ID":                  string(w.ID),
			"RUNPOD_POD_HOSTNAME":            string(w.ID),
			"RUNPOD_AI_API_KEY":              svc.WorkerKey("e", w.ID),
			"RUNPOD_ENDPOINT_ID":             "e",
			"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
			"RUNPOD_SKIP_GPU_CHECK":          "true",
		}
		if diff := cmp.Diff(want, w.Env); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
		if len(w.ID) != 14 || w.Release != 1 || w.Owner != "alice" {
			t.Errorf("worker %q of release %d, owner %q", w.ID, w.Release, w.Owner)
		}
	})
}

func TestJobsOfAWorkerThatDiesGoToAnotherAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("dies", 0, 1))
		j := svc.submit(t, 1, false)
		time.Sleep(4 * time.Second) // a start, and a second of work
		if j = svc.job(t, j); j.Status != serverless.InQueue || j.Deliveries != 1 {
			t.Errorf("job is %v after %d deliveries, want IN_QUEUE after 1", j.Status, j.Deliveries)
		}
		time.Sleep(30 * time.Second)
		if j = svc.job(t, j); j.Status != serverless.Failed || j.Reason != queue.WorkersLost {
			t.Errorf("job is %v (%v), want FAILED after three workers", j.Status, j.Reason)
		}
		h, err := svc.Health(t.Context(), "e")
		if err != nil || h.Jobs.Retried != 2 {
			t.Errorf("retried = %d, %v, want 2", h.Jobs.Retried, err)
		}
	})
}

func TestWorkerThatHasServedIsChargedForTheJobItDiesOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("dies later", 0, 1))
		j := svc.submit(t, 2, false)
		time.Sleep(4500 * time.Millisecond) // a start, a job, and a second of the next
		if j = svc.job(t, j); j.Status != serverless.InQueue || j.Deliveries != 1 {
			t.Errorf("job is %v after %d deliveries, want IN_QUEUE after 1", j.Status, j.Deliveries)
		}
		time.Sleep(4 * time.Second) // and another one has it, without a pause
		if j = svc.job(t, j); j.Status != serverless.Completed {
			t.Errorf("job is %v, want COMPLETED", j.Status)
		}
	})
}

func TestWorkersThatEndWithoutAJobDoneBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("crash", 0, 5))
		j := svc.submit(t, 10, false)
		time.Sleep(10 * time.Minute)
		// 1+2+4+8+16+32+64+128+256 s of pauses, each after a start of 3 s.
		if n := svc.starts(); n < 9 || n > 11 {
			t.Errorf("%d workers were started in ten minutes of crashes, want about 10", n)
		}
		if n := svc.counts(t); n.Unhealthy != 1 || n.Running+n.Idle != 0 {
			t.Errorf("workers = %+v, want one that is not healthy", n)
		}
		why, err := svc.Why(t.Context(), "alice", j.Ref)
		if err != nil || !strings.Contains(why, "a worker ended before it had done a job: exit code 1") {
			t.Errorf("Why = %q, %v, want the crash", why, err)
		}
		if log := svc.log.String(); !strings.Contains(log, "exit code 1") || strings.Count(log, "\n") > 20 {
			t.Errorf("the log of ten minutes of crashes, want the reason, and a line for each try at most:\n%s", log)
		}
		// A release mends it.
		svc.change(t, func(e *serverless.Endpoint) { e.Container.Image, e.Version = "works", 2 })
		time.Sleep(30 * time.Second)
		if j := svc.job(t, j); j.Status != serverless.Completed {
			t.Errorf("job is %v half a minute after the release, want COMPLETED", j.Status)
		}
	})
}

func TestFleetWithoutCapacityIsAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("long", 0, 4))
		svc.fleet.mu.Lock()
		svc.fleet.room = 2
		svc.fleet.mu.Unlock()
		j := svc.submit(t, 4, false)
		time.Sleep(20 * time.Second)
		n := svc.counts(t)
		if n.Running != 2 || n.Throttled == 0 { // how many wait for room is between two askings
			t.Errorf("workers = %+v, want 2 running and some without capacity", n)
		}
		why, err := svc.Why(t.Context(), "alice", j.Ref)
		if err != nil || !strings.Contains(why, "there is no capacity for a worker") {
			t.Errorf("Why = %q, %v, want the capacity", why, err)
		}
		svc.fleet.mu.Lock()
		svc.fleet.room = 0
		svc.fleet.mu.Unlock()
		time.Sleep(40 * time.Second)
		if n := svc.counts(t); n.Throttled != 0 || n.Running < 3 {
			t.Errorf("workers = %+v, want all once there is room", n)
		}
	})
}

func TestReleaseReplacesIdleWorkersAndLetsOthersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("long", 2, 3))
		time.Sleep(5 * time.Second)
		j := svc.submit(t, 1, false)
		time.Sleep(time.Second)
		if diff := cmp.Diff(serverless.WorkerCounts{Running: 1, Idle: 1, Ready: 1}, svc.counts(t)); diff != "" {
			t.Fatalf("before the release (-want +got):\n%s", diff)
		}
		svc.change(t, func(e *serverless.Endpoint) { e.Version = 2 })
		time.Sleep(20 * time.Second)
		list, err := svc.WorkerList(t.Context(), "e")
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, w := range list {
			got[fmt.Sprintf("%d %s", w.Release, w.Status)]++
		}
		if diff := cmp.Diff(map[string]int{"1 RUNNING": 1, "2 IDLE": 2}, got); diff != "" {
			t.Errorf("after the release (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute)
		if j = svc.job(t, j); j.Status != serverless.Completed || j.Deliveries != 1 {
			t.Errorf("job is %v after %d deliveries, want COMPLETED by the old worker", j.Status, j.Deliveries)
		}
		if w := svc.first(); slices.Contains(svc.ids(), w.ID) {
			t.Errorf("worker %s of release 1 is still there", w.ID)
		}
	})
}

func TestWorkerThatIgnoresAStopNoticeIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("stubborn", 0, 1))
		j := svc.submit(t, 1, false)
		time.Sleep(5 * time.Second)
		if _, err := svc.Cancel(t.Context(), "alice", j.Ref); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second)
		if n := svc.there(); n != 0 {
			t.Errorf("%d workers are there, want none: it goes on with a cancelled job", n)
		}
	})
}

func TestDrainedWorkerIsReplacedAfterItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("long", 1, 1))
		j := svc.submit(t, 1, false)
		time.Sleep(5 * time.Second)
		old := svc.ids()
		svc.DrainWorker("e", old[0])
		time.Sleep(30 * time.Second)
		if got := svc.ids(); !slices.Equal(got, old) || svc.counts(t).Running != 1 {
			t.Errorf("workers %v and then %v, want the same one as long as it has a job", old, got)
		}
		time.Sleep(time.Minute)
		if j = svc.job(t, j); j.Status != serverless.Completed || j.Deliveries != 1 {
			t.Errorf("job is %v after %d deliveries, want COMPLETED by the worker that had it", j.Status, j.Deliveries)
		}
		if got := svc.ids(); len(got) != 1 || got[0] == old[0] {
			t.Errorf("workers %v and then %v, want another one", old, got)
		}
	})
}

func TestAWorkerIsStoppedByItsNameIfTheServiceStartedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("long", 1, 1))
		j := svc.submit(t, 1, false)
		time.Sleep(5 * time.Second)
		old := svc.ids()
		if err := svc.StopWorker(t.Context(), "e", "none"); !errors.Is(err, serverless.ErrNoWorker) {
			t.Errorf("StopWorker of an unknown worker = %v, want ErrNoWorker", err)
		}
		if err := svc.StopWorker(t.Context(), "none", old[0]); !errors.Is(err, serverless.ErrNoEndpoint) {
			t.Errorf("StopWorker of an unknown endpoint = %v, want ErrNoEndpoint", err)
		}
		if err := svc.StopWorker(t.Context(), "e", old[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if j = svc.job(t, j); j.Status != serverless.Completed || j.Deliveries != 1 {
			t.Errorf("job is %v after %d deliveries, want COMPLETED by the worker that had it", j.Status, j.Deliveries)
		}
		if got := svc.ids(); len(got) != 1 || got[0] == old[0] {
			t.Errorf("workers %v and then %v, want another one", old, got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- svc.Serve(ctx, "e", serverless.WorkerFunc(func(context.Context, *serverless.Task) ([]byte, error) { return nil, nil }), &serverless.ServeOptions{ID: "own"})
		}()
		synctest.Wait()
		if err := svc.StopWorker(t.Context(), "e", "own"); problem.KindOf(err) != problem.Conflict {
			t.Errorf("StopWorker of a worker of the program = %v, want a Conflict", err)
		}
		cancel()
		<-done
	})
}

func TestUnhealthyWorkerIsReplacedAndItsJobsAreGivenToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("long", 1, 2))
		j := svc.submit(t, 1, false)
		time.Sleep(5 * time.Second)
		old := svc.ids()
		if err := svc.ReportUnhealthy(t.Context(), "e", old[0], "gpu: 79 C"); err != nil {
			t.Fatal(err)
		}
		if ready := svc.ReadyWorkers("e"); slices.Contains(ready, old[0]) {
			t.Errorf("workers %v take jobs, and %s is not healthy", ready, old[0])
		}
		time.Sleep(10 * time.Second)
		why, err := svc.Why(t.Context(), "alice", j.Ref)
		if j = svc.job(t, j); j.Status != serverless.InProgress || j.Worker == old[0] {
			t.Errorf("job is %v at %q, want IN_PROGRESS at another worker: %s, %v", j.Status, j.Worker, why, err)
		}
	})
}

func TestWorkerThatNeverAsksForAJobIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := image("silent", 0, 1)
		e.Container.Env = map[string]string{"RUNPOD_INIT_TIMEOUT": "60"}
		svc := newScaledService(t, e)
		j := svc.submit(t, 1, false)
		time.Sleep(65 * time.Second)
		why, err := svc.Why(t.Context(), "alice", j.Ref)
		if err != nil || !strings.Contains(why, "never came for a job") {
			t.Errorf("Why = %q, %v, want that the worker never came", why, err)
		}
	})
}

func TestDeletedAndPausedEndpointsHaveNoWorkers(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *scaledService){
		"deleted": func(t *testing.T, svc *scaledService) {
			if err := svc.endpoints.Delete(t.Context(), "e"); err != nil {
				t.Fatal(err)
			}
		},
		"paused": func(t *testing.T, svc *scaledService) {
			svc.change(t, func(e *serverless.Endpoint) { e.Workers.Min, e.Workers.Max = 0, 0 })
		},
		"without an image": func(t *testing.T, svc *scaledService) {
			svc.change(t, func(e *serverless.Endpoint) { e.Container.Image = "" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := newScaledService(t, image("works", 2, 3))
				time.Sleep(5 * time.Second)
				if n := svc.there(); n != 2 {
					t.Fatalf("%d workers, want 2", n)
				}
				end(t, svc)
				time.Sleep(20 * time.Second)
				if n := svc.there(); n != 0 {
					t.Errorf("%d workers are there, want none", n)
				}
			})
		})
	}
}

func TestServiceThatComesAfterAnotherGoesOnWithItsWorkers(t *testing.T) {
	for _, c := range []struct {
		secret string
		starts int
	}{{"secret", 2}, {"", 4}} {
		t.Run("secret "+c.secret, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := newScaledService(t, image("works", 2, 2))
				time.Sleep(5 * time.Second)
				before := svc.ids()
				svc.stop()
				svc.open(t, c.secret)
				time.Sleep(70 * time.Second)
				after := svc.ids()
				if svc.starts() != c.starts || slices.Equal(before, after) != (c.secret != "") {
					t.Errorf("%d starts, workers %v and then %v", svc.starts(), before, after)
				}
				if n := svc.counts(t); n.Idle != 2 {
					t.Errorf("workers = %+v, want two that are idle", n)
				}
			})
		})
	}
}

func TestLowPriorityRunsWhenAWorkerIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 0, 2))
		low := svc.submit(t, 5, true)
		time.Sleep(time.Minute)
		if svc.starts() != 0 {
			t.Errorf("%d workers were started for jobs of low priority, want none", svc.starts())
		}
		why, err := svc.Why(t.Context(), "alice", low.Ref)
		if err != nil || !strings.Contains(why, "low priority") {
			t.Errorf("Why = %q, %v, want the priority", why, err)
		}
		svc.submit(t, 1, false)
		time.Sleep(20 * time.Second)
		if j := svc.job(t, low); j.Status != serverless.Completed {
			t.Errorf("job of low priority is %v after a normal one brought a worker, want COMPLETED", j.Status)
		}
	})
}

func TestFleetThatRefusesIsNotAskedInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 1, 1))
		svc.fleet.mu.Lock()
		svc.fleet.refuse = errors.New("the engine's socket /run/secret is gone")
		svc.fleet.mu.Unlock()
		svc.change(t, func(e *serverless.Endpoint) { e.Version = 2 })
		j := svc.submit(t, 2, false)
		time.Sleep(30 * time.Second)
		why, err := svc.Why(t.Context(), "alice", j.Ref)
		if err != nil || strings.Contains(why, "/run/secret") || !strings.Contains(why, "could not be started") {
			t.Errorf("Why = %q, %v, want that it could not be started and nothing of the inside", why, err)
		}
	})
}

func TestThousandJobsAndNeverMoreWorkersThanTheMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 0, 10))
		began := time.Now()
		last := svc.submit(t, 1000, false)
		j, err := svc.Wait(t.Context(), "alice", last.Ref, time.Hour)
		if err != nil || j.Status != serverless.Completed {
			t.Fatalf("the last job is %v, %v", j.Status, err)
		}
		if d := time.Since(began); d > 110*time.Second {
			t.Errorf("a thousand jobs of a second took %v with ten workers, want a delay and a start more than 100 s", d)
		}
		if svc.most() != 10 || svc.starts() != 10 {
			t.Errorf("%d workers at most and %d starts, want 10", svc.most(), svc.starts())
		}
	})
}
