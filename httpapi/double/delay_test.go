package double_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/serverless"
)

func TestAdvanceStartsDelayedJobsAndAttemptsAtTheirInstants(t *testing.T) {
	s := apitest.Start(t)
	var ran []time.Duration
	begin := s.Now()
	s.Handle("flaky", func(context.Context, *serverless.Task) ([]byte, error) {
		if ran = append(ran, s.Now().Sub(begin)); len(ran) < 3 {
			return nil, errors.New("not yet")
		}
		return []byte(`1`), nil
	})
	body := `{"input":{},"queue":{"startAfter":259200000,"retry":{"attempts":3,"delay":60000,"factor":3,"jitter":0}}}`
	job := run(t, s, "flaky", body)
	s.Advance(3*24*time.Hour - time.Millisecond)
	if got := status(t, s, "flaky", job); got != "IN_QUEUE" || len(ran) != 0 {
		t.Errorf("before its time the job is %s and ran %d times, want IN_QUEUE and none", got, len(ran))
	}
	s.Advance(10 * time.Minute) // past its start and two delays
	if got := status(t, s, "flaky", job); got != "COMPLETED" {
		t.Errorf("the job is %s, want COMPLETED", got)
	}
	start := 3 * 24 * time.Hour
	want := []time.Duration{start, start + time.Minute, start + 4*time.Minute}
	if len(ran) != 3 || ran[0] != want[0] || ran[1] != want[1] || ran[2] != want[2] {
		t.Errorf("it ran after %v, want %v", ran, want)
	}
	s.RequireJob(t, apitest.JobMatch{Endpoint: "flaky", Status: "COMPLETED"})
}

func TestRunUntilIdleGoesOnToTheLastAttempt(t *testing.T) {
	s := apitest.Start(t)
	runs := 0
	s.Handle("flaky", func(context.Context, *serverless.Task) ([]byte, error) {
		runs++
		return nil, errors.New("no")
	})
	s.Queue("q") // of which nobody takes jobs
	run(t, s, "q", `{"input":{},"queue":{"startAfter":3600000}}`)
	job := run(t, s, "flaky", `{"input":{},"queue":{"retry":{"attempts":3,"delay":60000,"factor":3,"jitter":0}}}`)
	if took := s.RunUntilIdle(); took != 4*time.Minute || runs != 3 {
		t.Errorf("RunUntilIdle moved the clock by %v for %d runs, want 4m0s for 3", took, runs)
	}
	if got := status(t, s, "flaky", job); got != "FAILED" {
		t.Errorf("the job is %s, want FAILED", got)
	}
}
