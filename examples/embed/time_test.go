package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend"
	"github.com/podyard/podyard/serverless"
)

// A report fails twice and is tried again after a minute each time. In the bubble of
// testing/synctest these minutes pass at once, and nothing else has to be replaced.
func TestAReportIsTriedAgainAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := backend.Open(t.Context(), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		jobs := serverless.New(store.Stores().Jobs, store.Stores().Endpoints, nil)
		tries := 0
		report, err := serverless.Handle(t.Context(), jobs, "report", func(context.Context, text) (string, error) {
			if tries++; tries < 3 {
				return "", errors.New("the printer is busy")
			}
			return "printed", nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = jobs.Run(t.Context()) }() // both end with the test
		go func() { _ = jobs.ServeHandlers(t.Context(), nil) }()

		r, err := report.Request(text{"hello"})
		if err != nil {
			t.Fatal(err)
		}
		r.Queue.Retry = &serverless.RetryPolicy{Attempts: 3, Delay: time.Minute, Factor: 1, MaxDelay: time.Minute}
		began := time.Now()
		j, err := jobs.Submit(t.Context(), "", report.Endpoint(), r)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := report.Result(t.Context(), j.ID); err != nil || out != "printed" {
			t.Errorf("the report is %q (%v), want it printed", out, err)
		}
		if took := time.Since(began).Round(time.Minute); took != 2*time.Minute {
			t.Errorf("it took %v, want the two pauses of a minute", took)
		}
	})
}
