package serverless_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
)

// A gauge records the largest number at once.
type gauge struct {
	mu        sync.Mutex
	now, peak int
}

func (g *gauge) enter() (leave func()) {
	g.add(1)
	return func() { g.add(-1) }
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	g.peak = max(g.peak, g.now)
}

func (g *gauge) most() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peak
}

func TestConcurrencyIsTheMostJobsAtOnce(t *testing.T) {
	for _, tt := range []struct{ set, want int }{{0, 1}, {-1, 1}, {1, 1}, {4, 4}} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			var g gauge
			serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
				defer g.enter()()
				time.Sleep(time.Second)
				return k.Input, nil
			}, &serverless.ServeOptions{Concurrency: tt.set})
			refs := submitAs(t, s, "alice", 12)
			begin := time.Now()
			for _, ref := range refs {
				if _, err := s.Wait(t.Context(), "alice", ref, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			if took, want := time.Since(begin), time.Duration(12/tt.want)*time.Second; g.most() != tt.want || took != want {
				t.Errorf("concurrency %d: %d at once in %v, want %d in %v", tt.set, g.most(), took, tt.want, want)
			}
		})
	}
}

func TestWorkersOfOneEndpointShareItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		for _, id := range []serverless.WorkerID{"a", "b", "c"} {
			serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
				time.Sleep(time.Second)
				return k.Input, nil
			}, &serverless.ServeOptions{ID: id})
		}
		var got []string
		for _, ref := range submitAs(t, s, "alice", 3) {
			j, err := s.Wait(t.Context(), "alice", ref, time.Minute)
			if err != nil || j.ExecutionTime() != time.Second || j.DelayTime() != 0 {
				t.Errorf("job waited %v and ran %v, %v, want 0 and 1s", j.DelayTime(), j.ExecutionTime(), err)
			}
			got = append(got, string(j.Worker))
		}
		slices.Sort(got)
		if !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("ran on %v, want one on each", got)
		}
	})
}

func TestJobsStartInTheOrderOfTheirSubmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		var want []string
		for i := range 50 {
			in := fmt.Sprintf(`{"n":%d}`, i)
			submitEcho(t, s, withInput(in), func(r *serverless.Request) { r.Policy.LowPriority = i%3 == 0 })
			want = append(want, in)
		}
		var got lineLog
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			got.add(string(k.Input))
			return nil, nil
		}, nil)
		synctest.Wait()
		if diff := cmp.Diff(want, got.all()); diff != "" {
			t.Errorf("order (-want +got): low priority changes no place\n%s", diff)
		}
	})
}

func TestProgressIsTheOutputWhileTheJobRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			for i := range 3 {
				if err := k.Progress(ctx, fmt.Appendf(nil, `{"step":%d}`, i)); err != nil {
					t.Errorf("Progress = %v", err)
				}
				time.Sleep(time.Second)
			}
			return nil, nil
		}, nil)
		ref := submitEcho(t, s)
		time.Sleep(1500 * time.Millisecond)
		if got, want := string(show(t, s, ref)), `{"delayTime":0,"id":"`+string(ref.ID)+`","output":{"step":1},"status":"IN_PROGRESS","workerId":"local-echo"}`; got != want {
			t.Errorf("job = %s\nwant  %s", got, want)
		}
		time.Sleep(time.Minute)
		if got, want := string(show(t, s, ref)), `{"delayTime":0,"executionTime":3000,"id":"`+string(ref.ID)+`","status":"COMPLETED","workerId":"local-echo"}`; got != want {
			t.Errorf("job = %s\nwant  %s", got, want)
		}
	})
}

func TestOutputOfAWorkerMustBeJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			for _, bad := range []string{``, `{`, `1 2`, "\x00"} {
				if k.Progress(ctx, []byte(bad)) == nil {
					t.Errorf("%q is taken as progress", bad)
				}
			}
			return []byte(`{"a":`), nil
		}, nil)
		j, err := s.Wait(t.Context(), "alice", submitEcho(t, s), time.Minute)
		if err != nil || j.Status != serverless.Failed || j.Output != nil || j.Error != "the worker's result is not JSON: unexpected end of JSON input" {
			t.Errorf("job = %v %s %q, %v, want FAILED because of its output", j.Status, j.Output, j.Error, err)
		}
	})
}

// Without a chunk the result would not be whole, so the job does not go on to COMPLETED.
func TestChunkOfAWorkerThatCannotBeTakenFailsItsJob(t *testing.T) {
	mega := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	for name, tt := range map[string]struct {
		emit func(context.Context, *serverless.Task) error
		want string
	}{
		"not JSON": {func(ctx context.Context, k *serverless.Task) error { return k.Emit(ctx, []byte(`NaN`)) },
			"a chunk of the worker's result is not JSON: invalid character 'N' looking for beginning of value"},
		"more than fit": {func(ctx context.Context, k *serverless.Task) error {
			for range 70 {
				if err := k.Emit(ctx, mega); err != nil {
					return err
				}
			}
			return nil
		}, "a chunk was not taken: the stream is full: too many of its bytes were not read; the limit is 67108864 bytes (64 MB)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, nil)
				causes := make(chan error, 1)
				serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
					if tt.emit(ctx, k) == nil {
						t.Error("Emit = nil for a chunk that cannot be taken")
					}
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return []byte(`1`), nil // the worker does not look at errors
				}, nil)
				j, err := s.Wait(t.Context(), "alice", submitEcho(t, s), time.Minute)
				if err != nil || j.Status != serverless.Failed || j.Error != tt.want || j.Deliveries != 1 {
					t.Errorf("job = %v %q, %v, want FAILED at once: %s", j.Status, j.Error, err, tt.want)
				}
				if cause := <-causes; !errors.Is(cause, serverless.ErrLeaseLost) {
					t.Errorf("the worker was stopped because of %v, want ErrLeaseLost", cause)
				}
			})
		})
	}
}

// A panickingError panics in its method Error.
type panickingError struct{}

func (panickingError) Error() string { panic("no text") }

func TestResultOfAWorkerIsTheResultOfItsJob(t *testing.T) {
	large := bytes.Repeat([]byte("1"), serverless.MaxOutput+1)
	const tooLarge = "the result is larger than 20971520 bytes (20 MB)"
	for _, tt := range []struct {
		name   string
		work   serverless.WorkerFunc
		status serverless.Status
		output string
		error  string
	}{
		{"nothing", func(context.Context, *serverless.Task) ([]byte, error) { return nil, nil }, serverless.Completed, "", ""},
		{"null", func(context.Context, *serverless.Task) ([]byte, error) { return []byte(`null`), nil }, serverless.Completed, "null", ""},
		{"an output at the limit", func(context.Context, *serverless.Task) ([]byte, error) { return large[1:], nil }, serverless.Completed, string(large[1:]), ""},
		{"an output over the limit", func(context.Context, *serverless.Task) ([]byte, error) { return large, nil }, serverless.Failed, "", tooLarge},
		{"an error", func(context.Context, *serverless.Task) ([]byte, error) {
			return []byte(`1`), errors.New("out of memory")
		}, serverless.Failed, "", "out of memory"},
		{"an error without text", func(context.Context, *serverless.Task) ([]byte, error) { return nil, errors.New("") }, serverless.Failed, "", "the worker reported a failure without a reason"},
		{"a failure with an output", func(context.Context, *serverless.Task) ([]byte, error) {
			return nil, fmt.Errorf("step 3: %w", &serverless.Failure{Output: []byte(`{"log":1}`), Text: "broke"})
		}, serverless.Failed, `{"log":1}`, "step 3: broke"},
		{"a failure with an output over the limit", func(context.Context, *serverless.Task) ([]byte, error) {
			return nil, &serverless.Failure{Output: large, Text: "broke"}
		}, serverless.Failed, "", tooLarge},
		{"a failure that is nil", func(context.Context, *serverless.Task) ([]byte, error) {
			return nil, (*serverless.Failure)(nil)
		}, serverless.Failed, "", "the worker panicked: runtime error: invalid memory address or nil pointer dereference"},
		{"an error that panics", func(context.Context, *serverless.Task) ([]byte, error) { return nil, panickingError{} }, serverless.Failed, "", "the worker panicked: no text"},
		{"a panic", func(context.Context, *serverless.Task) ([]byte, error) { panic("out of cheese") }, serverless.Failed, "", "the worker panicked: out of cheese"},
		{"the end of its goroutine", func(context.Context, *serverless.Task) ([]byte, error) { runtime.Goexit(); return nil, nil }, serverless.Failed, "", "the worker's goroutine ended without a result"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, nil)
				serve(t, s, tt.work, nil)
				j, err := s.Wait(t.Context(), "alice", submitEcho(t, s), 20*time.Second)
				if err != nil || j.Status != tt.status || string(j.Output) != tt.output || j.ErrorText() != tt.error {
					t.Errorf("job = %v %.100s %q, %v\nwant  %v %.100s %q", j.Status, j.Output, j.ErrorText(), err, tt.status, tt.output, tt.error)
				}
				if next, err := s.Wait(t.Context(), "alice", submitEcho(t, s), 20*time.Second); err != nil || next.Status != tt.status {
					t.Errorf("the next job is %v, %v: the worker does not go on", next.Status, err)
				}
			})
		})
	}
}

func TestExecutionTimeoutStopsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		cause := make(chan error, 1)
		serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			if err := k.Progress(ctx, []byte(`"half"`)); err != nil {
				t.Errorf("Progress = %v", err)
			}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return k.Input, nil
		}, nil)
		ref := submitEcho(t, s, withTimeout(5*time.Second))
		until(5*time.Second, func() { wantStatus(t, s, ref, serverless.InProgress) }, func() { wantStatus(t, s, ref, serverless.TimedOut) })
		if err := <-cause; !errors.Is(err, serverless.ErrExecutionTimeout) {
			t.Errorf("cause is %v, want ErrOverTime", err)
		}
		if got, want := string(show(t, s, ref)), `{"delayTime":0,"error":"execution timeout: the job ran longer than 5000 ms","executionTime":5000,"id":"`+
			string(ref.ID)+`","status":"TIMED_OUT","workerId":"local-echo"}`; got != want {
			t.Errorf("job = %s\nwant  %s", got, want)
		}
		if j, err := s.Retry(t.Context(), "alice", ref); err != nil || j.Status != serverless.InQueue {
			t.Errorf("Retry of a timed out job = %v, %v, want IN_QUEUE", j.Status, err)
		}
	})
}

func TestTimeInTheQueueIsNotExecutionTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s, withTimeout(5*time.Second))
		time.Sleep(time.Hour)
		serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) {
			time.Sleep(5*time.Second - time.Millisecond)
			return nil, nil
		}, nil)
		j, err := s.Wait(t.Context(), "alice", ref, time.Minute)
		if err != nil || j.Status != serverless.Completed || j.DelayTime() != time.Hour || j.ExecutionTime() != 4999*time.Millisecond {
			t.Errorf("job = %v after %v and %v, %v, want COMPLETED after 1h and 4.999s", j.Status, j.DelayTime(), j.ExecutionTime(), err)
		}
	})
}

func TestWorkerThatDoesNotStopLosesItsSlotAfterTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		let := make(chan struct{})
		var ran lineLog
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			ran.add(string(k.Input))
			if string(k.Input) == `{"stuck":1}` {
				<-let
			}
			return k.Input, nil
		}, nil)
		stuck := submitEcho(t, s, withInput(`{"stuck":1}`))
		next := submitEcho(t, s)
		time.Sleep(time.Minute)
		if _, err := s.Cancel(t.Context(), "alice", stuck); err != nil {
			t.Fatal(err)
		}
		until(10*time.Second, func() { wantStatus(t, s, next, serverless.InQueue) }, func() { wantStatus(t, s, next, serverless.Completed) })
		close(let)
		synctest.Wait()
		wantStatus(t, s, stuck, serverless.Cancelled)
		submitEcho(t, s)
		synctest.Wait()
		if got := ran.all(); !slices.Equal(got, []string{`{"stuck":1}`, `{}`, `{}`}) {
			t.Errorf("ran %v: the place of a stuck worker is not given away once", got)
		}
	})
}

func TestSlotOfAStuckWorkerIsFreedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		let := make(chan struct{})
		var g gauge
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			if string(k.Input) == `{"stuck":1}` {
				<-let
				return nil, nil
			}
			defer g.enter()()
			time.Sleep(time.Second)
			return nil, nil
		}, nil)
		stuck := submitEcho(t, s, withInput(`{"stuck":1}`))
		synctest.Wait()
		if _, err := s.Cancel(t.Context(), "alice", stuck); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		close(let)
		submitAs(t, s, "alice", 10)
		time.Sleep(time.Minute)
		if most := g.most(); most != 1 {
			t.Errorf("%d jobs ran at once afterwards, want 1", most)
		}
	})
}

func TestInProcessWorkerKeepsItsJobForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			time.Sleep(100 * time.Hour)
			return fmt.Appendf(nil, "%d", k.Attempt), nil
		}, &serverless.ServeOptions{Concurrency: 2})
		week := 7 * 24 * time.Hour
		a, b := submitEcho(t, s, withTimeout(week), withTTL(week)), submitEcho(t, s, withTimeout(week), withTTL(week))
		for _, ref := range []serverless.Ref{a, b} {
			j, err := s.Wait(t.Context(), "alice", ref, week)
			if err != nil || j.Status != serverless.Completed || string(j.Output) != `1` {
				t.Errorf("job = %v %s, %v, want COMPLETED at the first attempt", j.Status, j.Output, err)
			}
		}
		if h, err := s.Health(t.Context(), "echo"); err != nil || h.Jobs.Retried != 0 {
			t.Errorf("retried counts %d, %v, want 0", h.Jobs.Retried, err)
		}
	})
}

// serving runs Serve until stop is called, which waits for its end and says how long it took.
func serving(t *testing.T, s *serverless.Service, w serverless.WorkerFunc, o *serverless.ServeOptions) (stop func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, "echo", w, o) }()
	synctest.Wait()
	return func() time.Duration {
		t.Helper()
		begin := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
		return time.Since(begin)
	}
}

func TestServeLetsItsJobsFinishWithinDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		stop := serving(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			time.Sleep(8 * time.Second)
			return k.Input, nil
		}, &serverless.ServeOptions{Concurrency: 3})
		refs := submitAs(t, s, "alice", 4)
		time.Sleep(time.Second)
		if took := stop(); took != 7*time.Second {
			t.Errorf("Serve took %v to end, want the 7 s of its jobs", took)
		}
		for _, ref := range refs[:3] {
			wantStatus(t, s, ref, serverless.Completed)
		}
		wantStatus(t, s, refs[3], serverless.InQueue) // it takes no new job
		if h, err := s.Health(t.Context(), "echo"); err != nil || h.Workers != (serverless.WorkerCounts{}) {
			t.Errorf("workers are %+v, %v, want none", h.Workers, err)
		}
	})
}

// What ends with a service are the jobs of its own workers: those of others are reported at another server.
func TestJobsHereAreThoseOfServeAndOfTheFleet(t *testing.T) {
	want := func(t *testing.T, s *serverless.Service, endpoint, when string, n int) {
		t.Helper()
		if got, err := s.JobsHere(t.Context(), endpoint); err != nil || got != n {
			t.Errorf("%s JobsHere = %d, %v, want %d", when, got, err, n)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		submitEcho(t, s)
		takeOne(t, s, "away")
		want(t, s, "echo", "with a job of a worker of somebody else", 0)
		serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) {
			time.Sleep(8 * time.Second)
			return []byte("1"), nil
		}, nil)
		submitAs(t, s, "alice", 2)
		time.Sleep(time.Second)
		want(t, s, "echo", "with a job of Serve", 1)
		s.SetDraining(true)
		time.Sleep(8 * time.Second)
		want(t, s, "echo", "when it has ended and none is taken", 0)
	})
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("works", 0, 3))
		svc.submit(t, 30, false)
		time.Sleep(8 * time.Second)
		want(t, svc.Service, "e", "with three workers of the fleet", svc.counts(t).Running)
		if svc.counts(t).Running == 0 {
			t.Error("no worker of the fleet has a job")
		}
	})
}

func TestServeReleasesJobsThatOutlastDrain(t *testing.T) {
	for _, tt := range []struct{ set, want time.Duration }{{0, 10 * time.Second}, {time.Minute, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			cause := make(chan error, 1)
			stop := serving(t, s, func(ctx context.Context, _ *serverless.Task) ([]byte, error) {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				time.Sleep(2 * time.Second)
				return nil, ctx.Err()
			}, &serverless.ServeOptions{Drain: tt.set})
			ref := submitEcho(t, s)
			synctest.Wait()
			if took := stop(); took != tt.want+2*time.Second {
				t.Errorf("Serve took %v to end, want its drain of %v and the 2 s that the worker took", took, tt.want)
			}
			if err := <-cause; !errors.Is(err, serverless.ErrDraining) {
				t.Errorf("cause is %v, want ErrDraining", err)
			}
			wantStatus(t, s, ref, serverless.InQueue)
			serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
				return fmt.Appendf(nil, "%d", k.Attempt), nil
			}, nil)
			j, err := s.Wait(t.Context(), "alice", ref, time.Minute)
			if err != nil || string(j.Output) != `1` {
				t.Errorf("attempt %s, %v, want 1: the first one is not charged", j.Output, err)
			}
			if h, err := s.Health(t.Context(), "echo"); err != nil || h.Jobs.Retried != 0 {
				t.Errorf("retried counts %d, %v, want 0", h.Jobs.Retried, err)
			}
		})
	}
}

func TestServeReturnsAlthoughAWorkerDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		let := make(chan struct{})
		defer close(let)
		stop := serving(t, s, func(context.Context, *serverless.Task) ([]byte, error) { <-let; return nil, nil }, nil)
		ref := submitEcho(t, s)
		synctest.Wait()
		if took := stop(); took != 20*time.Second {
			t.Errorf("Serve took %v to end, want 10 s of drain and 10 s of patience", took)
		}
		wantStatus(t, s, ref, serverless.InQueue)
	})
}

func TestRunEndsAlthoughAWorkerDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverless.New(memory.NewJobs(), twoEndpoints(t), nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		let := make(chan struct{})
		defer close(let)
		stop := serving(t, s, func(context.Context, *serverless.Task) ([]byte, error) { <-let; return nil, nil }, nil)
		submitEcho(t, s)
		synctest.Wait()
		begin := time.Now()
		cancel()
		if err := <-done; err != nil || time.Since(begin) != 0 {
			t.Errorf("Run = %v after %v, want nil at once", err, time.Since(begin))
		}
		stop()
	})
}

func TestSameWorkerIDServesTwoEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serviceOn(t, memory.NewJobs(), nil)
		causes := make(chan string, 2)
		for _, ep := range []string{"echo", "other"} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- s.Serve(ctx, ep, serverless.WorkerFunc(func(ctx context.Context, _ *serverless.Task) ([]byte, error) {
					<-ctx.Done()
					causes <- ep + ": " + context.Cause(ctx).Error()
					return nil, nil
				}), &serverless.ServeOptions{ID: "gpu-0"})
			}()
			defer func() { cancel(); <-done }()
			synctest.Wait()
		}
		for _, ep := range []string{"echo", "other"} {
			j, err := s.Submit(t.Context(), "alice", ep, serverless.Request{Input: []byte(`{}`)})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			begin := time.Now()
			if _, err := s.Cancel(t.Context(), "alice", j.Ref); err != nil {
				t.Fatal(err)
			}
			if got, want := <-causes, ep+": "+serverless.ErrCancelled.Error(); got != want || time.Since(begin) != 0 {
				t.Errorf("%q after %v, want %q at once", got, time.Since(begin), want)
			}
		}
	})
}

func TestSecondServeUnderTheSameIDIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		stop := serving(t, s, echo, nil)
		err := s.Serve(t.Context(), "echo", serverless.WorkerFunc(echo), nil)
		if err == nil || !strings.Contains(err.Error(), `"local-echo"`) {
			t.Errorf("second Serve = %v, want an error that names the id", err)
		}
		if j, err := s.Wait(t.Context(), "alice", submitEcho(t, s), time.Minute); err != nil || j.Status != serverless.Completed {
			t.Errorf("job of the first one = %v, %v, want COMPLETED", j.Status, err)
		}
		stop()
		serve(t, s, echo, nil) // the id is free again
		if j, err := s.Wait(t.Context(), "alice", submitEcho(t, s), time.Minute); err != nil || j.Status != serverless.Completed {
			t.Errorf("job of its successor = %v, %v, want COMPLETED", j.Status, err)
		}
	})
}

func TestJobThatIsRetriedAtOnceMayRunBesideItsLastRun(t *testing.T) {
	// The first run goes on for a while after its timeout; the second one of the same job
	// must not be ended, forgotten or finished by it.
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		runs := 0
		stop := serving(t, s, func(ctx context.Context, _ *serverless.Task) ([]byte, error) {
			if runs++; runs == 1 {
				<-ctx.Done()
				time.Sleep(2 * time.Second)
				return []byte(`"first"`), nil
			}
			time.Sleep(4 * time.Second)
			return []byte(`"second"`), nil
		}, &serverless.ServeOptions{Concurrency: 2})
		ref := submitEcho(t, s, withTimeout(5*time.Second))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		wantStatus(t, s, ref, serverless.TimedOut)
		if _, err := s.Retry(t.Context(), "alice", ref); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		wantStatus(t, s, ref, serverless.InProgress)
		if took := stop(); took != time.Second {
			t.Errorf("Serve took %v to end, want the second that the second run has left", took)
		}
		if got := string(mustGet(t, s, ref).Output); got != `"second"` {
			t.Errorf("output is %s, want that of the second run", got)
		}
	})
}

func TestRunIsStoppedAlthoughTheHintWasLost(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, s *serverless.Service, ref serverless.Ref)
		want error
	}{
		{"cancelled", func(t *testing.T, s *serverless.Service, ref serverless.Ref) {
			if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
				t.Fatal(err)
			}
		}, serverless.ErrCancelled},
		{"past its ttl", func(t *testing.T, s *serverless.Service, ref serverless.Ref) {
			if _, err := s.SetTTL(t.Context(), "alice", ref, time.Second); err != nil {
				t.Fatal(err)
			}
		}, serverless.ErrExpired},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFaultyQueue()
				s := serviceOn(t, q, nil)
				cause := make(chan error, 1)
				serve(t, s, func(ctx context.Context, _ *serverless.Task) ([]byte, error) {
					<-ctx.Done()
					cause <- context.Cause(ctx)
					return nil, nil
				}, nil)
				ref := submitEcho(t, s)
				synctest.Wait()
				q.mute(true)
				begin := time.Now()
				tt.end(t, s, ref)
				if err := <-cause; !errors.Is(err, tt.want) || time.Since(begin) > 11*time.Second {
					t.Errorf("cause is %v after %v, want %v with the next renewal", err, time.Since(begin), tt.want)
				}
			})
		})
	}
}
