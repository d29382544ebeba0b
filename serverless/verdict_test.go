package serverless_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

func TestAWorkerPutsItsJobOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		var runs []time.Duration
		begin := time.Now()
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			if runs = append(runs, time.Since(begin)); len(runs) < 3 {
				return []byte(`"dropped"`), serverless.Snooze(time.Minute)
			}
			return k.Input, nil
		}, nil)
		j, err := s.SubmitAndWait(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{"n":1}`), Wait: 5 * time.Minute})
		if err != nil || j.Status != serverless.Completed || string(j.Output) != `{"n":1}` || j.Attempt != 0 || j.Deliveries != 1 {
			t.Errorf("the job = %v %s, attempt %d, %d deliveries, %v, want it done in one attempt", j.Status, j.Output, j.Attempt, j.Deliveries, err)
		}
		if len(runs) != 3 || runs[1] != time.Minute || runs[2] != 2*time.Minute {
			t.Errorf("it ran after %v, want at once and after one and two minutes", runs)
		}
		leases, _, err := s.Leases(t.Context(), "alice", j.Ref)
		if err != nil || len(leases) != 2 || leases[0].End != queue.LeaseSnoozed {
			t.Errorf("Leases = %+v, %v, want two that were snoozed", leases, err)
		}
	})
}

func TestAWorkerCancelsItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) { return nil, serverless.CancelJob() }, nil)
		j, err := s.SubmitAndWait(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`), Wait: time.Minute})
		if err != nil || j.Status != serverless.Cancelled || j.ErrorText() != "" {
			t.Errorf("the job = %v %q, %v, want it cancelled", j.Status, j.ErrorText(), err)
		}
	})
}

func TestASnoozeThatCannotBeEndsTheAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"too short":    {serverless.Snooze(time.Millisecond), "at least 1000"},
		"none":         {serverless.Snooze(0), "at least 1000"},
		"negative":     {serverless.Snooze(-time.Hour), "at least 1000"},
		"past the ttl": {serverless.Snooze(25 * time.Hour), "past the end of its ttl"},
		"far away":     {serverless.Snooze(1<<63 - 1), "past the end of its ttl"},
		"both":         {&serverless.Verdict{Snooze: time.Minute, Cancel: true}, "and not both"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, nil)
				serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) { return nil, c.err }, nil)
				j, err := s.SubmitAndWait(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`), Wait: time.Minute})
				if err != nil || j.Status != serverless.Failed || !strings.Contains(j.ErrorText(), c.want) {
					t.Errorf("the job = %v %q, %v, want it failed with %q", j.Status, j.ErrorText(), err, c.want)
				}
			})
		})
	}
}

func TestAWorkerHoldsItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		begin := time.Now()
		runs := map[string]time.Duration{}
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			if runs[string(k.Input)] = time.Since(begin); len(runs) == 1 {
				return []byte(`"limited"`), serverless.HoldKey(time.Minute)
			}
			return []byte(`"done"`), nil
		}, nil)
		submit := func(n, key string) serverless.Job {
			t.Helper()
			j, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(n), Queue: serverless.QueueOptions{Key: &key}})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return j
		}
		first := submit(`{"n":1}`, "a")
		if got, err := s.Get(t.Context(), "alice", first.Ref); err != nil || got.Status != serverless.Completed || string(got.Output) != `"limited"` {
			t.Errorf("the job = %v %s, %v, want it completed with its output", got.Status, got.Output, err)
		}
		held := submit(`{"n":2}`, "a")
		submit(`{"n":3}`, "b")
		why, err := s.Why(t.Context(), "alice", held.Ref)
		if want := "a worker holds its key until 2000-01-01T00:01:00Z"; err != nil || !strings.Contains(why, want) {
			t.Errorf("Why = %q, %v, want %q", why, err, want)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if runs[`{"n":3}`] != 0 || runs[`{"n":2}`] != time.Minute {
			t.Errorf("jobs ran after %v, want the one of the other key at once and the held one after a minute", runs)
		}
	})
}

func TestAHoldThatCannotBeEndsTheAttempt(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Hour, time.Microsecond, 24*time.Hour + 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) { return []byte(`1`), serverless.HoldKey(d) }, nil)
			j, err := s.SubmitAndWait(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`), Wait: time.Minute})
			if err != nil || j.Status != serverless.Failed || j.ErrorText() != "holdKey must be from 1 to 86400000 milliseconds" {
				t.Errorf("a hold of %v: the job = %v %q, %v, want it failed with the bounds", d, j.Status, j.ErrorText(), err)
			}
		})
	}
}
