package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

func TestCancelledJobThatWaitedNeverRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		w := waitAsync(t.Context(), s, ref, time.Hour)
		time.Sleep(3 * time.Second)
		j, err := s.Cancel(t.Context(), "alice", ref)
		if err != nil || j.Status != serverless.Cancelled || j.ID != ref.ID {
			t.Fatalf("Cancel = %v, %v, want CANCELLED", j.Status, err)
		}
		if got := <-w; got.job.Status != serverless.Cancelled || got.after != 3*time.Second {
			t.Errorf("Wait = %v after %v, want CANCELLED at once", got.job.Status, got.after)
		}
		serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) {
			t.Error("a cancelled job ran")
			return nil, nil
		}, nil)
		time.Sleep(time.Minute)
		if got, want := string(j.AppendJSON(nil, false)), `{"delayTime":3000,"executionTime":0,"id":"`+string(ref.ID)+`","status":"CANCELLED"}`; got != want {
			t.Errorf("job = %s\nwant  %s", got, want)
		}
	})
}

func TestCancelStopsTheWorkerAndDropsWhatItReportsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		cause := make(chan error, 1)
		serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			if err := k.Progress(ctx, []byte(`"half"`)); err != nil {
				t.Errorf("Progress = %v", err)
			}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			for _, send := range []func(context.Context, []byte) error{k.Emit, k.Progress} {
				if err := send(context.WithoutCancel(ctx), []byte(`1`)); !errors.Is(err, serverless.ErrCancelled) {
					t.Errorf("what is sent after the cancel = %v, want ErrCancelled", err)
				}
			}
			time.Sleep(time.Second)
			return []byte(`"late"`), nil
		}, nil)
		ref := submitEcho(t, s)
		time.Sleep(time.Second)
		begin := time.Now()
		j, err := s.Cancel(t.Context(), "alice", ref)
		if err != nil || j.Status != serverless.Cancelled || time.Since(begin) != 0 {
			t.Fatalf("Cancel = %v, %v after %v, want CANCELLED at once", j.Status, err, time.Since(begin))
		}
		if err := <-cause; !errors.Is(err, serverless.ErrCancelled) || time.Since(begin) != 0 {
			t.Errorf("cause is %v after %v, want ErrCancelled at once", err, time.Since(begin))
		}
		time.Sleep(5 * time.Second)
		if got, want := string(show(t, s, ref)), `{"delayTime":0,"executionTime":1000,"id":"`+string(ref.ID)+`","status":"CANCELLED","workerId":"local-echo"}`; got != want {
			t.Errorf("job = %s\nwant  %s", got, want)
		}
	})
}

func show(t *testing.T, s *serverless.Service, ref serverless.Ref) []byte {
	t.Helper()
	j := mustGet(t, s, ref)
	return j.AppendJSON(nil, false)
}

func TestCancelOfAnEndedJobChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) {
			if string(k.Input) == `{"fail":1}` {
				return nil, errors.New("no")
			}
			return k.Input, nil
		}, nil)
		for _, in := range []string{`{}`, `{"fail":1}`} {
			ref := submitEcho(t, s, withInput(in))
			synctest.Wait()
			before := mustGet(t, s, ref)
			time.Sleep(time.Second)
			j, err := s.Cancel(t.Context(), "alice", ref)
			if err != nil || j.State != before.State {
				t.Errorf("Cancel of a %v job = %v, %v", before.Status, j.Status, err)
			}
			if diff := cmp.Diff(before, mustGet(t, s, ref)); diff != "" {
				t.Errorf("job after the cancel (-before +after):\n%s", diff)
			}
		}
	})
}

func TestRetryIsForJobsThatFailedOrTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		refuse := func(ref serverless.Ref) {
			t.Helper()
			before := mustGet(t, s, ref)
			if _, err := s.Retry(t.Context(), "alice", ref); !errors.Is(err, serverless.ErrStatus) {
				t.Errorf("Retry of a %v job = %v, want ErrStatus", before.Status, err)
			}
			if diff := cmp.Diff(before, mustGet(t, s, ref)); diff != "" {
				t.Errorf("job after a refused retry (-before +after):\n%s", diff)
			}
		}
		ref := submitEcho(t, s)
		refuse(ref)
		takeOne(t, s, "w")
		refuse(ref)
		if err := finish(t, s, ref, "w", `1`); err != nil {
			t.Fatal(err)
		}
		refuse(ref)
		gone := submitEcho(t, s)
		if _, err := s.Cancel(t.Context(), "alice", gone); err != nil {
			t.Fatal(err)
		}
		refuse(gone)
	})
}

func TestRetryStartsAnewUnderTheSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		var attempts []int
		serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			attempts = append(attempts, k.Attempt)
			if err := k.Emit(ctx, fmt.Appendf(nil, `"run %d"`, len(attempts))); err != nil {
				t.Errorf("Emit = %v", err)
			}
			time.Sleep(time.Second)
			if len(attempts) == 1 {
				return nil, &serverless.Failure{Output: []byte(`"partial"`), Text: "first"}
			}
			return k.Input, nil
		}, nil)
		ref := submitEcho(t, s, withInput(`{"keep":"me"}`))
		time.Sleep(10 * time.Minute)
		before := mustGet(t, s, ref)
		if before.Status != serverless.Failed || string(before.Output) != `"partial"` || before.Error != "first" {
			t.Fatalf("first run: %v %s %q", before.Status, before.Output, before.Error)
		}
		j, err := s.Retry(t.Context(), "alice", ref)
		if err != nil || j.Status != serverless.InQueue || j.ID != ref.ID || j.Output != nil || j.Error != "" || j.Worker != "" {
			t.Fatalf("Retry = %+v, %v, want IN_QUEUE without output, error and worker", j, err)
		}
		if j.Expires != before.Expires {
			t.Errorf("retry moved the expiry by %d ms", j.Expires-before.Expires)
		}
		time.Sleep(2 * time.Second)
		if got := read(t, s, ref, serverless.StreamQuery{}); got != `IN_PROGRESS {"output":"run 2"}` {
			t.Errorf("stream = %s, want only the chunks of the second run", got)
		}
		if got, want := string(show(t, s, ref)), `{"delayTime":0,"executionTime":1000,"id":"`+string(ref.ID)+`","output":{"keep":"me"},"status":"COMPLETED","workerId":"local-echo"}`; got != want {
			t.Errorf("job = %s\nwant  %s", got, want)
		}
		if !slices.Equal(attempts, []int{1, 1}) {
			t.Errorf("attempts are %v, want the count to start anew", attempts)
		}
	})
}

func TestRetriedJobGoesToTheEndOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		first := submitEcho(t, s)
		takeOne(t, s, "w")
		if err := s.Report(t.Context(), queue.Op{Ref: first, Kind: queue.OpFinish, Worker: "w", Status: serverless.Failed, Error: "no"}); err != nil {
			t.Fatal(err)
		}
		second := submitEcho(t, s)
		if _, err := s.Retry(t.Context(), "alice", first); err != nil {
			t.Fatal(err)
		}
		for _, want := range []serverless.Ref{second, first} {
			if j := takeOne(t, s, "w"); j.Ref != want {
				t.Fatalf("took %s, want %s: a retried job is behind those that wait", j.ID, want.ID)
			}
		}
	})
}

func TestAnotherUsersJobIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submitEcho(t, s)
		ctx, before := t.Context(), mustGet(t, s, ref)
		for _, who := range []string{"bob", "", serverless.AllOwners, "Alice"} {
			for name, call := range map[string]func() error{
				"Get":        func() error { _, err := s.Get(ctx, who, ref); return err },
				"Wait":       func() error { _, err := s.Wait(ctx, who, ref, time.Minute); return err },
				"SetTTL":     func() error { _, err := s.SetTTL(ctx, who, ref, time.Minute); return err },
				"Cancel":     func() error { _, err := s.Cancel(ctx, who, ref); return err },
				"Retry":      func() error { _, err := s.Retry(ctx, who, ref); return err },
				"Deliveries": func() error { _, err := s.Deliveries(ctx, who, ref); return err },
				"Redeliver":  func() error { _, err := s.Redeliver(ctx, who, ref); return err },
				"Stream": func() error {
					return s.Stream(ctx, who, ref, serverless.StreamQuery{}, func(serverless.StreamPart) error {
						t.Error("a part was written")
						return nil
					})
				},
			} {
				begin := time.Now()
				if err := call(); !errors.Is(err, serverless.ErrNotFound) || time.Since(begin) != 0 {
					t.Errorf("%s by %q = %v after %v, want ErrNotFound at once", name, who, err, time.Since(begin))
				}
			}
			n, err := s.Purge(ctx, "bob", "echo")
			if n != 0 || err != nil {
				t.Errorf("Purge by another user = %d, %v", n, err)
			}
		}
		if diff := cmp.Diff(before, mustGet(t, s, ref)); diff != "" {
			t.Errorf("job after another user's calls (-before +after):\n%s", diff)
		}
		elsewhere := serverless.Ref{Endpoint: "other", ID: ref.ID}
		if _, err := s.Get(ctx, "alice", elsewhere); !errors.Is(err, serverless.ErrNoEndpoint) {
			t.Errorf("Get by another endpoint = %v, want ErrNoEndpoint", err)
		}
	})
}
