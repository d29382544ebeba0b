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
