package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
)

// An observer writes a line for each event.
type observer struct{ jobs, workers, webhooks, loops lineLog }

func (o *observer) Job(e telemetry.JobEvent) {
	names := [...]string{"submitted", "claimed", "requeued", "ended", "expired", "chunk"}
	line := names[e.Change]
	if e.Change == telemetry.JobEnded {
		line += " " + e.State.Status.String()
	}
	o.jobs.add(strings.TrimSpace(fmt.Sprintf("%s %s %d %s", line, e.Cause, e.Bytes, e.Trace.Parent)))
}

func (o *observer) Worker(e telemetry.WorkerEvent) {
	names := [...]string{"scaled", "started", "joined", "lost"}
	line := fmt.Sprintf("%s %s", names[e.Change], e.Result)
	if e.Change == telemetry.WorkerJoined {
		line += e.Took.Truncate(time.Second).String() // the rest follows from who looks first
	}
	if e.Change == telemetry.Scaled {
		line += fmt.Sprintf("%d +%d -%d", e.Want, e.Start, e.Stop)
	}
	o.workers.add(strings.TrimSpace(line + " " + e.Reason))
}

func (o *observer) Webhook(e telemetry.WebhookEvent) {
	o.webhooks.add(fmt.Sprintf("try %d: %d, failed %v, dropped %v, took %v", e.Try, e.Status, e.Failed, e.Dropped, e.Took))
}

func (o *observer) Loop(e telemetry.LoopEvent) {
	if e.Err != nil {
		o.loops.add(e.Loop)
	}
}

func observed(t *testing.T, opts serverless.Options) (*serverless.Service, *observer) {
	t.Helper()
	o := &observer{}
	opts.Observer = o
	return serviceOn(t, memory.NewJobs(), &opts), o
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAnObserverSeesEachChangeOfAJobOnce(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	synctest.Test(t, func(t *testing.T) {
		s, o := observed(t, serverless.Options{})
		ref := submitEcho(t, s, func(r *serverless.Request) { r.Trace.Parent = parent })
		takeOne(t, s, "w")
		if err := s.Report(t.Context(), queue.Op{Ref: ref, Kind: queue.OpChunk, Worker: "w", Payload: []byte(`{"output":1}`)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Report(t.Context(), queue.Op{Ref: ref, Kind: queue.OpRelease, Worker: "w"}); err != nil {
			t.Fatal(err)
		}
		takeOne(t, s, "w")
		if err := finish(t, s, ref, "w", `{"a":1}`); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // its retention passes, which is nothing that happens to it
		wantLines(t, "events", o.jobs.all(),
			"submitted  2 "+parent, "claimed  0 "+parent, "chunk  12", "requeued released 0 "+parent, "claimed  0 "+parent, "ended COMPLETED  7 "+parent)
	})
}

func TestAnObserverSeesWhatTimeDoesToJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := observed(t, serverless.Options{})
		submitEcho(t, s, withTimeout(5*time.Second))
		takeOne(t, s, "w")
		time.Sleep(10 * time.Second)
		submitEcho(t, s, withTTL(10*time.Second))
		time.Sleep(20 * time.Second)
		submitEcho(t, s)
		takeOne(t, s, "lost")
		time.Sleep(time.Minute)
		if n, err := s.Purge(t.Context(), "alice", "echo"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		wantLines(t, "events", o.jobs.all(),
			"submitted  2", "claimed  0", "ended TIMED_OUT  0",
			"submitted  2", "expired  0",
			"submitted  2", "claimed  0", "requeued lost 0", "ended CANCELLED  0")
	})
}

func TestAnObserverSeesEachAttemptOfAWebhook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newSender(func(_ context.Context, _ *serverless.Delivery, n int) (int, error) {
			time.Sleep(time.Duration(n) * time.Second)
			return 500 + n, nil
		})
		s, o := observed(t, serverless.Options{Sender: out})
		ref := submitEcho(t, s, withWebhook(hook))
		if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second / 2)
		if l, ok, err := s.Load(t.Context()); l.Deliveries != 1 || l.OldestDelivery == 0 || !ok || err != nil {
			t.Errorf("while a webhook is sent Load = %+v, %v, %v", l, ok, err)
		}
		time.Sleep(time.Minute)
		wantLines(t, "attempts", o.webhooks.all(),
			"try 1: 501, failed true, dropped false, took 1s", "try 2: 502, failed true, dropped false, took 2s", "try 3: 503, failed true, dropped true, took 3s")
		if l, _, _ := s.Load(t.Context()); l.Deliveries != 0 || l.OldestDelivery != 0 {
			t.Errorf("after the last attempt Load = %+v", l)
		}
	})
}

func TestQueuedJobsAreCountedByPriorityAndLowOnesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := observed(t, serverless.Options{})
		nine := 9
		submitEcho(t, s)
		submitEcho(t, s, func(r *serverless.Request) { r.Queue.Priority = &nine })
		submitEcho(t, s, func(r *serverless.Request) { r.Policy.LowPriority = true })
		if n, err := s.Priorities(t.Context(), "echo"); err != nil || n != [11]int64{5: 1, 9: 1, 10: 1} {
			t.Errorf("Priorities = %v, %v", n, err)
		}
		takeOne(t, s, "w")
		if n, _ := s.Priorities(t.Context(), "echo"); n != [11]int64{5: 1, 10: 1} {
			t.Errorf("after a claim Priorities = %v", n)
		}
	})
}

func TestAnObserverSeesFailuresOfLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, q := &observer{}, newFaultyQueue()
		q.failCalls("Expire", 2)
		serviceOn(t, q, &serverless.Options{Observer: o})
		time.Sleep(time.Minute)
		wantLines(t, "failed loops", o.loops.all(), "expire", "expire")
	})
}

func TestAnObserverSeesWorkersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 0, 1))
		svc.submit(t, 1, false)
		time.Sleep(30 * time.Second)
		wantLines(t, "events", svc.seen.workers.all(),
			"scaled 0 +0 -0 no job waits", "scaled 1 +1 -0 the first worker starts for the first job", "started ok",
			"scaled 1 +0 -0 a free worker takes each job that waits", "joined 2s", "scaled 1 +0 -0 no job waits",
			"scaled 0 +0 -1 workers that no job has needed for 10s end; no job waits", "scaled 0 +0 -0 no job waits")
	})
}

func TestColdStartsAreThoseOfTheLastWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 0, 1))
		const n = fleet.MaxColdStarts + 3
		for range n {
			svc.submit(t, 1, false)
			time.Sleep(30 * time.Second) // the worker has ended
		}
		list, err := svc.ColdStarts(t.Context(), "e")
		if err != nil || len(list) != fleet.MaxColdStarts {
			t.Fatalf("%d cold starts after %d, %v; want the last %d", len(list), n, err, fleet.MaxColdStarts)
		}
		for i, c := range list {
			if c.Took.Truncate(time.Second) != 2*time.Second || i > 0 && c.At <= list[i-1].At {
				t.Errorf("cold start %d is %+v, want one of 2 s, after %+v", i, c, list[max(i-1, 0)])
			}
		}
		if _, err := svc.ColdStarts(t.Context(), "none"); !errors.Is(err, serverless.ErrNoEndpoint) {
			t.Errorf("ColdStarts of no endpoint = %v", err)
		}
	})
}

// A loggingFleet keeps what its workers have written.
type loggingFleet struct {
	fleet.Fleet
	lines []string
}

func (f *loggingFleet) Unwrap() fleet.Fleet { return f.Fleet }

// WorkerLogs implements fleet.WorkerLogs.
func (f *loggingFleet) WorkerLogs(_ context.Context, _ string, _ serverless.WorkerID, q fleet.LogQuery) iter.Seq2[fleet.LogLine, error] {
	return func(yield func(fleet.LogLine, error) bool) {
		for _, text := range f.lines[max(0, len(f.lines)-q.Tail):] {
			if !yield(fleet.LogLine{Text: text}, nil) {
				return
			}
		}
	}
}

func TestTheLastOutputOfAWorkerThatFailsIsInTheDecisionAndInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("crash", 0, 1), func(f serverless.Fleet) serverless.Fleet {
			return &loggingFleet{f, []string{"Traceback:", "  File \"h.py\"\x1b[0m", "", strings.Repeat("é", 150)}}
		})
		svc.submit(t, 1, false)
		time.Sleep(5 * time.Second)
		ds, err := svc.Decisions(t.Context(), "e")
		if err != nil || len(ds) == 0 {
			t.Fatalf("Decisions = %v, %v", ds, err)
		}
		want := `; its last output: File "h.py"[0m | ` + strings.Repeat("é", 100) + "..."
		if !slices.ContainsFunc(ds, func(d fleet.Decision) bool { return strings.Contains(d.Reason, want) }) {
			t.Errorf("the decisions are %+v, want in one %q", ds, want)
		}
		if log := svc.log.String(); !strings.Contains(log, "its last output: File") {
			t.Errorf("the log is %q", log)
		}
	})
}
