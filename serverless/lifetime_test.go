package serverless_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

func TestTTLDeletesAJobThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s, withTTL(10*time.Second))
		until(10*time.Second, func() { wantStatus(t, s, ref, serverless.InQueue) }, func() { wantGone(t, s, ref) })
		h, err := s.Health(t.Context(), "echo")
		if err != nil || h.Jobs.Queued != 0 {
			t.Errorf("health counts %d queued, %v, want none", h.Jobs.Queued, err)
		}
		serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) {
			t.Error("a job past its ttl ran")
			return nil, nil
		}, nil)
	})
}

func TestTTLDeletesAJobThatRunsAndStopsItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		cause := make(chan error, 1)
		serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return k.Input, nil
		}, nil)
		ref := submitEcho(t, s, withTTL(10*time.Second))
		until(10*time.Second, func() { wantStatus(t, s, ref, serverless.InProgress) }, func() { wantGone(t, s, ref) })
		if err := <-cause; !errors.Is(err, serverless.ErrExpired) {
			t.Errorf("cause is %v, want ErrExpired", err)
		}
		if _, err := s.Retry(t.Context(), "alice", ref); !errors.Is(err, serverless.ErrNotFound) {
			t.Errorf("Retry after the ttl = %v, want ErrNotFound", err)
		}
	})
}

func TestTTLDeletesAResultBeforeItsRetentionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, echo, nil)
		ref := submitEcho(t, s, withTTL(time.Minute))
		until(time.Minute, func() { wantStatus(t, s, ref, serverless.Completed) }, func() { wantGone(t, s, ref) })
	})
}

func TestRemoteWorkerOfAnExpiredJobGetsAStopNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s, withTTL(10*time.Second))
		takeOne(t, s, "w")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if ids := stops(t, s, "w"); len(ids) != 1 || ids[0] != ref.ID {
			t.Errorf("Stops = %v, want the expired job", ids)
		}
		if err := finish(t, s, ref, "w", `1`); !errors.Is(err, serverless.ErrNotFound) {
			t.Errorf("report after the ttl = %v, want ErrNotFound", err)
		}
	})
}

func TestResultsAreKeptForTheirRetention(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*serverless.Request)
		want   time.Duration
	}{
		{"run", func(*serverless.Request) {}, 30 * time.Minute},
		{"runsync with a short wait", func(r *serverless.Request) { r.Sync, r.Wait = true, time.Second }, time.Minute},
		{"runsync with a long wait", func(r *serverless.Request) { r.Sync, r.Wait = true, 4*time.Minute }, 4 * time.Minute},
		{"runsync with a wait over the bound", func(r *serverless.Request) { r.Sync, r.Wait = true, time.Hour }, 5 * time.Minute},
		{"run with a wait, which is not its own", func(r *serverless.Request) { r.Wait = time.Second }, 30 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, nil)
				ref := submitEcho(t, s, tt.change)
				time.Sleep(time.Hour) // waiting in the queue takes nothing from it
				serve(t, s, echo, nil)
				until(tt.want, func() { wantStatus(t, s, ref, serverless.Completed) }, func() { wantGone(t, s, ref) })
			})
		})
	}
}

func TestRetentionHoldsForEveryWayToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		cancelled := submitEcho(t, s)
		if _, err := s.Cancel(t.Context(), "alice", cancelled); err != nil {
			t.Fatal(err)
		}
		serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) { return nil, errors.New("no") }, nil)
		failed := submitEcho(t, s)
		until(30*time.Minute, func() {
			wantStatus(t, s, cancelled, serverless.Cancelled)
			wantStatus(t, s, failed, serverless.Failed)
		}, func() {
			wantGone(t, s, cancelled)
			wantGone(t, s, failed)
		})
		if _, err := s.Retry(t.Context(), "alice", failed); !errors.Is(err, serverless.ErrNotFound) {
			t.Errorf("Retry past the retention = %v, want ErrNotFound", err)
		}
	})
}

func TestStatusTTLMovesTheExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s, withTTL(time.Minute))
		set := func(d time.Duration) {
			t.Helper()
			j, err := s.SetTTL(t.Context(), "alice", ref, d)
			if err != nil {
				t.Fatalf("SetTTL to %v: %v", d, err)
			}
			if got := time.Until(j.Expires.Time()); got != d {
				t.Fatalf("SetTTL to %v: expires in %v", d, got)
			}
		}
		time.Sleep(59 * time.Second)
		set(time.Hour) // later
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		wantStatus(t, s, ref, serverless.InQueue)
		w := waitAsync(t.Context(), s, ref, time.Hour)
		set(time.Second) // sooner: whoever waits hears of it in time
		until(time.Second, func() { wantStatus(t, s, ref, serverless.InQueue) }, func() { wantGone(t, s, ref) })
		if got := <-w; !errors.Is(got.err, serverless.ErrNotFound) || got.after != time.Second {
			t.Errorf("Wait = %v after %v, want ErrNotFound after a second", got.err, got.after)
		}
	})
}

func TestStatusTTLReachesNoFurtherThanAWeekFromSubmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const week = 7 * 24 * time.Hour
		s := newService(t, nil)
		ref := submitEcho(t, s)
		time.Sleep(time.Hour)
		j, err := s.SetTTL(t.Context(), "alice", ref, week)
		if err != nil || j.Expires != j.Submitted.Add(week) {
			t.Fatalf("SetTTL of a week after an hour: expires %v after submission, %v", j.Expires.Time().Sub(j.Submitted.Time()), err)
		}
		until(week-time.Hour, func() { wantStatus(t, s, ref, serverless.InQueue) }, func() { wantGone(t, s, ref) })
	})
}

func TestStatusTTLDoesNotOutliveTheRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, echo, nil)
		ref := submitEcho(t, s)
		time.Sleep(20 * time.Minute)
		if _, err := s.SetTTL(t.Context(), "alice", ref, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		until(10*time.Minute, func() { wantStatus(t, s, ref, serverless.Completed) }, func() { wantGone(t, s, ref) })
	})
}

func TestStatusTTLOutOfBoundsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		before := mustGet(t, s, ref).State
		for _, d := range []time.Duration{-1, 0, time.Second - 1, 7*24*time.Hour + 1} {
			if _, err := s.SetTTL(t.Context(), "alice", ref, d); problem.KindOf(err) != problem.Invalid {
				t.Errorf("SetTTL of %v = %v, want 422", d, err)
			}
		}
		if mustGet(t, s, ref).State != before {
			t.Error("a refused ttl changed the job")
		}
	})
}

func TestWorkerOfAJobWhoseTTLWasShortenedIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		cause := make(chan error, 1)
		serve(t, s, func(ctx context.Context, _ *serverless.Task) ([]byte, error) {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil, nil
		}, nil)
		ref := submitEcho(t, s)
		synctest.Wait()
		if _, err := s.SetTTL(t.Context(), "alice", ref, time.Second); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := <-cause; !errors.Is(err, serverless.ErrExpired) || time.Since(begin) != time.Second {
			t.Errorf("cause is %v after %v, want ErrExpired after a second", err, time.Since(begin))
		}
	})
}

func TestAResultWithRetainOutlivesItsTTL(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*serverless.Request)
		setting time.Duration
		want    time.Duration
	}{
		"of the job":                   {func(r *serverless.Request) { r.Queue.Retain = new(time.Hour) }, 0, time.Hour},
		"of runsync":                   {func(r *serverless.Request) { r.Sync = true; r.Queue.Retain = new(time.Hour) }, 0, time.Hour},
		"of the endpoint":              {func(*serverless.Request) {}, 2 * time.Hour, 2 * time.Hour},
		"of the job, not of its queue": {func(r *serverless.Request) { r.Queue.Retain = new(time.Hour) }, 2 * time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, nil)
				if c.setting != 0 {
					setQueue(t, s, "echo", endpoints.QueueUpdate{Retain: &c.setting})
				}
				serve(t, s, echo, nil)
				ref := submitEcho(t, s, withTTL(10*time.Second), c.change)
				until(c.want, func() { wantStatus(t, s, ref, serverless.Completed) }, func() { wantGone(t, s, ref) })
			})
		})
	}
}
