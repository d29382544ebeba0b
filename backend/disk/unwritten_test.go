package disk

import (
	"context"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A worker may look for a job while the job becomes durable for somebody who reads it. The worker
// passes it by, and sleeps.
func TestAJobThatAClaimPassedByWhileItBecameDurableIsAnnouncedAgain(t *testing.T) {
	s := memStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan queue.EventKind, 10), make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Jobs().Watch(ctx, func(evs []queue.Event) { // it returns the error of ctx
			for _, e := range evs {
				events <- e.Kind
			}
		})
	}()
	defer func() { cancel(); <-ended }()
	want := func(kind queue.EventKind) {
		t.Helper()
		select {
		case got := <-events:
			if got != kind {
				t.Fatalf("event %v, want %v", got, kind)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event, want %v", kind)
		}
	}
	want(queue.EventGap)
	j := durableAtEnd("a")
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{j}))
	want(queue.EventReady)

	q := &s.current.Load().jobs
	ms, err := q.beginCover(ctx, []queue.Job{j})
	if err != nil || len(ms) != 1 {
		t.Fatalf("%d jobs become durable, %v, want one", len(ms), err)
	}
	claim := func() int {
		got, err := s.Jobs().Claim(ctx, at+1, []queue.Slot{{Endpoint: j.Endpoint, Worker: "w", N: 1, Until: at + 1000}}, nil)
		must(t, err)
		return len(got)
	}
	if n := claim(); n != 0 {
		t.Fatalf("%d jobs were claimed while the job was busy, want none", n)
	}
	must(t, q.commit(ms))
	q.notify(ms)
	want(queue.EventReady)
	if n := claim(); n != 1 {
		t.Errorf("%d jobs were claimed after the event, want one", n)
	}
}
