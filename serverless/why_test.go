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
		svc := newScaledService(t, image("long", 0, 1))
		first := svc.submit(t, 1, false)
		second := svc.submit(t, 1, false)
		time.Sleep(time.Second) // a worker is asked for at once, and takes two to come up
		wantWhy(t, svc.Service, first.Ref, "it waits for a worker", "1 starting")
		time.Sleep(5 * time.Second)
		wantWhy(t, svc.Service, first.Ref, "it does not wait: worker "+string(svc.first().ID)+" has it")
		wantWhy(t, svc.Service, second.Ref, "it waits for a worker", "its workers: 1 busy", "the maximum of 1 worker is reached")
		if _, err := svc.Why(t.Context(), "bob", second.Ref); !errors.Is(err, serverless.ErrNotFound) {
			t.Errorf("Why of another user's job = %v, want ErrNotFound", err)
		}
		time.Sleep(time.Minute)
		wantWhy(t, svc.Service, first.Ref, "it does not wait: it is COMPLETED")
		svc.change(t, func(e *serverless.Endpoint) { e.Workers.Max = 0 })
		third := svc.submit(t, 1, false)
		time.Sleep(2 * time.Minute)
		wantWhy(t, svc.Service, third.Ref, "it waits for a worker; there is none; the endpoint is paused: its maximum is 0 workers")
	})
}

func TestWhySaysThatNobodyStartsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serviceOn(t, newFaultyQueue(), nil)
		wantWhy(t, s, submitEcho(t, s), "it waits for a worker; there is none; the service starts none for this endpoint")
	})
}
