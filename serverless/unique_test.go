package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

func withUnique(u serverless.UniqueOptions) func(*serverless.Request) {
	return func(r *serverless.Request) { r.Queue.Unique = &u }
}

// submitN submits a job with the input {"n":n}.
func submitN(t *testing.T, s *serverless.Service, n int, change ...func(*serverless.Request)) serverless.Job {
	t.Helper()
	r := serverless.Request{Input: fmt.Appendf(nil, `{"n":%d}`, n)}
	for _, f := range change {
		f(&r)
	}
	j, err := s.Submit(t.Context(), "alice", "echo", r)
	if err != nil {
		t.Fatalf("Submit: %v", err)
	}
	return j
}

func TestASubmitOfATakenKeyGetsTheJobThatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		active := withUnique(serverless.UniqueOptions{Key: "k", While: queue.WhileActive})
		first := submitN(t, s, 1, active)
		if first.Existing {
			t.Error("the first job is told as one that was there")
		}
		takeOne(t, s, "w")
		if j := submitN(t, s, 2, active); j.ID != first.ID || !j.Existing || j.Status != serverless.InProgress {
			t.Errorf("the second submit got %q, existing %v, %v, want %q in progress", j.ID, j.Existing, j.Status, first.ID)
		}
		if err := finish(t, s, first.Ref, "w", `1`); err != nil {
			t.Fatal(err)
		}
		if j := submitN(t, s, 3, active); j.ID == first.ID || j.Existing {
			t.Errorf("after the end a submit got %q again", j.ID)
		}
	})
}

func TestAWaitingSubmitOfATakenKeyWaitsForTheJobThatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		active := withUnique(serverless.UniqueOptions{Key: "k", While: queue.WhileActive})
		first := submitN(t, s, 1, active)
		time.AfterFunc(time.Second, func() { serve(t, s, echo, nil) })
		r := serverless.Request{Input: []byte(`{"n":2}`)}
		active(&r)
		j, err := s.SubmitAndWait(t.Context(), "alice", "echo", r)
		if err != nil || j.ID != first.ID || !j.Existing || string(j.Output) != `{"n":1}` {
			t.Errorf("SubmitAndWait = %q, existing %v, %s, %v, want the result of the job that was there", j.ID, j.Existing, j.Output, err)
		}
	})
}

// A key that is unique for a period names its job for all of it: the result is kept as long.
func TestAPeriodNamesItsJobUntilItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, echo, nil)
		day := 24 * time.Hour
		daily := withUnique(serverless.UniqueOptions{Key: "k", While: queue.ForPeriod, Period: &day})
		first := submitN(t, s, 1, daily, withTTL(time.Minute))
		time.Sleep(day - time.Millisecond)
		if j := submitN(t, s, 2, daily); j.ID != first.ID || j.Status != serverless.Completed {
			t.Errorf("at the end of the period a submit got %q, %v, want %q", j.ID, j.Status, first.ID)
		}
		time.Sleep(time.Millisecond)
		if j := submitN(t, s, 3, daily); j.ID == first.ID {
			t.Error("after the period a submit got the job of the last one")
		}
	})
}

// Under many callers and workers the newest input that a caller was promised runs: either its job got
// it, or one that had it was replaced by a later one.
func TestReplaceNeverLosesTheNewestInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		var mu sync.Mutex
		ran := map[string]string{}
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			ran[string(k.ID)] = string(k.Input)
			return k.Input, nil
		}, nil)
		latest := withUnique(serverless.UniqueOptions{Key: "k", While: queue.WhileQueued, Replace: true})
		for round := range 20 {
			var all sync.WaitGroup
			for caller := range 64 {
				all.Go(func() {
					r := serverless.Request{Input: fmt.Appendf(nil, `{"n":%d}`, round*100+caller)}
					latest(&r)
					if _, err := s.Submit(t.Context(), "alice", "echo", r); err != nil {
						t.Errorf("Submit: %v", err)
					}
				})
			}
			all.Wait()
			last := submitN(t, s, 1_000_000+round, latest)
			if _, err := s.Wait(t.Context(), "alice", last.Ref, time.Minute); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			if want := fmt.Sprintf(`{"n":%d}`, 1_000_000+round); ran[string(last.ID)] != want {
				t.Errorf("round %d: job %q ran with %s, want the newest input %s", round, last.ID, ran[string(last.ID)], want)
			}
			mu.Unlock()
		}
	})
}

func TestARetryOrARedriveIntoATakenKeyIsAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		keepDead(t, s, time.Hour)
		active := withUnique(serverless.UniqueOptions{Key: "k", While: queue.WhileActive})
		failed := submitN(t, s, 1, active)
		fail(t, s, failed.Ref)
		there := submitN(t, s, 2, active)
		if _, err := s.Retry(t.Context(), "alice", failed.Ref); !errors.Is(err, queue.ErrKeyTaken) {
			t.Errorf("Retry = %v, want ErrKeyTaken", err)
		}
		if _, err := s.Redrive(t.Context(), "alice", failed.Ref); !errors.Is(err, queue.ErrKeyTaken) {
			t.Errorf("Redrive = %v, want ErrKeyTaken", err)
		}
		if _, err := s.Cancel(t.Context(), "alice", there.Ref); err != nil {
			t.Fatal(err)
		}
		again, err := s.Redrive(t.Context(), "alice", failed.Ref)
		if err != nil {
			t.Fatalf("Redrive after the other job was cancelled: %v", err)
		}
		if j := submitN(t, s, 3, active); j.ID != again.ID {
			t.Errorf("a submit got %q, want the redriven job %q: it has the key of its dead letter", j.ID, again.ID)
		}
	})
}
