package serverless_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// stepped is a service whose time the test moves, and how often it was stepped.
type stepped struct {
	*serverless.Service
	clock *clock.Manual
	steps int
}

func newStepped(t *testing.T, o serverless.Options) *stepped {
	t.Helper()
	return steppedOn(t, memory.NewJobs(), o)
}

func steppedOn(t *testing.T, q serverless.JobQueue, o serverless.Options) *stepped {
	t.Helper()
	c := clock.NewManual(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	o.Clock = c
	return &stepped{Service: serverless.New(q, twoEndpoints(t), &o), clock: c}
}

func (s *stepped) Step(ctx context.Context, now time.Time) (time.Time, error) {
	s.steps++
	return s.Service.Step(ctx, now)
}

func (s *stepped) advance(t *testing.T, d time.Duration) {
	t.Helper()
	if err := s.clock.Advance(t.Context(), d, s); err != nil {
		t.Fatalf("Advance: %v", err)
	}
}

func TestServiceWithNothingToDoAsksForNoStep(t *testing.T) {
	s := newStepped(t, serverless.Options{Sender: newSender(nil)})
	if next, err := s.Step(t.Context(), s.clock.Now()); !next.IsZero() || err != nil {
		t.Errorf("Step = %v, %v, want the zero time", next, err)
	}
}

func TestWeekOfSteppedTimeCostsAsManyStepsAsItHasEvents(t *testing.T) {
	const day = 24 * time.Hour
	s := newStepped(t, serverless.Options{})
	week := submitEcho(t, s.Service, withTTL(7*day))
	oneDay := submitEcho(t, s.Service)
	if j := takeOne(t, s.Service, "w"); j.Ref != week {
		t.Fatalf("took %s, want the first", j.ID)
	}
	if err := finish(t, s.Service, week, "w", `1`); err != nil {
		t.Fatal(err)
	}
	s.advance(t, 30*time.Minute-time.Millisecond)
	wantStatus(t, s.Service, week, serverless.Completed)
	s.advance(t, time.Millisecond)
	wantGone(t, s.Service, week) // its retention

	s.advance(t, day-30*time.Minute-time.Millisecond)
	wantStatus(t, s.Service, oneDay, serverless.InQueue)
	s.advance(t, time.Millisecond)
	wantGone(t, s.Service, oneDay)

	over := submitEcho(t, s.Service, withTimeout(5*time.Second), withTTL(7*day))
	takeOne(t, s.Service, "w")
	s.advance(t, 5*time.Second)
	wantStatus(t, s.Service, over, serverless.TimedOut)

	lost := submitEcho(t, s.Service, withTTL(7*day))
	takeOne(t, s.Service, "w")
	s.advance(t, 30*time.Second)
	wantStatus(t, s.Service, lost, serverless.InQueue)
	s.advance(t, 7*day-30*time.Second-time.Millisecond)
	wantStatus(t, s.Service, lost, serverless.InQueue)
	s.advance(t, time.Millisecond)
	wantGone(t, s.Service, lost)
	if s.steps > 100 {
		t.Errorf("%d steps for eight days with four jobs", s.steps)
	}
}

// A lease that outlives the job needs no renewal; the default one needs three a lease, and
// that of a remote worker stays what it is.
func TestLocalLeaseIsOfWorkersInThisProcess(t *testing.T) {
	const days = 2 * 24 * time.Hour
	for _, tt := range []struct {
		lease    time.Duration
		min, max int // steps of two days
	}{{0, int(days / (10 * time.Second)), 100_000}, {100 * days, 1, 5}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStepped(t, serverless.Options{LocalLease: tt.lease})
			ref := submitEcho(t, s.Service, withTTL(7*days/2), withTimeout(3*days)) // first: nobody listens to tell a worker
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- s.Serve(ctx, "echo", serverless.WorkerFunc(func(ctx context.Context, _ *serverless.Task) ([]byte, error) {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}), &serverless.ServeOptions{Drain: -1})
			}()
			synctest.Wait()
			before := s.steps
			s.advance(t, days)
			if n := s.steps - before; n < tt.min || n > tt.max {
				t.Errorf("with a lease of %v, two days took %d steps, want %d to %d", tt.lease, n, tt.min, tt.max)
			}
			wantStatus(t, s.Service, ref, serverless.InProgress)
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			takeOne(t, s.Service, "remote")
			s.advance(t, 30*time.Second)
			wantStatus(t, s.Service, ref, serverless.InQueue)
		})
	}
}

func TestStepsThatComeTooOftenChangeNothing(t *testing.T) {
	s := newStepped(t, serverless.Options{})
	ref := submitEcho(t, s.Service)
	takeOne(t, s.Service, "w")
	before := mustGet(t, s.Service, ref)
	want, err := s.Step(t.Context(), s.clock.Now())
	if err != nil || !want.After(s.clock.Now()) || want.After(s.clock.Now().Add(30*time.Second)) {
		t.Fatalf("Step asks for %v, %v, want an instant up to the end of the lease", want, err)
	}
	for range 100 {
		if next, err := s.Step(t.Context(), s.clock.Now()); err != nil || !next.Equal(want) {
			t.Fatalf("Step asks for %v, %v, want %v again", next, err, want)
		}
	}
	if now := mustGet(t, s.Service, ref); now.State != before.State {
		t.Errorf("the job changed from %+v to %+v", before.State, now.State)
	}
}

func TestSteppedWebhooksFollowTheirSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // for Wait: the attempts are goroutines
		var sent []time.Duration
		var s *stepped
		begin := time.Time{}
		s = newStepped(t, serverless.Options{Sender: senderFunc(func(context.Context, *serverless.Delivery) (int, error) {
			sent = append(sent, s.clock.Now().Sub(begin))
			return 503, nil
		})})
		begin = s.clock.Now()
		ref := submitEcho(t, s.Service, withWebhook(hook))
		if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			s.advance(t, time.Second)
			synctest.Wait()
		}
		if got := fmt.Sprint(sent); got != "[0s 10s 20s]" && got != "[1s 11s 21s]" {
			t.Errorf("sent at %s, want three times ten seconds apart", got)
		}
	})
}

func TestSteppedWorkerKeepsItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &renewalCounter{Jobs: memory.NewJobs()}
		s := steppedOn(t, q, serverless.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		let := make(chan struct{})
		go func() { done <- s.Listen(ctx) }()
		go func() {
			done <- s.Serve(ctx, "echo", serverless.WorkerFunc(func(_ context.Context, k *serverless.Task) ([]byte, error) {
				<-let
				return k.Input, nil
			}), nil)
		}()
		synctest.Wait()
		ref := submitEcho(t, s.Service, withTimeout(time.Hour))
		synctest.Wait()
		for range 60 {
			s.advance(t, time.Minute-time.Millisecond)
			synctest.Wait()
		}
		wantStatus(t, s.Service, ref, serverless.InProgress)
		if s.steps > 3*60*60/10 {
			t.Errorf("%d steps for an hour of one job, whose lease is renewed every ten seconds", s.steps)
		}
		if n := q.renewals.Load(); n > 60*60/10+1 {
			t.Errorf("%d renewals in an hour, want three a lease", n)
		}
		close(let)
		synctest.Wait()
		wantStatus(t, s.Service, ref, serverless.Completed)
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("Serve = %v, want nil", err)
			}
		}
	})
}

// A renewalCounter queue counts the renewals.
type renewalCounter struct {
	*memory.Jobs
	renewals atomic.Int64
}

func (q *renewalCounter) Apply(ctx context.Context, now serverless.Instant, ops []queue.Op, res []queue.Result) error {
	for i := range ops {
		if ops[i].Kind == queue.OpRenew {
			q.renewals.Add(1)
		}
	}
	return q.Jobs.Apply(ctx, now, ops, res)
}

func TestWebhooksDoNotMakeRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &renewalCounter{Jobs: memory.NewJobs()}
		s := serviceOn(t, q, &serverless.Options{Sender: newSender(nil)})
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			time.Sleep(15 * time.Second)
			return k.Input, nil
		}, &serverless.ServeOptions{Concurrency: 10})
		submitAs(t, s, "alice", 10)
		for range 100 {
			if _, err := s.Cancel(t.Context(), "alice", submitEcho(t, s, withWebhook(hook))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := q.renewals.Load(); n > 2*10 {
			t.Errorf("%d renewals of ten jobs in ten seconds, want one each", n)
		}
	})
}

func TestServiceThatWaitsAsksItsQueueNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		s := serviceOn(t, q, &serverless.Options{Sender: newSender(nil)})
		serve(t, s, echo, nil)
		ref := submitEcho(t, s)
		w := waitAsync(t.Context(), s, submitEcho(t, s, func(r *serverless.Request) { r.Extra = []byte(`{}`) }), time.Hour)
		<-w
		wantStatus(t, s, ref, serverless.Completed)
		time.Sleep(time.Hour)
		before := q.calls.Load()
		time.Sleep(24 * time.Hour)
		if n := q.calls.Load() - before; n > 0 {
			t.Errorf("%d calls of the queue in a day without a job", n)
		}
	})
}

func TestRunEndsWithAllItStarted(t *testing.T) {
	// The bubble does not end while a goroutine of Run is left.
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		s := serverless.New(q, twoEndpoints(t), &serverless.Options{Sender: senderFunc(func(ctx context.Context, _ *serverless.Delivery) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})})
		for round := range 3 {
			q.failCalls("Watch", round)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			for range 5 {
				if _, err := s.Cancel(t.Context(), "alice", submitEcho(t, s, withWebhook(hook))); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(1500 * time.Millisecond)
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run = %v, want nil", err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run with an ended context = %v, want nil", err)
		}
	})
}
