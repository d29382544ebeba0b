package testdouble_test

import (
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/testdouble"
	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
)

type obj = map[string]any

func start(t *testing.T) (*apitest.Server, *testdouble.Captioner) {
	srv := apitest.Start(t)
	return srv, &testdouble.Captioner{URL: srv.URL(), Key: srv.Key, Client: srv.Client(), Sleep: srv.Advance}
}

func TestCaptionIsTheTextOfTheOutput(t *testing.T) {
	srv, c := start(t)
	srv.Endpoint("captions").Reply(obj{"text": "a cat"})
	got, err := c.Caption(t.Context(), "cat.png")
	if got != "a cat" || err != nil {
		t.Errorf("Caption = %q, %v, want a cat", got, err)
	}
	srv.RequireJob(t, apitest.JobMatch{Endpoint: "captions", Input: obj{"image": "cat.png"}, Status: "COMPLETED"})
}

func TestCaptionSaysWhyAJobFailed(t *testing.T) {
	srv, c := start(t)
	srv.Endpoint("captions").Fail("no such image")
	if _, err := c.Caption(t.Context(), "none.png"); err == nil || !strings.Contains(err.Error(), "no such image") {
		t.Errorf("Caption = %v, want the reason", err)
	}
}

func TestCaptionWaitsAsLongAsItIsTold(t *testing.T) {
	srv, c := start(t)
	srv.Endpoint("captions").Reply(obj{"text": "a cat"})
	srv.Fault(double.Fault{Name: double.FaultRateLimited, RetryAfter: 7, Count: 1})
	began := srv.Now()
	if _, err := c.Caption(t.Context(), "cat.png"); err != nil {
		t.Fatal(err)
	}
	if waited := srv.Now().Sub(began); waited != 7*time.Second {
		t.Errorf("waited %v, want 7s", waited)
	}
	srv.RequireRequest(t, apitest.RequestMatch{Operation: "runSync", Times: 2})
}
