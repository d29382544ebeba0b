package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

func wantRetried(t *testing.T, s *serverless.Service, want int64) {
	t.Helper()
	if h, err := s.Health(t.Context(), "echo"); err != nil || h.Jobs.Retried != want {
		t.Errorf("health counts %d retried, %v, want %d", h.Jobs.Retried, err, want)
	}
}

// taking is a Take that waits for at most d and records what it got and when.
type takeResult struct {
	worker serverless.WorkerID
	jobs   []serverless.Job
	err    error
	after  time.Duration
}

func takeAsync(ctx context.Context, s *serverless.Service, w serverless.WorkerID, n int) <-chan takeResult {
	ch := make(chan takeResult, 1)
	begin := time.Now()
	go func() {
		jobs, err := s.Take(ctx, "echo", w, n)
		ch <- takeResult{w, jobs, err, time.Since(begin)}
	}()
	synctest.Wait()
	return ch
}

func TestWorkerThatNeverPingsLosesItsJobToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ref := submitEcho(t, s)
		takeOne(t, s, "silent")
		same, other := takeAsync(ctx, s, "silent", 1), takeAsync(ctx, s, "other", 1)
		until(30*time.Second, func() { wantStatus(t, s, ref, serverless.InProgress) }, func() {})
		got := <-other
		if len(got.jobs) != 1 || got.jobs[0].Ref != ref || got.jobs[0].Deliveries != 2 || got.after != 30*time.Second {
			t.Fatalf("the other worker gets %d jobs after %v, want the lost one after 30 s", len(got.jobs), got.after)
		}
		wantRetried(t, s, 1)
		cancel()
		if got := <-same; len(got.jobs) != 0 {
			t.Errorf("the worker that lost the job got it again")
		}
	})
}

func TestLostJobDoesNotKeepItsLoserBusy(t *testing.T) {
	// The worker that may not have the job waits with two calls, which must not wake each
	// other over and over.
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		s := serviceOn(t, q, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ref := submitEcho(t, s)
		takeOne(t, s, "silent")
		a, b := takeAsync(ctx, s, "silent", 1), takeAsync(ctx, s, "silent", 1)
		before := q.calls.Load()
		time.Sleep(time.Minute - time.Millisecond)
		wantStatus(t, s, ref, serverless.InQueue)
		if n := q.calls.Load() - before; n > 20 {
			t.Errorf("%d calls of the queue for one lost job", n)
		}
		cancel()
		if x, y := <-a, <-b; len(x.jobs)+len(y.jobs) != 0 {
			t.Error("the worker that lost the job got it again")
		}
	})
}

// A worker is alone on its endpoint, and does not ping for longer than a lease.
func TestAWorkerThatIsAloneGetsTheJobAgainThatItLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		takeOne(t, s, "w")
		again := takeAsync(t.Context(), s, "w", 1)
		time.Sleep(45 * time.Second)
		wantStatus(t, s, ref, serverless.InQueue)
		wantWhy(t, s, ref, "a worker had it and lost it; until "+time.Now().Add(15*time.Second).UTC().Format(time.RFC3339)+" it is given to another worker than w")
		got := <-again
		if len(got.jobs) != 1 || got.jobs[0].Ref != ref || got.jobs[0].Deliveries != 2 || got.after != time.Minute {
			t.Fatalf("the worker gets %d jobs after %v, want the lost one after 30 s of its lease and 30 s for others", len(got.jobs), got.after)
		}
		if err := finish(t, s, ref, "w", `"done"`); err != nil {
			t.Fatalf("the result = %v, want nil", err)
		}
		wantStatus(t, s, ref, serverless.Completed)
	})
}

func TestThirdWorkerThatIsLostFailsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		for i, w := range []serverless.WorkerID{"a", "b", "c"} {
			if j := takeOne(t, s, w); int(j.Deliveries) != i+1 {
				t.Fatalf("delivery %d to %s is number %d", i+1, w, j.Deliveries)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
		}
		if got, want := string(show(t, s, ref)), `{"delayTime":60000,"error":"worker lost: the job was given to workers 3 times and none of them reported a result","executionTime":30000,"id":"`+
			string(ref.ID)+`","status":"FAILED","workerId":"c"}`; got != want {
			t.Errorf("job = %s\nwant  %s", got, want)
		}
		wantRetried(t, s, 2)
		if j, err := s.Retry(t.Context(), "alice", ref); err != nil || j.Deliveries != 0 {
			t.Fatalf("Retry = %v with %d deliveries, want 0", err, j.Deliveries)
		}
		takeOne(t, s, "c") // the one that lost the last run may have this one
	})
}

func TestPingRenewsWhatItLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		day := 24 * time.Hour
		ref := submitEcho(t, s, withTimeout(day), withTTL(2*day))
		takeOne(t, s, "w")
		for range 1000 {
			time.Sleep(29 * time.Second)
			ping(t, s, "w", ref.ID)
		}
		time.Sleep(30*time.Second - time.Millisecond)
		synctest.Wait()
		wantStatus(t, s, ref, serverless.InProgress)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		wantStatus(t, s, ref, serverless.InQueue)
		wantRetried(t, s, 1)
	})
}

// reportIdle is a worker that asks for a job and says that it has none.
func reportIdle(t *testing.T, s *serverless.Service, w serverless.WorkerID) {
	t.Helper()
	if err := s.ReportIdle(t.Context(), "echo", w); err != nil {
		t.Fatal(err)
	}
}

const noResultText = "worker lost: the job was given to workers 3 times and none of them reported a result; the last one: "

// The handler returned what the SDK cannot encode: it reports nothing, and asks for the next job.
func TestJobThatItsWorkerEndsWithoutAResultFailsTheThirdTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		for n := range 3 {
			if j := takeOne(t, s, "w"); int(j.Deliveries) != n+1 {
				t.Fatalf("delivery is number %d, want %d: the last one counts", j.Deliveries, n+1)
			}
			reportIdle(t, s, "w") // another of its requests, which was on its way
			wantStatus(t, s, ref, serverless.InProgress)
			time.Sleep(time.Second)
			reportIdle(t, s, "w")
		}
		if j := mustGet(t, s, ref); j.Status != serverless.Failed || j.ErrorText() != noResultText+"it asked for another job and had reported no result" {
			t.Errorf("job = %v %q, want FAILED with the reason", j.Status, j.ErrorText())
		}
		wantRetried(t, s, 2)
	})
}

func TestPingsThatListOtherJobsEndOneWithoutAResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		other, ref := submitEcho(t, s), submitEcho(t, s)
		takeOne(t, s, "w")
		ping(t, s, "w", other.ID)
		for n := range 3 {
			if j := takeOne(t, s, "w"); j.Ref != ref || int(j.Deliveries) != n+1 {
				t.Fatalf("delivery is number %d of %s, want %d", j.Deliveries, j.ID, n+1)
			}
			ping(t, s, "w", other.ID) // it may be on its way
			time.Sleep(10 * time.Second)
			ping(t, s, "w", other.ID)
			wantStatus(t, s, ref, serverless.InProgress)
			time.Sleep(time.Millisecond)
			ping(t, s, "w", other.ID)
		}
		if j := mustGet(t, s, ref); j.Status != serverless.Failed || j.ErrorText() != noResultText+"it reported no result, and its pings do not list the job" {
			t.Errorf("job = %v %q, want FAILED with the reason", j.Status, j.ErrorText())
		}
		wantStatus(t, s, other, serverless.InProgress)
	})
}

// Several SDKs and many workers without one never list a job.
func TestWorkerWhosePingsNeverListAJobKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		takeOne(t, s, "w")
		for range 6 {
			time.Sleep(10 * time.Second)
			ping(t, s, "w")
		}
		wantStatus(t, s, ref, serverless.InProgress)
		if err := finish(t, s, ref, "w", `1`); err != nil {
			t.Fatal(err)
		}
		if j := mustGet(t, s, ref); j.Status != serverless.Completed || j.Deliveries != 1 {
			t.Errorf("job = %v after %d deliveries, want COMPLETED after one", j.Status, j.Deliveries)
		}
	})
}

// The same after a restart of the server, which finds the lease in its store.
func TestPingWithoutJobsRenewsALeaseOfAnEarlierService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memory.NewJobs()
		first := serviceOn(t, q, nil)
		ref := submitEcho(t, first)
		takeOne(t, first, "w")
		again := serviceOn(t, q, nil)
		for range 6 {
			time.Sleep(10 * time.Second)
			ping(t, again, "w")
		}
		wantStatus(t, again, ref, serverless.InProgress)
		if list, err := again.WorkerList(t.Context(), "echo"); err != nil || len(list) != 1 || list[0].Status != serverless.StatusRunning {
			t.Errorf("workers = %+v, %v, want one that runs a job", list, err)
		}
	})
}

func TestPingRenewsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		a, b := submitEcho(t, s), submitEcho(t, s)
		takeOne(t, s, "w")
		takeOne(t, s, "w")
		ping(t, s, "w", a.ID, b.ID)
		for range 3 {
			time.Sleep(10 * time.Second)
			ping(t, s, "w", b.ID) // it has ended a and says nothing of how
		}
		synctest.Wait()
		wantStatus(t, s, a, serverless.InQueue)
		wantStatus(t, s, b, serverless.InProgress)
		wantRetried(t, s, 1) // a was there: its loss is charged
	})
}

func TestWorkerAdoptsALostJobThatNobodyElseHas(t *testing.T) {
	for name, again := range map[string]func(*testing.T, *serverless.Service, serverless.Ref) error{
		"by a ping": func(t *testing.T, s *serverless.Service, ref serverless.Ref) error {
			return s.Ping(t.Context(), "echo", "w", []serverless.JobID{ref.ID})
		},
		"by a chunk": func(t *testing.T, s *serverless.Service, ref serverless.Ref) error {
			return s.Report(t.Context(), queue.Op{Ref: ref, Kind: queue.OpChunk, Worker: "w", Payload: []byte(`{"output":1}`)})
		},
		"by progress": func(t *testing.T, s *serverless.Service, ref serverless.Ref) error {
			return s.Report(t.Context(), queue.Op{Ref: ref, Kind: queue.OpProgress, Worker: "w", Payload: []byte(`1`)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, nil)
				ref := submitEcho(t, s)
				takeOne(t, s, "w")
				time.Sleep(31 * time.Second)
				synctest.Wait()
				wantStatus(t, s, ref, serverless.InQueue)
				if err := again(t, s, ref); err != nil {
					t.Fatal(err)
				}
				wantStatus(t, s, ref, serverless.InProgress)
				if jobs := tryTake(t, s, "other"); len(jobs) != 0 {
					t.Fatal("another worker gets the job that was taken up again")
				}
				time.Sleep(28 * time.Second)
				synctest.Wait()
				wantStatus(t, s, ref, serverless.InProgress)
				if err := finish(t, s, ref, "w", `"done"`); err != nil {
					t.Fatalf("the result = %v, want nil", err)
				}
				if j := mustGet(t, s, ref); j.Status != serverless.Completed || j.Worker != "w" || string(j.Output) != `"done"` {
					t.Errorf("job is %v by %s: %s", j.Status, j.Worker, j.Output)
				}
			})
		})
	}
}

func TestResultOfALostJobCountsWhileNobodyElseHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		takeOne(t, s, "w")
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := finish(t, s, ref, "w", `"late"`); err != nil {
			t.Fatalf("the result = %v, want nil", err)
		}
		if j := mustGet(t, s, ref); j.Status != serverless.Completed || j.ExecutionTime() != time.Hour || j.DelayTime() != 0 {
			t.Errorf("job = %v after %v and %v, want COMPLETED with the hour that its worker took", j.Status, j.DelayTime(), j.ExecutionTime())
		}
		if jobs := tryTake(t, s, "other"); len(jobs) != 0 {
			t.Error("a completed job is given out")
		}
	})
}

func TestReportOfAJobThatIsNotHeldChangesNothing(t *testing.T) {
	kinds := map[string]queue.Op{
		"finish":   {Kind: queue.OpFinish, Status: serverless.Completed, Payload: []byte(`"bad"`)},
		"failure":  {Kind: queue.OpFinish, Status: serverless.Failed, Error: "bad"},
		"chunk":    {Kind: queue.OpChunk, Payload: []byte(`{"output":"bad"}`)},
		"progress": {Kind: queue.OpProgress, Payload: []byte(`"bad"`)},
		"release":  {Kind: queue.OpRelease},
	}
	for _, tt := range []struct {
		name string
		make func(t *testing.T, s *serverless.Service, ref serverless.Ref)
	}{
		{"that waits", func(*testing.T, *serverless.Service, serverless.Ref) {}},
		{"that another has", func(t *testing.T, s *serverless.Service, _ serverless.Ref) { takeOne(t, s, "other") }},
		{"that another took after it", func(t *testing.T, s *serverless.Service, _ serverless.Ref) {
			takeOne(t, s, "w")
			time.Sleep(30 * time.Second)
			synctest.Wait()
			takeOne(t, s, "other")
		}},
		{"that it has ended", func(t *testing.T, s *serverless.Service, ref serverless.Ref) {
			takeOne(t, s, "w")
			if err := finish(t, s, ref, "w", `"good"`); err != nil {
				t.Fatal(err)
			}
		}},
		{"that was cancelled", func(t *testing.T, s *serverless.Service, ref serverless.Ref) {
			takeOne(t, s, "w")
			if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
				t.Fatal(err)
			}
		}},
		{"that timed out", func(t *testing.T, s *serverless.Service, ref serverless.Ref) {
			takeOne(t, s, "w")
			for range 59 {
				time.Sleep(10 * time.Second)
				ping(t, s, "w", ref.ID)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			wantStatus(t, s, ref, serverless.TimedOut)
		}},
		{"that is retried and waits", func(t *testing.T, s *serverless.Service, ref serverless.Ref) {
			takeOne(t, s, "w")
			if err := s.Report(t.Context(), queue.Op{Ref: ref, Kind: queue.OpFinish, Worker: "w", Status: serverless.Failed, Error: "no"}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Retry(t.Context(), "alice", ref); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, nil)
				ref := submitEcho(t, s)
				tt.make(t, s, ref)
				before := mustGet(t, s, ref)
				for name, op := range kinds {
					op.Ref, op.Worker = ref, "w"
					if err := s.Report(t.Context(), op); !errors.Is(err, serverless.ErrLeaseLost) {
						t.Errorf("%s = %v, want ErrLeaseLost", name, err)
					}
					if op.Ref.ID = "unknown"; !errors.Is(s.Report(t.Context(), op), serverless.ErrNotFound) {
						t.Errorf("%s of an unknown job is not ErrNotFound", name)
					}
				}
				if diff := cmp.Diff(before, mustGet(t, s, ref)); diff != "" {
					t.Errorf("job after the reports (-before +after):\n%s", diff)
				}
			})
		})
	}
}

func TestResultOverTheLimitFailsTheJobNamingIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		takeOne(t, s, "w")
		big := make([]byte, serverless.MaxOutput+1)
		if err := finish(t, s, ref, "w", string(big)); err != nil {
			t.Fatal(err)
		}
		if j := mustGet(t, s, ref); j.Status != serverless.Failed || j.Output != nil || j.Error != "the result is larger than 20971520 bytes (20 MB)" {
			t.Errorf("job is %v, %q", j.Status, j.Error)
		}
	})
}

func TestWaitStopsReturnsEachJobOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		var refs []serverless.Ref
		for range 3 {
			refs = append(refs, submitEcho(t, s))
			takeOne(t, s, "w")
		}
		ping(t, s, "w", refs[0].ID, refs[1].ID, refs[2].ID)
		waits := make(chan []serverless.JobID, 1)
		go func() {
			got, err := s.WaitStops(t.Context(), "echo", "w")
			if err != nil {
				t.Error(err)
			}
			waits <- got
		}()
		time.Sleep(5 * time.Second)
		begin := time.Now()
		for _, ref := range refs[:2] {
			if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
				t.Fatal(err)
			}
		}
		got := <-waits
		synctest.Wait()
		got = append(got, stops(t, s, "w")...)
		want := []serverless.JobID{refs[0].ID, refs[1].ID}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" || time.Since(begin) > time.Millisecond {
			t.Errorf("after %v, told (-want +got):\n%s", time.Since(begin), diff)
		}
		if again := stops(t, s, "w"); len(again) != 0 {
			t.Errorf("told again: %v", again)
		}
		pingLost(t, s, "w", refs[0].ID, refs[2].ID)
		if again := stops(t, s, "w"); len(again) != 0 {
			t.Errorf("told again after a ping that still lists it: %v", again)
		}
		wantStatus(t, s, refs[2], serverless.InProgress)
	})
}

// A worker that is told to stop a job which it is about to get ignores that.
func TestAStopThatOvertakesItsJobIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		takeOne(t, s, "w")
		if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
			t.Fatal(err)
		}
		for _, want := range [][]serverless.JobID{{ref.ID}, {ref.ID}, nil, nil} {
			if diff := cmp.Diff(want, stops(t, s, "w")); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			pingLost(t, s, "w", ref.ID)
		}
	})
}

// The ping was on its way with it, and by the time the worker lists the job it is not even there any more.
func TestAStopThatOvertakesItsJobIsRepeatedAlsoAfterAPingWithoutTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		takeOne(t, s, "w")
		if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]serverless.JobID{ref.ID}, stops(t, s, "w")); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		ping(t, s, "w")
		if _, err := s.EraseJobs(t.Context(), "alice", "echo"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // EraseJobs takes a second
		if _, err := s.Get(t.Context(), "alice", ref); !errors.Is(err, serverless.ErrNotFound) {
			t.Fatalf("the job is still there: %v", err)
		}
		for _, want := range [][]serverless.JobID{nil, {ref.ID}, nil} {
			if diff := cmp.Diff(want, stops(t, s, "w")); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			pingLost(t, s, "w", ref.ID)
		}
	})
}

func TestWaitStopsOfAnotherWorkerReturnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		takeOne(t, s, "w")
		if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
			t.Fatal(err)
		}
		if got := stops(t, s, "other"); len(got) != 0 {
			t.Errorf("another worker is told %v", got)
		}
	})
}

// The queue outlives a service: the job was leased by the previous one.
func TestWorkerGetsAStopNoticeForAJobOfAnEarlierService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		ctx, stop := context.WithCancel(t.Context())
		before := serverless.New(q, twoEndpoints(t), nil)
		done := make(chan error, 1)
		go func() { done <- before.Run(ctx) }()
		ref := submitEcho(t, before)
		takeOne(t, before, "w")
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		s := serviceOn(t, q, nil)
		if got := stops(t, s, "w"); len(got) != 0 {
			t.Fatalf("told %v before anything was stopped", got)
		}
		if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]serverless.JobID{ref.ID}, stops(t, s, "w")); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

// Workers of some SDKs list the jobs of their neighbours.
func TestPingOfAnotherWorkersJobIsRefusedAndStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		takeOne(t, s, "other")
		before := mustGet(t, s, ref)
		time.Sleep(time.Second)
		pingLost(t, s, "w", ref.ID, "unknown")
		if told := stops(t, s, "w"); told != nil {
			t.Errorf("the worker is told to stop %v, want nothing: it never had them", told)
		}
		if diff := cmp.Diff(before, mustGet(t, s, ref)); diff != "" {
			t.Errorf("job after another worker's ping (-before +after):\n%s", diff)
		}
	})
}

func TestWorkerGetsNoStopNoticeForAJobThatItStoppedItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		takeOne(t, s, "w")
		ping(t, s, "w", ref.ID)
		if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			time.Sleep(10 * time.Second)
			ping(t, s, "w")
		}
		if got := stops(t, s, "w"); len(got) != 0 {
			t.Errorf("told %v, which it has not had for 20 s", got)
		}
	})
}

func TestDrainedWorkerFinishesAndTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		takeOne(t, s, "w")
		a, b, other := takeAsync(t.Context(), s, "w", 1), takeAsync(t.Context(), s, "w", 1), takeAsync(t.Context(), s, "other", 1)
		time.Sleep(time.Second)
		s.DrainWorker("echo", "w")
		s.DrainWorker("echo", "unknown")
		for _, ch := range []<-chan takeResult{a, b} {
			if got := <-ch; len(got.jobs) != 0 || got.err != nil || got.after != time.Second {
				t.Errorf("Take = %d jobs, %v after %v, want none at once", len(got.jobs), got.err, got.after)
			}
		}
		next := submitEcho(t, s)
		if got := <-other; len(got.jobs) != 1 || got.jobs[0].Ref != next {
			t.Errorf("the other worker gets %d jobs, want the new one", len(got.jobs))
		}
		submitEcho(t, s)
		if got := <-takeAsync(t.Context(), s, "w", 1); len(got.jobs) != 0 || got.after != time.Second {
			t.Errorf("Take after that = %d jobs after %v, want none, and a pause", len(got.jobs), got.after)
		}
		if got := s.ReadyWorkers("echo"); !slices.Equal(got, []serverless.WorkerID{"other"}) {
			t.Errorf("ready workers are %v, want other", got)
		}
		if err := finish(t, s, ref, "w", `1`); err != nil {
			t.Errorf("the result of a dismissed worker = %v, want nil", err)
		}
	})
}

func TestJobsOfAnUnhealthyWorkerAreGivenToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		a, b := submitEcho(t, s), submitEcho(t, s)
		takeOne(t, s, "sick")
		takeOne(t, s, "sick")
		if err := s.ReportUnhealthy(t.Context(), "echo", "sick", "xid 79"); err != nil {
			t.Fatal(err)
		}
		wantRetried(t, s, 2)
		want := []serverless.JobID{a.ID, b.ID}
		slices.Sort(want)
		if diff := cmp.Diff(want, stops(t, s, "sick")); diff != "" {
			t.Errorf("it is told to stop (-want +got):\n%s", diff)
		}
		for _, ref := range []serverless.Ref{a, b} {
			if j := takeOne(t, s, "well"); j.Ref != ref {
				t.Errorf("the other worker takes %s, want %s: a lost job is at the front", j.ID, ref.ID)
			}
		}
		submitEcho(t, s)
		if jobs := <-takeAsync(t.Context(), s, "sick", 1); len(jobs.jobs) != 0 {
			t.Error("a sick worker gets a job")
		}
		h, err := s.Health(t.Context(), "echo")
		if want := (serverless.WorkerCounts{Running: 1, Unhealthy: 1}); err != nil || h.Workers != want {
			t.Errorf("workers are %+v, %v, want %+v", h.Workers, err, want)
		}
	})
}

func TestHealthCountsWorkersThatAreHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		submitEcho(t, s)
		takeOne(t, s, "busy")
		ping(t, s, "pings")
		ctx, cancel := context.WithCancel(t.Context())
		waits := takeAsync(ctx, s, "waiting", 1)
		count := func(want serverless.WorkerCounts) {
			t.Helper()
			if h, err := s.Health(t.Context(), "echo"); err != nil || h.Workers != want {
				t.Errorf("workers are %+v, %v, want %+v", h.Workers, err, want)
			}
		}
		count(serverless.WorkerCounts{Running: 1, Idle: 1, Initializing: 1, Ready: 1}) // who only pings has not joined
		if n := s.RunningWorkers("echo"); n != 1 {
			t.Errorf("%d workers run, want 1", n)
		}
		time.Sleep(31 * time.Second) // all but the one that waits are forgotten, and it has not got the lost job
		synctest.Wait()
		cancel()
		if got := <-waits; len(got.jobs) != 1 {
			t.Fatalf("the waiting worker got %d jobs, want the lost one", len(got.jobs))
		}
		count(serverless.WorkerCounts{Running: 1})
		time.Sleep(time.Hour)
		count(serverless.WorkerCounts{})
	})
}

func TestWorkerExpiresALeaseAfterItsLastTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		w := takeAsync(ctx, s, "w", 1)
		time.Sleep(time.Hour)
		cancel()
		<-w
		ready := func() int { synctest.Wait(); return len(s.ReadyWorkers("echo")) }
		until(30*time.Second, func() {
			if n := ready(); n != 1 {
				t.Errorf("%d workers before the lease is over, want 1", n)
			}
		}, func() {
			if n := ready(); n != 0 {
				t.Errorf("%d workers after the lease is over, want none", n)
			}
		})
	})
}

func TestTakesAreServedFirstComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		got := make(chan serverless.WorkerID, 20)
		var want []serverless.WorkerID
		for i := range 20 {
			w := serverless.WorkerID(fmt.Sprint(i))
			want = append(want, w)
			ch := takeAsync(t.Context(), s, w, 1)
			go func() { got <- (<-ch).worker }()
		}
		var order20 []serverless.WorkerID
		for range 20 {
			submitEcho(t, s)
			order20 = append(order20, <-got)
		}
		if diff := cmp.Diff(want, order20); diff != "" {
			t.Errorf("served (-want +got):\n%s", diff)
		}
	})
}

func TestJobWakesOneTaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		s := serviceOn(t, q, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var all []<-chan takeResult
		for i := range 100 {
			all = append(all, takeAsync(ctx, s, serverless.WorkerID(fmt.Sprint(i)), 1))
		}
		before := q.calls.Load()
		submitAs(t, s, "alice", 7)
		synctest.Wait()
		// An Enqueue and a Claim for each job, and nobody else looks.
		if n := q.calls.Load() - before; n > 7*2+7 {
			t.Errorf("%d calls of the queue for 7 jobs and 100 takers", n)
		}
		cancel()
		served := 0
		for _, ch := range all {
			served += len((<-ch).jobs)
		}
		if served != 7 {
			t.Errorf("%d jobs were handed out, want 7", served)
		}
	})
}

func TestTakeGivesAtMostWhatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		refs := submitAs(t, s, "alice", 5)
		for _, want := range [][]serverless.Ref{refs[:3], refs[3:]} {
			got := <-takeAsync(t.Context(), s, "w", 3)
			var had []serverless.Ref
			for _, j := range got.jobs {
				had = append(had, j.Ref)
			}
			if diff := cmp.Diff(want, had); diff != "" || got.err != nil {
				t.Errorf("%v, jobs (-want +got):\n%s", got.err, diff)
			}
		}
	})
}

func TestBurstOverManyTakersRunsEachJobOnce(t *testing.T) {
	const jobs, takers = 10_000, 50
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		ran := map[serverless.JobID]int{}
		var wg sync.WaitGroup
		for i := range takers {
			w := serverless.WorkerID(fmt.Sprint("w", i))
			wg.Go(func() {
				for ctx.Err() == nil {
					js, err := s.Take(ctx, "echo", w, 1+i%3)
					if err != nil {
						t.Errorf("Take = %v", err)
						return
					}
					for _, j := range js {
						mu.Lock()
						ran[j.ID]++
						mu.Unlock()
						if err := finish(t, s, j.Ref, w, `1`); err != nil {
							t.Errorf("finish = %v", err)
						}
					}
				}
			})
		}
		var submitters sync.WaitGroup
		for range 10 {
			submitters.Go(func() { submitAs(t, s, "alice", jobs/10) })
		}
		submitters.Wait()
		synctest.Wait()
		cancel()
		wg.Wait()
		for id, n := range ran {
			if n != 1 {
				t.Errorf("job %s ran %d times", id, n)
			}
		}
		h, err := s.Health(t.Context(), "echo")
		if len(ran) != jobs || err != nil || h.Jobs.Completed != jobs || h.Jobs.Queued != 0 {
			t.Errorf("%d jobs ran, health %+v, %v, want %d", len(ran), h.Jobs, err, jobs)
		}
	})
}

func TestTakerThatLeavesPassesItsWakeOn(t *testing.T) {
	// Submissions and takers that leave at the same moment: whoever stays must be woken.
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		for round := range 300 {
			ctx, cancel := context.WithCancel(t.Context())
			var leave []<-chan takeResult
			for i := range 1 + rnd.IntN(4) {
				leave = append(leave, takeAsync(ctx, s, serverless.WorkerID(fmt.Sprint("leaves", round, i)), 1))
			}
			stayCtx, stop := context.WithCancel(t.Context())
			stay := takeAsync(stayCtx, s, "stays", 1)
			go cancel()
			ref := submitEcho(t, s)
			synctest.Wait()
			if mustGet(t, s, ref).Status != serverless.InProgress {
				t.Fatalf("round %d, seed %d: the job waits although a worker does", round, seed)
			}
			stop()
			for _, ch := range append(leave, stay) {
				<-ch
			}
		}
	})
}

// An interrupted queue has something happen during one of its claims.
type interrupted struct {
	*faultyQueue
	claims int
	second func()
}

func (q *interrupted) Claim(ctx context.Context, now serverless.Instant, slots []queue.Slot, out []serverless.Job) ([]serverless.Job, error) {
	if q.claims++; q.claims == 2 {
		q.second()
	}
	return q.faultyQueue.Claim(ctx, now, slots, out)
}

func TestTakerThatFindsAnotherJobPassesItsWakeOn(t *testing.T) {
	// While the first in line looks, it is woken for a second job and finds a first one,
	// of which no hint had come. The second one is for the next in line.
	synctest.Test(t, func(t *testing.T) {
		q := &interrupted{faultyQueue: newFaultyQueue()}
		s := serviceOn(t, q, nil)
		var next <-chan takeResult
		q.second = func() {
			next = takeAsync(t.Context(), s, "next", 1)
			q.muted = true
			submitEcho(t, s)
			q.muted = false
			submitEcho(t, s)
		}
		if jobs, err := s.Take(t.Context(), "echo", "first", 1); len(jobs) != 1 || err != nil {
			t.Fatalf("Take = %d jobs, %v, want the first", len(jobs), err)
		}
		if got := <-next; len(got.jobs) != 1 || got.after != 0 {
			t.Errorf("the next in line gets %d jobs after %v, want the second at once", len(got.jobs), got.after)
		}
	})
}

func TestTakeOfACallerThatIsGoneLeasesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if jobs, err := s.Take(ctx, "echo", "w", 1); len(jobs) != 0 || err != nil {
			t.Errorf("Take = %d jobs, %v, want none", len(jobs), err)
		}
		wantStatus(t, s, ref, serverless.InQueue)
	})
}

func TestWakeThatFailedGoesToTheNextTaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		s := serviceOn(t, q, nil)
		a, b := takeAsync(t.Context(), s, "a", 1), takeAsync(t.Context(), s, "b", 1)
		q.failCalls("Claim", 1)
		ref := submitEcho(t, s)
		if got := <-a; !errors.Is(got.err, errInjected) {
			t.Errorf("first Take = %v, want the queue's error", got.err)
		}
		synctest.Wait()
		wantStatus(t, s, ref, serverless.InProgress)
		if got := <-b; len(got.jobs) != 1 || got.after != 0 {
			t.Errorf("second Take = %d jobs after %v, want the job at once", len(got.jobs), got.after)
		}
	})
}

// fullFor returns a service whose user has room for n more bytes of jobs.
func fullFor(t *testing.T, n int64) (*serverless.Service, func(n int64)) {
	q := memory.NewJobs()
	s := serviceOn(t, q, nil)
	limit := func(n int64) {
		u, err := q.Usage(t.Context(), "alice")
		if err != nil {
			t.Fatal(err)
		}
		q.Limit(budget.NewSet(budget.Users{Limits: budget.Limits{JobBytes: u[budget.JobBytes] + n}}))
	}
	limit(n)
	return s, limit
}

func TestResultOverTheBudgetFailsTheJobNamingIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, limit := fullFor(t, 1<<20)
		ref := submitEcho(t, s)
		takeOne(t, s, "w")
		limit(100)
		if err := finish(t, s, ref, "w", `"`+strings.Repeat("x", 5000)+`"`); err != nil {
			t.Fatal(err)
		}
		if j := mustGet(t, s, ref); j.Status != serverless.Failed || j.Output != nil || !strings.HasPrefix(j.Error, "the result was not kept: the budget jobBytes is full") {
			t.Errorf("job is %v, %q", j.Status, j.Error)
		}
		limit(1 << 20) // there is room again: its user has it run once more
		if _, err := s.Retry(t.Context(), "alice", ref); err != nil {
			t.Fatal(err)
		}
		takeOne(t, s, "w")
		limit(0)
		if err := finish(t, s, ref, "w", `"small"`); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, s, ref, serverless.Completed)
	})
}

func TestChunkOverTheBudgetFailsTheJobAndStopsItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, limit := fullFor(t, 1<<20)
		ref := submitEcho(t, s)
		takeOne(t, s, "w")
		limit(100)
		op := queue.Op{Ref: ref, Kind: queue.OpProgress, Worker: "w", Payload: []byte(strings.Repeat("1", 200))}
		var full *budget.Error
		if err := s.Report(t.Context(), op); !errors.As(err, &full) {
			t.Errorf("an interim output = %v, want a *budget.Error", err)
		}
		wantStatus(t, s, ref, serverless.InProgress)
		op.Kind = queue.OpChunk
		if err := s.Report(t.Context(), op); !errors.As(err, &full) {
			t.Errorf("a chunk = %v, want a *budget.Error", err)
		}
		if j := mustGet(t, s, ref); j.Status != serverless.Failed || !strings.Contains(j.Error, "the budget jobBytes is full") {
			t.Errorf("job is %v, %q", j.Status, j.Error)
		}
		if got := stops(t, s, "w"); len(got) != 1 || got[0] != ref.ID {
			t.Errorf("the worker is to stop %v, want %v", got, ref.ID)
		}
	})
}
