package serverless_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// waiter calls Wait in a goroutine and sends what it says, and when.
type waitResult struct {
	job   serverless.Job
	err   error
	after time.Duration
}

func waitAsync(ctx context.Context, s *serverless.Service, ref serverless.Ref, d time.Duration) <-chan waitResult {
	ch := make(chan waitResult, 1)
	begin := time.Now()
	go func() {
		j, err := s.Wait(ctx, "alice", ref, d)
		ch <- waitResult{j, err, time.Since(begin)}
	}()
	synctest.Wait()
	return ch
}

func TestWaitEndsWithTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			time.Sleep(17 * time.Second)
			return k.Input, nil
		}, nil)
		ref := submitEcho(t, s)
		var all []<-chan waitResult
		for range 3 {
			all = append(all, waitAsync(t.Context(), s, ref, time.Minute))
		}
		for _, ch := range all {
			if w := <-ch; w.err != nil || w.job.Status != serverless.Completed || string(w.job.Output) != `{}` || w.after != 17*time.Second {
				t.Errorf("Wait = %v %s, %v after %v, want COMPLETED after 17 s", w.job.Status, w.job.Output, w.err, w.after)
			}
		}
		if w := <-waitAsync(t.Context(), s, ref, time.Minute); w.job.Status != serverless.Completed || w.after != 0 {
			t.Errorf("Wait for an ended job = %v after %v, want COMPLETED at once", w.job.Status, w.after)
		}
	})
}

func TestWaitThatElapsesGivesTheJobAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		w := waitAsync(t.Context(), s, ref, 5*time.Second)
		time.Sleep(time.Second)
		takeOne(t, s, "w")
		if got := <-w; got.err != nil || got.job.Status != serverless.InProgress || got.after != 5*time.Second {
			t.Errorf("Wait = %v, %v after %v, want IN_PROGRESS after 5 s", got.job.Status, got.err, got.after)
		}
		for _, d := range []time.Duration{0, -time.Second} {
			if got := <-waitAsync(t.Context(), s, ref, d); got.err != nil || got.job.Status != serverless.InProgress || got.after != 0 {
				t.Errorf("Wait for %v = %v, %v after %v, want IN_PROGRESS at once", d, got.job.Status, got.err, got.after)
			}
		}
	})
}

func TestCallerThatLeavesCancelsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		w := waitAsync(ctx, s, ref, time.Minute)
		cancel()
		if got := <-w; got.err != nil || got.job.Status != serverless.InQueue || got.after != 0 {
			t.Errorf("Wait = %v, %v after %v, want IN_QUEUE at once", got.job.Status, got.err, got.after)
		}
		serve(t, s, echo, nil)
		wantStatus(t, s, ref, serverless.Completed)
	})
}

func TestWaitForAJobThatIsDeletedIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s, withTTL(10*time.Second))
		if w := <-waitAsync(t.Context(), s, ref, time.Minute); !errors.Is(w.err, serverless.ErrNotFound) || w.after != 10*time.Second {
			t.Errorf("Wait = %v after %v, want ErrNotFound when the ttl has passed", w.err, w.after)
		}
	})
}

func TestRunsyncWaits90SecondsUnlessItSays(t *testing.T) {
	for _, tt := range []struct{ ask, want, keep time.Duration }{
		{0, 90 * time.Second, 90 * time.Second},
		{time.Second, time.Second, time.Minute},
		{time.Minute, time.Minute, time.Minute},
		{2 * time.Minute, 2 * time.Minute, 2 * time.Minute},
		{5 * time.Minute, 5 * time.Minute, 5 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			begin := time.Now()
			j, err := s.SubmitAndWait(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`), Wait: tt.ask})
			if got := time.Since(begin); err != nil || got != tt.want || j.Status != serverless.InQueue {
				t.Errorf("runsync with wait %v = %v, %v after %v, want IN_QUEUE after %v", tt.ask, j.Status, err, got, tt.want)
			}
			if j.ID[:5] != "sync-" || j.Flags&queue.Sync == 0 || j.Retain != tt.keep {
				t.Errorf("wait %v: job %s is kept for %v, want a sync- job kept for %v", tt.ask, j.ID, j.Retain, tt.keep)
			}
		})
	}
}

func TestRunsyncResultComesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, echo, nil)
		begin := time.Now()
		j, err := s.SubmitAndWait(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{"x":1}`)})
		if err != nil || j.Status != serverless.Completed || string(j.Output) != `{"x":1}` || time.Since(begin) != 0 {
			t.Errorf("runsync = %v %s, %v after %v, want the result at once", j.Status, j.Output, err, time.Since(begin))
		}
		if _, err := s.SubmitAndWait(t.Context(), "alice", "echo", serverless.Request{}); problem.KindOf(err) != problem.Invalid {
			t.Errorf("runsync without input = %v, want 422", err)
		}
	})
}

func TestWaitsLeaveNothingBehind(t *testing.T) {
	// Goroutines or timers that outlive their Wait would keep the bubble from ending here.
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			w := waitAsync(ctx, s, ref, time.Hour)
			cancel()
			<-w
		}
	})
}
