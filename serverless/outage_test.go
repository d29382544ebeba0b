package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

func TestSubmitThatFailsLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		s := serviceOn(t, q, nil)
		q.failCalls("Enqueue", 1)
		begin := time.Now()
		for _, submit := range []func(context.Context, string, string, serverless.Request) (serverless.Job, error){s.Submit, s.SubmitAndWait} {
			q.failCalls("Enqueue", 1)
			j, err := submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`), Webhook: hook})
			if !errors.Is(err, errInjected) || j.ID != "" || time.Since(begin) != 0 {
				t.Errorf("submit = %q, %v after %v, want the queue's error at once", j.ID, err, time.Since(begin))
			}
		}
		if n := q.JobQueue.(*memory.Jobs).Len(); n != 0 {
			t.Errorf("%d jobs are left, want none", n)
		}
		submitEcho(t, s)
	})
}

func TestCallsThatTheQueueRefusesChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		s := serviceOn(t, q, nil)
		ctx, ref := t.Context(), submitEcho(t, s)
		before := mustGet(t, s, ref)
		for name, call := range map[string]func() error{
			"Get":        func() error { _, err := s.Get(ctx, "alice", ref); return err },
			"Wait":       func() error { _, err := s.Wait(ctx, "alice", ref, time.Hour); return err },
			"SetTTL":     func() error { _, err := s.SetTTL(ctx, "alice", ref, time.Minute); return err },
			"Cancel":     func() error { _, err := s.Cancel(ctx, "alice", ref); return err },
			"Retry":      func() error { _, err := s.Retry(ctx, "alice", ref); return err },
			"Purge":      func() error { _, err := s.Purge(ctx, "alice", "echo"); return err },
			"Health":     func() error { _, err := s.Health(ctx, "echo"); return err },
			"Requests":   func() error { _, err := s.Requests(ctx, "alice", "echo", serverless.RequestsQuery{}); return err },
			"Deliveries": func() error { _, err := s.Deliveries(ctx, "alice", ref); return err },
			"Redeliver":  func() error { _, err := s.Redeliver(ctx, "alice", ref); return err },
			"Take":       func() error { _, err := s.Take(ctx, "echo", "w", 1); return err },
			"Ping":       func() error { return s.Ping(ctx, "echo", "w", []serverless.JobID{ref.ID}) },
			"Report":     func() error { return finish(t, s, ref, "w", `1`) },
		} {
			q.failCalls("all", always)
			begin := time.Now()
			if err := call(); !errors.Is(err, errInjected) || time.Since(begin) != 0 {
				t.Errorf("%s = %v after %v, want the queue's error at once", name, err, time.Since(begin))
			}
			q.failCalls("all", 0)
			if diff := cmp.Diff(before, mustGet(t, s, ref)); diff != "" {
				t.Errorf("job after %s (-before +after):\n%s", name, diff)
			}
		}
		for _, call := range []func() error{
			func() error { _, err := s.Cancel(ctx, "alice", ref); return err },
			func() error { _, err := s.SetTTL(ctx, "alice", ref, time.Minute); return err },
		} {
			q.failCalls("Apply", 1)
			if err := call(); !errors.Is(err, errInjected) {
				t.Errorf("a change that is not stored = %v, want the queue's error", err)
			}
			if diff := cmp.Diff(before, mustGet(t, s, ref)); diff != "" {
				t.Errorf("job after it (-before +after):\n%s", diff)
			}
		}
	})
}

func TestServiceGoesOnAfterAnOutageOfItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		out := newSender(nil)
		s := serviceOn(t, q, &serverless.Options{Sender: out})
		serve(t, s, echo, nil)
		synctest.Wait()
		q.failCalls("all", always)
		other := serverless.New(q.JobQueue, twoEndpoints(t), nil) // which has no outage
		old := submitEcho(t, other, withTTL(time.Minute))
		hooked := submitEcho(t, other, withWebhook(hook))
		time.Sleep(10 * time.Minute)
		before := q.calls.Load()
		time.Sleep(time.Minute)
		if n := q.calls.Load() - before; n > 600 {
			t.Errorf("%d calls in a minute of outage: they do not wait", n)
		}
		q.failCalls("all", 0)
		time.Sleep(time.Second)
		synctest.Wait()
		wantGone(t, s, old)
		wantStatus(t, s, hooked, serverless.Completed)
		begin := time.Now()
		if j, err := s.Wait(t.Context(), "alice", submitEcho(t, s), time.Minute); err != nil || j.Status != serverless.Completed || time.Since(begin) != 0 {
			t.Errorf("job after the outage = %v, %v after %v, want COMPLETED at once", j.Status, err, time.Since(begin))
		}
		time.Sleep(time.Minute)
		if n := len(out.log.all()); n != 1 {
			t.Errorf("%d webhooks, want one", n)
		}
	})
}

func TestListenIsRepeatedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		q.failCalls("Watch", 5)
		s := serviceOn(t, q, nil)
		serve(t, s, echo, nil) // it waits, and nobody hears of new jobs
		ref := submitEcho(t, s)
		w := waitAsync(t.Context(), s, ref, time.Hour)
		wantStatus(t, s, ref, serverless.InQueue)
		if got := <-w; got.job.Status != serverless.Completed || got.after > 5*time.Second {
			t.Errorf("Wait = %v after %v, want COMPLETED once the queue is heard again", got.job.Status, got.after)
		}
	})
}

func TestFinishedResultIsReportedUntilItIsStored(t *testing.T) {
	for _, outage := range []time.Duration{500 * time.Millisecond, 20 * time.Second, time.Hour} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFaultyQueue()
				s := serviceOn(t, q, nil)
				runs := 0
				serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) {
					runs++
					time.Sleep(time.Second)
					return fmt.Appendf(nil, "%d", runs), nil
				}, nil)
				ref := submitEcho(t, s, withTimeout(3*time.Hour))
				time.Sleep(500 * time.Millisecond)
				q.failCalls("all", always)
				time.Sleep(outage)
				q.failCalls("all", 0)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if j := mustGet(t, s, ref); j.Status != serverless.Completed || string(j.Output) != `1` || runs != 1 {
					t.Errorf("job is %v with %s after %d runs, want the result of the first", j.Status, j.Output, runs)
				}
				next := submitEcho(t, s)
				synctest.Wait()
				wantStatus(t, s, next, serverless.InProgress) // the worker is free again
			})
		})
	}
}

func TestJobRunsOnThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		s := serviceOn(t, q, nil)
		serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			select {
			case <-ctx.Done():
				t.Errorf("stopped: %v", context.Cause(ctx))
			case <-time.After(time.Hour):
			}
			return fmt.Appendf(nil, "%d", k.Attempt), nil
		}, nil)
		ref := submitEcho(t, s, withTimeout(2*time.Hour))
		for range 5 {
			time.Sleep(2 * time.Minute)
			q.failCalls("all", always)
			time.Sleep(8 * time.Minute)
			q.failCalls("all", 0)
		}
		j, err := s.Wait(t.Context(), "alice", ref, time.Hour)
		if err != nil || j.Status != serverless.Completed || string(j.Output) != `1` {
			t.Errorf("job = %v %s, %v, want COMPLETED at the first attempt", j.Status, j.Output, err)
		}
		wantRetried(t, s, 0)
	})
}

func TestResultWhoseStoringWasNotConfirmedIsThereOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		out := newSender(nil)
		s := serviceOn(t, q, &serverless.Options{Sender: out})
		serve(t, s, echo, nil)
		q.loseAnswers("Apply", 1)
		ref := submitEcho(t, s, withWebhook(hook))
		time.Sleep(time.Minute)
		wantStatus(t, s, ref, serverless.Completed)
		if h, err := s.Health(t.Context(), "echo"); err != nil || h.Jobs.Completed != 1 || h.Workers.Running != 0 {
			t.Errorf("health %+v, %v, want one completed job and nothing running", h, err)
		}
		if n := len(out.log.all()); n != 1 {
			t.Errorf("%d webhooks, want one", n)
		}
		next := submitEcho(t, s)
		synctest.Wait()
		wantStatus(t, s, next, serverless.Completed)
	})
}

func TestPurgeThatBreaksOffSaysHowFarItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		s := serviceOn(t, &failingPurgeQueue{faultyQueue: q, after: 2}, nil)
		submitAs(t, s, "alice", 2500)
		n, err := s.Purge(t.Context(), "alice", "echo")
		if n != 2000 || !errors.Is(err, errInjected) {
			t.Errorf("Purge = %d, %v, want 2000 and the queue's error", n, err)
		}
		if h, err := s.Health(t.Context(), "echo"); err != nil || h.Jobs.Queued != 500 {
			t.Errorf("%d are queued, %v, want 500", h.Jobs.Queued, err)
		}
	})
}

// A failingPurgeQueue queue refuses to purge after some steps.
type failingPurgeQueue struct {
	*faultyQueue
	after int
}

func (q *failingPurgeQueue) Purge(ctx context.Context, now serverless.Instant, p queue.PurgeQuery) (int, uint64, error) {
	if q.after--; q.after < 0 {
		return 0, 0, errInjected
	}
	return q.faultyQueue.Purge(ctx, now, p)
}
