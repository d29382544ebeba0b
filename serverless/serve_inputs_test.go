package serverless_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// An inputWorld has workers of the endpoint "e" in a bubble, whose jobs take a minute each, and a pool for
// their inputs.
type inputWorld struct {
	*serverless.Service
	t         *testing.T
	pool      *budget.Pool
	runs      map[string]*atomic.Int64 // now, by owner: the beginning of an input
	ran, most atomic.Int64             // in all, and at once
}

func inputBubble(t *testing.T, each, all int64, f func(w *inputWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		eps := memory.NewEndpoints()
		if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "e", Name: "e"}); err != nil {
			t.Fatal(err)
		}
		w := &inputWorld{t: t, pool: budget.NewPool(all, func(string) int64 { return each }), runs: map[string]*atomic.Int64{"rude": {}, "other": {}}}
		w.Service = serverless.New(memory.NewJobs(), eps, &serverless.Options{Inputs: w.pool.Hold})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = w.Run(ctx) }()
		f(w)
		cancel()
		synctest.Wait()
	})
}

// serve starts a worker with so many slots.
func (w *inputWorld) serve(id serverless.WorkerID, slots int) {
	go func() {
		_ = w.Serve(w.t.Context(), "e", serverless.WorkerFunc(func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			owner, _, _ := strings.Cut(strings.TrimPrefix(string(k.Input), `{"owner":"`), `"`)
			n := w.runs[owner]
			w.most.Store(max(w.most.Load(), n.Add(1)))
			defer n.Add(-1)
			w.ran.Add(1)
			select {
			case <-time.After(time.Minute):
				return []byte("1"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}), &serverless.ServeOptions{ID: id, Concurrency: slots, Drain: -1})
	}()
	synctest.Wait()
}

const megabyte = 1 << 20

// submit submits jobs with so many bytes, one after another, so that no worker gets two in one claim.
func (w *inputWorld) submit(owner string, jobs, size int) (refs []serverless.Ref) {
	w.t.Helper()
	for range jobs {
		input := fmt.Sprintf(`{"owner":%q,"pad":"%s"}`, owner, strings.Repeat("x", size-30))
		j, err := w.Submit(w.t.Context(), owner, "e", serverless.Request{Input: []byte(input)})
		if err != nil {
			w.t.Fatal(err)
		}
		refs = append(refs, j.Ref)
		synctest.Wait()
	}
	return refs
}

func (w *inputWorld) wantRuns(when, owner string, want int64) {
	w.t.Helper()
	if got := w.runs[owner].Load(); got != want {
		w.t.Errorf("%s %d jobs of %s run, want %d", when, got, owner, want)
	}
}

func TestJobsWaitForRoomForTheirInputs(t *testing.T) {
	inputBubble(t, 4*megabyte, 0, func(w *inputWorld) {
		w.serve("local-w", 64)
		refs := w.submit("rude", 20, megabyte-1)
		w.wantRuns("at first, one of them beyond the limit", "rude", 5)
		w.submit("other", 3, megabyte-1)
		w.wantRuns("beside them", "other", 3)
		w.submit("rude", 3, 1000)
		w.wantRuns("with small ones", "rude", 8)
		if of, _, _ := w.pool.InUse("rude"); of > 5*megabyte {
			t.Errorf("%d bytes are held, want at most 4 MB and one input", of)
		}
		time.Sleep(6 * time.Minute)
		for _, ref := range refs {
			if j, err := w.Get(t.Context(), "rude", ref); err != nil || j.Status != serverless.Completed || j.Deliveries != 1 {
				t.Errorf("a job is %v after %d deliveries, %v, want COMPLETED after 1", j.Status, j.Deliveries, err)
			}
		}
		if n := w.most.Load(); n > 8 {
			t.Errorf("%d jobs have run at once, want at most 5 and 3 small ones", n)
		}
		if _, all, waiting := w.pool.InUse(""); all != 0 || waiting != 0 {
			t.Errorf("at the end %d bytes are held, and %d jobs wait", all, waiting)
		}
	})
}

func TestEachWorkerRunsOneJobWhateverItsInput(t *testing.T) {
	inputBubble(t, megabyte/2, megabyte, func(w *inputWorld) {
		w.serve("local-a", 8)
		w.serve("local-b", 8)
		w.submit("rude", 6, megabyte)
		w.wantRuns("at first", "rude", 2)
		time.Sleep(61 * time.Second)
		if n := w.runs["rude"].Load(); n < 2 || n > 3 {
			t.Errorf("when these have ended %d jobs run, want one of each worker, and perhaps one for which there is room", n)
		}
		time.Sleep(3 * time.Minute)
		if n := w.ran.Load(); n < 6 {
			t.Errorf("%d jobs have run, want 6", n)
		}
		w.wantRuns("at the end", "rude", 0)
	})
}

func TestAJobThatWaitsForRoomDoesNotTimeOut(t *testing.T) {
	inputBubble(t, megabyte, 0, func(w *inputWorld) {
		w.serve("local-w", 8)
		w.submit("rude", 3, megabyte-1)
		time.Sleep(time.Second)
		input := fmt.Sprintf(`{"owner":"other","pad":"%s"}`, strings.Repeat("x", megabyte/2))
		j, err := w.Submit(t.Context(), "rude", "e", serverless.Request{Input: []byte(input), Policy: serverless.Policy{ExecutionTimeout: new(70 * time.Second)}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		got, err := w.Get(t.Context(), "rude", j.Ref)
		if err != nil || got.Status != serverless.Completed || got.Deliveries != 1 || got.DelayTime() < 59*time.Second {
			t.Errorf("the job is %v after %d deliveries and %v in the queue, %v, want COMPLETED after 1, when another one has ended", got.Status, got.Deliveries, got.DelayTime(), err)
		}
	})
}

// A job that its worker has not begun for want of room has kept nobody from running, so it stays in front.
func TestAJobThatWaitsForRoomKeepsItsTurn(t *testing.T) {
	inputBubble(t, megabyte, 0, func(w *inputWorld) {
		w.serve("local-w", 1)
		w.submit("rude", 1, megabyte-1)
		refs := w.submit("rude", 2, 2*megabyte) // one of them runs in any case
		runs := 0
		for range queue.MaxReleases {
			ctx, cancel := context.WithCancel(w.t.Context())
			over := make(chan struct{})
			go func() {
				defer close(over)
				_ = w.Serve(ctx, "e", serverless.WorkerFunc(func(ctx context.Context, _ *serverless.Task) ([]byte, error) {
					runs++
					<-ctx.Done()
					return nil, ctx.Err()
				}), &serverless.ServeOptions{Concurrency: 2, Drain: -1})
			}()
			synctest.Wait()
			cancel()
			<-over
		}
		releases := 0
		for _, ref := range refs {
			j, err := w.Get(w.t.Context(), "rude", ref)
			if err != nil || j.Status != serverless.InQueue {
				t.Errorf("a job is %v, %v, want IN_QUEUE", j.Status, err)
			}
			releases += int(j.Releases)
		}
		if runs != queue.MaxReleases || releases != runs {
			t.Errorf("%d runs began and %d releases were counted, want %d of both", runs, releases, queue.MaxReleases)
		}
	})
}

func TestAJobThatWaitsForRoomCanBeCancelled(t *testing.T) {
	inputBubble(t, megabyte, 0, func(w *inputWorld) {
		w.serve("local-w", 8)
		refs := w.submit("rude", 3, megabyte-1)
		w.wantRuns("at first", "rude", 2)
		for _, ref := range refs {
			if _, err := w.Cancel(t.Context(), "rude", ref); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		w.wantRuns("after all were cancelled", "rude", 0)
		if _, all, waiting := w.pool.InUse(""); all != 0 || waiting != 0 {
			t.Errorf("%d bytes are held, and %d jobs wait", all, waiting)
		}
		w.submit("rude", 1, megabyte-1)
		w.wantRuns("then", "rude", 1)
	})
}

func TestAJobWhoseWorkerIgnoresItsEndDoesNotKeepOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eps := memory.NewEndpoints()
		if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "e", Name: "e"}); err != nil {
			t.Fatal(err)
		}
		pool := budget.NewPool(megabyte/2, nil)
		w := &inputWorld{t: t, pool: pool, Service: serverless.New(memory.NewJobs(), eps, &serverless.Options{Inputs: pool.Hold})}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = w.Run(ctx) }()
		free := make(chan struct{})
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = w.Serve(ctx, "e", serverless.WorkerFunc(func(_ context.Context, k *serverless.Task) ([]byte, error) {
				if strings.HasPrefix(string(k.Input), `{"owner":"rude"`) {
					<-free
				}
				return []byte("1"), nil
			}), &serverless.ServeOptions{Drain: -1})
		}()
		stuck := w.submit("rude", 2, megabyte)
		for _, ref := range stuck {
			time.Sleep(time.Second)
			if _, err := w.Cancel(t.Context(), "rude", ref); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		ref := w.submit("other", 1, megabyte)[0]
		time.Sleep(time.Minute)
		if j, err := w.Get(t.Context(), "other", ref); err != nil || j.Status != serverless.Completed {
			t.Errorf("beside a job that was cancelled and does not end, another one is %v, %v, want COMPLETED", j.Status, err)
		}
		close(free)
		synctest.Wait()
		for _, owner := range []string{"rude", "other"} {
			if of, _, waiting := pool.InUse(owner); of != 0 || waiting != 0 {
				t.Errorf("at the end %d bytes of %s are held, and %d jobs wait", of, owner, waiting)
			}
		}
		cancel()
		<-served
	})
}
