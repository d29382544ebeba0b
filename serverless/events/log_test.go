package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/events"
	"github.com/podyard/podyard/serverless/queue"
)

// A shelf has the jobs that hints name.
type shelf map[queue.Ref]queue.Job

func (s shelf) Get(_ context.Context, _ queue.Instant, ref queue.Ref) (queue.Job, error) {
	j, ok := s[ref]
	if !ok {
		return j, queue.ErrNotFound
	}
	return j, nil
}

type world struct {
	t    *testing.T
	log  *events.Log
	jobs shelf
}

func inWorld(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, jobs: shelf{}}
		w.log = events.New(w.jobs, clock.System{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.log.Run(ctx) }()
		defer func() { cancel(); <-done }()
		f(w)
	})
}

func ref(id string) queue.Ref { return queue.Ref{Endpoint: "e", ID: queue.JobID(id)} }

// hint sets the state of a job, and sends hints of it.
func (w *world) hint(id string, s queue.State, kinds ...queue.EventKind) {
	w.jobs[ref(id)] = queue.Job{Ref: ref(id), Owner: "alice", State: s}
	for _, k := range kinds {
		w.log.Hints([]queue.Event{{Kind: k, Ref: ref(id)}})
	}
	synctest.Wait()
}

func (w *world) want(r *events.Reader, want ...string) (last events.ID) {
	w.t.Helper()
	synctest.Wait()
	list, _, err := r.Read()
	if err != nil {
		w.t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, strings.TrimSpace(fmt.Sprint(string(e.Job), " ", e.Type)))
		last = e.ID
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("events (-want +got):\n%s", diff)
	}
	return last
}

var (
	queued = queue.State{Status: queue.InQueue}
	done   = queue.State{Status: queue.Completed}
)

func TestAReaderGetsWhatHappensAfterItCame(t *testing.T) {
	inWorld(t, func(w *world) {
		w.hint("before", queued, queue.EventReady)
		r := w.log.Open("e", nil)
		w.hint("a", queued, queue.EventReady, queue.EventReady) // repeated
		w.hint("b", done, queue.EventReady, queue.EventDone)    // its end is older than the first hint
		w.hint("a", queue.State{Status: queue.InProgress}, queue.EventChunk)
		w.hint("a", queued, queue.EventReady) // lost by its worker
		w.hint("a", queue.State{Status: queue.Failed}, queue.EventDone)
		w.hint("a", queue.State{Status: queue.InQueue, Run: 1}, queue.EventReady) // retried
		w.hint("c", queued, queue.EventReady)
		delete(w.jobs, ref("c"))
		w.log.Hints([]queue.Event{{Kind: queue.EventDone, Ref: ref("c")}, {Kind: queue.EventDone, Ref: ref("unknown")}})
		w.want(r, "a queued", "b queued", "b completed", "a failed", "a queued", "c queued", "c deleted")
		w.want(r)
	})
}

func TestAReaderContinuesAfterAnID(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.log.Open("e", nil)
		w.hint("a", done, queue.EventDone)
		last := w.want(r, "a completed")
		r.Close()
		w.hint("b", done, queue.EventDone)
		again := w.log.Open("e", &last)
		last = w.want(again, "b completed")
		w.want(w.log.Open("e", &last))
		w.want(w.log.Open("e", &events.ID{Feed: last.Feed - 1, Number: last.Number}), "gap", "a completed", "b completed")
		w.want(w.log.Open("e", &events.ID{Feed: last.Feed, Number: last.Number + 1}), "gap", "a completed", "b completed")
	})
}

// After a restart the feed is another one.
func TestAnIDFromBeforeARestartGetsAGap(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.log.Open("e", nil)
		w.hint("a", done, queue.EventDone)
		last := w.want(r, "a completed")
		time.Sleep(time.Millisecond)
		next := events.New(w.jobs, clock.System{}).Open("e", &last)
		id := w.want(next, "gap")
		if id.Feed == last.Feed {
			t.Errorf("feed %d is the one from before", id.Feed)
		}
	})
}

func TestEventsAreKeptForTenMinutes(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.log.Open("e", nil)
		w.hint("a", done, queue.EventDone)
		first := w.want(r, "a completed")
		w.hint("b", done, queue.EventDone)
		time.Sleep(time.Minute)
		w.hint("c", done, queue.EventDone)
		time.Sleep(events.Keep - time.Minute - time.Millisecond)
		w.want(w.log.Open("e", &first), "b completed", "c completed")
		time.Sleep(time.Millisecond)
		last := w.want(w.log.Open("e", &first), "gap", "c completed")
		w.want(w.log.Open("e", &last))
	})
}

func TestTheNewestTenThousandEventsAreKeptAndASlowReaderIsCutOff(t *testing.T) {
	inWorld(t, func(w *world) {
		slow, last := w.log.Open("e", nil), w.log.Open("e", nil)
		for i := range events.MaxKept {
			w.hint(fmt.Sprint("j", i), done, queue.EventDone)
		}
		list, _, err := last.Read()
		if len(list) != events.MaxKept || err != nil {
			t.Fatalf("Read = %d events, %v, want %d", len(list), err, events.MaxKept)
		}
		w.hint("one more", done, queue.EventDone)
		if _, _, err := slow.Read(); !errors.Is(err, events.ErrBehind) {
			t.Errorf("Read of a slow reader = %v, want ErrBehind", err)
		}
		w.want(last, "one more completed")
	})
}

func TestWhatTheQueueHasLostIsAGap(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.log.Open("e", nil)
		w.log.Hints([]queue.Event{{Kind: queue.EventGap}, {Kind: queue.EventGap}})
		w.hint("a", done, queue.EventDone)
		w.want(r, "gap", "a completed")
	})
}

// A feed ends ten minutes after its last reader. Then its ids are over, too.
func TestAFeedWithoutReadersEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.log.Open("e", nil)
		w.hint("a", done, queue.EventDone)
		last := w.want(r, "a completed")
		r.Close()
		r.Close()
		time.Sleep(events.Keep)
		w.hint("b", done, queue.EventDone) // ends it
		w.hint("c", done, queue.EventDone)
		w.want(w.log.Open("e", &last), "gap")
	})
}

func TestParseID(t *testing.T) {
	id := events.ID{Feed: 7, Number: 8}
	if got, err := events.ParseID(id.String()); got != id || err != nil {
		t.Errorf("ParseID(%s) = %v, %v", id, got, err)
	}
	for _, s := range []string{"", "7", "7-", "-8", "0-8", "-7-8", "7-8-9", "a-b", "7--8", "99999999999999999999-1"} {
		if _, err := events.ParseID(s); problem.KindOf(err) != problem.Invalid {
			t.Errorf("ParseID(%q) = %v, want a 422", s, err)
		}
	}
}
