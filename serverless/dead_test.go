package serverless_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// keepDead has echo keep dead letters for d.
func keepDead(t *testing.T, s *serverless.Service, d time.Duration) {
	t.Helper()
	_, err := s.Endpoints().Update(t.Context(), "echo", func(e *serverless.Endpoint) error {
		q := e.QueueSettings()
		q.DeadLetter = d
		e.Queue = &q
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// fail has a job of echo fail.
func fail(t *testing.T, s *serverless.Service, ref serverless.Ref) {
	t.Helper()
	takeOne(t, s, "w")
	if err := s.Report(t.Context(), queue.Op{Ref: ref, Kind: queue.OpFinish, Worker: "w", Status: serverless.Failed, Error: "no"}); err != nil {
		t.Fatal(err)
	}
}

func deadOf(t *testing.T, s *serverless.Service, owner string) (ids []serverless.JobID) {
	t.Helper()
	list, err := s.DeadLetters(t.Context(), owner, "echo")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		ids = append(ids, d.ID)
	}
	return ids
}

func TestADeadLetterIsKeptForTheTimeOfTheSubmitAtMost30Days(t *testing.T) {
	const day = 24 * time.Hour
	for set, want := range map[time.Duration]time.Duration{0: 0, time.Hour: time.Hour, 30 * day: 30 * day, 31 * day: 30 * day} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			keepDead(t, s, set)
			ref := submitEcho(t, s)
			keepDead(t, s, 5*day) // which counts for later jobs
			fail(t, s, ref)
			if want == 0 {
				if got := deadOf(t, s, "alice"); len(got) > 0 {
					t.Errorf("without the setting dead letters are %v, want none", got)
				}
				return
			}
			time.Sleep(want - time.Millisecond)
			if got := deadOf(t, s, "alice"); !cmp.Equal(got, []serverless.JobID{ref.ID}) {
				t.Errorf("set to %v: dead letters are %v at the end of it, want the job", set, got)
			}
			time.Sleep(time.Millisecond)
			if _, err := s.DeadLetter(t.Context(), "alice", ref); !errors.Is(err, serverless.ErrNoDeadLetter) {
				t.Errorf("set to %v: DeadLetter after it = %v, want ErrNoDeadLetter", set, err)
			}
		})
	}
}

// lostDrops is a queue that cannot delete dead letters.
type lostDrops struct{ serverless.JobQueue }

var errDrop = errors.New("the answer is lost")

func (lostDrops) DropDead(context.Context, []serverless.Ref) error { return errDrop }

func TestARepeatedRedriveMakesOneJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memory.NewJobs()
		s, cut := serviceOn(t, q, nil), serviceOn(t, lostDrops{q}, nil)
		keepDead(t, s, time.Hour)
		keepDead(t, cut, time.Hour)
		ref := submitEcho(t, s, withRetry(twice()), withTTL(10*time.Minute), func(r *serverless.Request) {
			r.Queue.Priority, r.Queue.Key = new(8), new("k")
		})
		fail(t, s, ref)
		time.Sleep(time.Minute)
		fail(t, s, ref)
		first, err := cut.Redrive(t.Context(), "alice", ref)
		if !errors.Is(err, errDrop) {
			t.Fatalf("Redrive = %v, want that it is cut off", err)
		}
		j, err := s.Redrive(t.Context(), "alice", ref)
		if err != nil || j.ID != first.ID && first.ID != "" || j.ID == ref.ID {
			t.Errorf("the second Redrive = %v, %v, want the job of the first", j.ID, err)
		}
		want := []any{serverless.InQueue, uint8(8), "k", twice(), uint8(0), 10 * time.Minute}
		got := []any{j.Status, j.Priority, j.Key, j.Retry, j.Attempt, j.Expires.Sub(j.Submitted)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the new job (-want +got):\n%s", diff)
		}
		if h, err := s.Health(t.Context(), "echo"); err != nil || h.Jobs.Queued != 1 {
			t.Errorf("%d jobs are queued, %v, want one", h.Jobs.Queued, err)
		}
		if _, err := s.Redrive(t.Context(), "alice", ref); !errors.Is(err, serverless.ErrNoDeadLetter) {
			t.Errorf("Redrive of what was redriven = %v, want ErrNoDeadLetter", err)
		}
	})
}

func TestDeadLettersGoWithTheirUserAndTheirEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		keepDead(t, s, time.Hour)
		fail(t, s, submitEcho(t, s))
		j, err := s.Submit(t.Context(), "bob", "echo", serverless.Request{Input: []byte(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		fail(t, s, j.Ref)
		if _, err := s.EraseJobs(t.Context(), "alice", "echo"); err != nil {
			t.Fatal(err)
		}
		if got := deadOf(t, s, serverless.AllOwners); !cmp.Equal(got, []serverless.JobID{j.ID}) {
			t.Errorf("dead letters are %v when alice is erased, want that of bob", got)
		}
		if err := s.UndeclareEndpoint(t.Context(), "echo"); err != nil {
			t.Fatal(err)
		}
		if err := s.EnsureEndpoint(t.Context(), "echo"); err != nil {
			t.Fatal(err)
		}
		if got := deadOf(t, s, serverless.AllOwners); len(got) > 0 {
			t.Errorf("dead letters are %v when the endpoint is gone, want none", got)
		}
	})
}

// A client that gives up after a time and repeats must not put off the end of the jobs for ever.
func TestErasingAgainDoesNotPutOffTheEndOfWhatIsErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		fail(t, s, submitEcho(t, s))
		ref := submitEcho(t, s)
		for range 4 {
			if n, err := s.EraseJobs(t.Context(), "alice", "echo"); err != nil || n > 2 {
				t.Fatal(n, err)
			}
			time.Sleep(400 * time.Millisecond)
		}
		if n, err := s.EraseJobs(t.Context(), "alice", "echo"); err != nil || n != 0 {
			t.Errorf("%d jobs are left after 1.6 s of erasing, %v", n, err)
		}
		if _, err := s.Get(t.Context(), "alice", ref); !errors.Is(err, serverless.ErrNotFound) {
			t.Errorf("a job that is erased = %v, want that it is gone", err)
		}
	})
}
