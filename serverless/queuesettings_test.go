package serverless_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

func withJobKey(key string) func(*serverless.Request) {
	return func(r *serverless.Request) { r.Queue.Key = &key }
}

func setQueue(t *testing.T, s *serverless.Service, endpoint string, r endpoints.QueueUpdate) {
	t.Helper()
	if _, err := s.UpdateQueue(t.Context(), endpoint, r); err != nil {
		t.Fatalf("UpdateQueue: %v", err)
	}
}

// taking has a worker of echo wait for a job. The channel has the jobs that it got.
func taking(t *testing.T, s *serverless.Service, w serverless.WorkerID) <-chan []serverless.Job {
	t.Helper()
	got := make(chan []serverless.Job, 1)
	go func() {
		jobs, err := s.Take(t.Context(), "echo", w, 1)
		if err != nil && t.Context().Err() == nil {
			t.Errorf("Take of %s: %v", w, err)
		}
		got <- jobs
	}()
	synctest.Wait()
	return got
}

// The end of a job of a full key gives the next one to a worker that waits, also if the worker of
// the first asks for nothing.
func TestAPlaceThatIsFreeGoesToAWorkerThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serviceOn(t, newFaultyQueue(), nil)
		setQueue(t, s, "echo", endpoints.QueueUpdate{PerKey: new(1)})
		first, second := submitEcho(t, s, withJobKey("a")), submitEcho(t, s, withJobKey("a"))
		if j := takeOne(t, s, "w"); j.Ref != first {
			t.Fatalf("the first job is %s, want %s", j.ID, first.ID)
		}
		got := taking(t, s, "v")
		select {
		case jobs := <-got:
			t.Fatalf("a worker got %v of a full key", jobs)
		default:
		}
		wantWhy(t, s, second, "it may not start yet, and no worker is started for it: 1 jobs of its key run, which is the endpoint's perKey")
		if err := finish(t, s, first, "w", "1"); err != nil {
			t.Fatal(err)
		}
		if jobs := <-got; len(jobs) != 1 || jobs[0].Ref != second {
			t.Errorf("the worker that waits got %v, want the second job", jobs)
		}
	})
}

func TestAPausedEndpointGivesItsJobsWhenThePauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serviceOn(t, newFaultyQueue(), nil)
		got := taking(t, s, "w")
		setQueue(t, s, "echo", endpoints.QueueUpdate{Paused: new(true)})
		ref := submitEcho(t, s)
		time.Sleep(time.Minute)
		wantStatus(t, s, ref, serverless.InQueue)
		wantWhy(t, s, ref, "no worker is started for it: its endpoint is paused")
		setQueue(t, s, "echo", endpoints.QueueUpdate{Paused: new(false)})
		if jobs := <-got; len(jobs) != 1 || jobs[0].Ref != ref {
			t.Errorf("after the pause the worker got %v, want the job", jobs)
		}
	})
}

// Jobs that may not start make the scaler start no worker: a key with one place needs one worker.
func TestBlockedAndDelayedJobsStartNoWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("long", 0, 5))
		submit := func(q serverless.QueueOptions) serverless.Job {
			t.Helper()
			j, err := svc.Submit(t.Context(), "alice", "e", serverless.Request{Input: []byte(`{}`), Queue: q})
			if err != nil {
				t.Fatal(err)
			}
			return j
		}
		setQueue(t, svc.Service, "e", endpoints.QueueUpdate{Paused: new(true)})
		for range 8 {
			submit(serverless.QueueOptions{Key: new("a")})
		}
		submit(serverless.QueueOptions{StartAfter: new(time.Hour)})
		time.Sleep(time.Minute)
		if n := svc.counts(t); n != (serverless.WorkerCounts{}) {
			t.Errorf("workers of a paused endpoint: %+v, want none", n)
		}
		setQueue(t, svc.Service, "e", endpoints.QueueUpdate{Paused: new(false), PerKey: new(1)})
		for range 20 {
			time.Sleep(time.Second)
			if n := svc.counts(t); n.Running+n.Idle+n.Initializing > 1 {
				t.Fatalf("workers for a key with one place: %+v, want one", n)
			}
		}
		if n := svc.counts(t); n.Running != 1 {
			t.Errorf("workers for a key with one place: %+v, want one that runs", n)
		}
	})
}

// A job without a retry policy has that of its endpoint, and its dead letters.
func TestAnEndpointHasARetryPolicyForItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serviceOn(t, newFaultyQueue(), nil)
		policy := serverless.DefaultRetry()
		policy.Attempts = 3
		setQueue(t, s, "echo", endpoints.QueueUpdate{Retry: &policy, DeadLetter: new(time.Hour)})
		own := serverless.DefaultRetry()
		own.Attempts = 7
		none := serverless.DefaultRetry()
		for _, c := range []struct {
			name  string
			retry *serverless.RetryPolicy
			want  serverless.RetryPolicy
		}{{"without", nil, policy}, {"with its own", &own, own}, {"that has one attempt", &none, serverless.RetryPolicy{}}} {
			j := mustGet(t, s, submitEcho(t, s, func(r *serverless.Request) { r.Queue.Retry = c.retry }))
			if j.Retry != c.want || j.DeadLetter != time.Hour {
				t.Errorf("a job %s has %+v, kept for %v, want %+v, 1h", c.name, j.Retry, j.DeadLetter, c.want)
			}
		}
	})
}

// InitQueue sets what a program wants at its first start, and never what somebody has set.
func TestInitQueueChangesNothingThatWasSet(t *testing.T) {
	s := serverless.New(memory.NewJobs(), twoEndpoints(t), nil)
	perUser := func(want int, e *serverless.Endpoint, err error) {
		t.Helper()
		if err != nil || e.QueueSettings().PerUser != want || e.QueueSettings().Ageing != queue.DefaultAgeing {
			t.Errorf("the settings are %+v, %v, want %d for each user", e.QueueSettings(), err, want)
		}
	}
	for _, n := range []int{5, 6} {
		e, err := s.InitQueue(t.Context(), "echo", endpoints.QueueUpdate{PerUser: &n})
		perUser(5, e, err)
	}
	e, err := s.UpdateQueue(t.Context(), "echo", endpoints.QueueUpdate{PerUser: new(0)})
	perUser(0, e, err)
	e, err = s.InitQueue(t.Context(), "echo", endpoints.QueueUpdate{PerUser: new(6)})
	perUser(0, e, err)
	if _, err := s.UpdateQueue(t.Context(), "nothere", endpoints.QueueUpdate{}); !errors.Is(err, serverless.ErrNoEndpoint) {
		t.Errorf("UpdateQueue of an unknown endpoint = %v, want ErrNoEndpoint", err)
	}
	if _, err := s.UpdateQueue(t.Context(), "echo", endpoints.QueueUpdate{Total: new(-1)}); err == nil || !strings.Contains(strings.Join(problem.Of(err).Errors, " "), "/total") {
		t.Errorf("UpdateQueue with a total of -1 = %v, want a fault of /total", err)
	}
}
