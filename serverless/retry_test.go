package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/serverless"
)

func withRetry(p serverless.RetryPolicy) func(*serverless.Request) {
	return func(r *serverless.Request) { r.Queue.Retry = &p }
}

// twice is two attempts, a minute apart.
func twice() serverless.RetryPolicy {
	return serverless.RetryPolicy{Attempts: 2, Factor: 1, Delay: time.Minute, MaxDelay: time.Minute}
}

func startingAfter(d time.Duration) func(*serverless.Request) {
	return func(r *serverless.Request) { r.Queue.StartAfter = &d }
}

func TestADelayedJobRunsAtItsTimeAlsoDaysLater(t *testing.T) {
	for _, delay := range []time.Duration{time.Second, 3 * 24 * time.Hour, 7*24*time.Hour - time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			var ran []time.Time
			serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) {
				ran = append(ran, time.Now())
				return []byte(`1`), nil
			}, nil)
			begin := time.Now()
			ref := submitEcho(t, s, startingAfter(delay))
			wantStatus(t, s, ref, serverless.InQueue)
			time.Sleep(delay)
			synctest.Wait()
			if want := []time.Time{begin.Add(delay)}; len(ran) != 1 || !ran[0].Equal(want[0]) {
				t.Errorf("a job delayed by %v ran at %v, want %v", delay, ran, want)
			}
			wantStatus(t, s, ref, serverless.Completed)
			if j := mustGet(t, s, ref); j.DelayTime() != 0 {
				t.Errorf("delayTime = %v, want 0, from the instant at which it was ready", j.DelayTime())
			}
		})
	}
}

func TestAHeldTakeIsWokenByADelayedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s, startingAfter(20*time.Second))
		begin := time.Now()
		jobs, err := s.Take(t.Context(), "echo", "w", 1)
		if err != nil || len(jobs) != 1 || jobs[0].Ref != ref || time.Since(begin) != 20*time.Second {
			t.Errorf("Take gave %d jobs, %v after %v, want the job after 20s", len(jobs), err, time.Since(begin))
		}
	})
}

func TestWhyNamesTheTimeOfADelayedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s, startingAfter(time.Hour))
		why, err := s.Why(t.Context(), "alice", ref)
		if want := "it is not ready before " + time.Now().Add(time.Hour).UTC().Format(time.RFC3339); err != nil || why != want {
			t.Errorf("Why = %q, %v, want %q", why, err, want)
		}
	})
}

func TestAWorkersErrorIsFollowedByAnotherAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		var attempts []int
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			attempts = append(attempts, k.Attempt)
			if len(attempts) == 1 {
				time.Sleep(2 * time.Second)
				return nil, errors.New("not yet")
			}
			return []byte(`"done"`), nil
		}, nil)
		begin := time.Now()
		ref := submitEcho(t, s, withRetry(twice()))
		j, err := s.Wait(t.Context(), "alice", ref, 5*time.Minute)
		if err != nil || string(j.Output) != `"done"` || time.Since(begin) != 62*time.Second {
			t.Errorf("Wait = %s, %v after %v, want the output of the second attempt after 62s", j.Output, err, time.Since(begin))
		}
		if diff := cmp.Diff([]int{1, 2}, attempts); diff != "" {
			t.Errorf("Task.Attempt (-want +got):\n%s", diff)
		}
		h, err := s.Health(t.Context(), "echo")
		if err != nil || h.Jobs.Completed != 1 || h.Jobs.Failed != 0 || h.Jobs.Retried != 1 {
			t.Errorf("Health = %+v, %v, want 1 completed, 0 failed, 1 retried", h.Jobs, err)
		}
	})
}

func TestAWorkerCanFailWithoutAnotherAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		again bool
	}{
		"an error":                        {errors.New("no"), true},
		"a failure":                       {&serverless.Failure{Text: "no"}, true},
		"a failure that is final":         {fmt.Errorf("so: %w", &serverless.Failure{Text: "no", NoRetry: true}), false},
		"an output without retry":         {&serverless.Failure{Text: "no", Output: []byte(`{"retry":true}`)}, true},
		"an output with retry false":      {&serverless.Failure{Text: "no", Output: []byte(`{"a":1, "retry" : false }`)}, false},
		"an output with retry below":      {&serverless.Failure{Text: "no", Output: []byte(`{"a":{"retry":false}}`)}, true},
		"an output with Retry":            {&serverless.Failure{Text: "no", Output: []byte(`{"Retry":false,"x":"\"retry\""}`)}, true},
		"an output that is not an object": {&serverless.Failure{Text: "no", Output: []byte(`["retry"]`)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, nil)
				runs := 0
				serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) { runs++; return nil, c.err }, nil)
				ref := submitEcho(t, s, withRetry(twice()))
				want := 1
				if c.again {
					want = 2
				}
				j, err := s.Wait(t.Context(), "alice", ref, 5*time.Minute)
				if err != nil || j.Status != serverless.Failed || !strings.HasSuffix(j.ErrorText(), "no") || runs != want {
					t.Errorf("the job is %v %q, %v after %d runs, want FAILED after %d", j.Status, j.ErrorText(), err, runs, want)
				}
			})
		})
	}
}

func TestTheWebhookComesAtTheFinalEndOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		s := newService(t, &serverless.Options{Sender: senderFunc(func(_ context.Context, d *serverless.Delivery) (int, error) {
			sent = append(sent, string(d.Job.AppendJSON(nil, false)))
			return 200, nil
		})})
		serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) {
			time.Sleep(time.Second)
			return nil, errors.New("no")
		}, nil)
		ref := submitEcho(t, s, withRetry(twice()), withWebhook("https://example.com/"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		want := fmt.Sprintf(`{"delayTime":0,"error":"no","executionTime":1000,"id":%q,"status":"FAILED","workerId":"local-echo"}`, ref.ID)
		if diff := cmp.Diff([]string{want}, sent); diff != "" {
			t.Errorf("webhooks (-want +got):\n%s", diff)
		}
	})
}

func TestADelayedJobStartsNoWorkerBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 0, 3))
		j, err := svc.Submit(t.Context(), "alice", "e", serverless.Request{
			Input: []byte(`{}`), Queue: serverless.QueueOptions{StartAfter: new(time.Hour)},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Second)
		if svc.starts() != 0 {
			t.Errorf("%d workers were started for a job that is not ready, want none", svc.starts())
		}
		h, err := svc.Health(t.Context(), "e")
		if err != nil || h.Jobs.Queued != 1 || h.Jobs.Delayed != 1 || h.Jobs.Ready != 0 {
			t.Errorf("Health = %+v, %v, want 1 queued, which is delayed", h.Jobs, err)
		}
		time.Sleep(time.Minute)
		if got := svc.job(t, j); got.Status != serverless.Completed || svc.starts() != 1 {
			t.Errorf("a minute after its time the job is %v with %d workers started, want COMPLETED with one", got.Status, svc.starts())
		}
	})
}
