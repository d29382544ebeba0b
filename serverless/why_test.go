package serverless_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/serverless"
)

// wantWhy compares what a job waits for with parts of it.
func wantWhy(t *testing.T, s *serverless.Service, ref serverless.Ref, parts ...string) {
	t.Helper()
	why, err := s.Why(t.Context(), "alice", ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		if !strings.Contains(why, part) {
			t.Errorf("Why = %q, want %q in it", why, part)
		}
	}
}

func TestWhyFollowsAJobFromTheQueueToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, image("long", 0, 1))
		first := y.submit(t, 1, false)
		second := y.submit(t, 1, false)
		time.Sleep(time.Second) // a worker is asked for at once, and takes two to come up
		wantWhy(t, y.Service, first.Ref, "it waits for a worker", "1 starting")
		time.Sleep(5 * time.Second)
		wantWhy(t, y.Service, first.Ref, "it does not wait: worker "+string(y.first().ID)+" has it")
		wantWhy(t, y.Service, second.Ref, "it waits for a worker", "its workers: 1 busy", "the maximum of 1 worker is reached")
		if _, err := y.Why(t.Context(), "bob", second.Ref); !errors.Is(err, serverless.ErrNotFound) {
			t.Errorf("Why of another user's job = %v, want ErrNotFound", err)
		}
		time.Sleep(time.Minute)
		wantWhy(t, y.Service, first.Ref, "it does not wait: it is COMPLETED")
		y.change(t, func(e *serverless.Endpoint) { e.Workers.Max = 0 })
		third := y.submit(t, 1, false)
		time.Sleep(2 * time.Minute)
		wantWhy(t, y.Service, third.Ref, "it waits for a worker; there is none; the endpoint is paused: its maximum is 0 workers")
	})
}

func TestWhySaysThatNobodyStartsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serviceOn(t, shaky(), nil)
		wantWhy(t, s, order(t, s), "it waits for a worker; there is none; the service starts none for this endpoint")
	})
}
