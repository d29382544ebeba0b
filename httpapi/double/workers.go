package double

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// A localWorker is a worker of this process. When it dies by a fault, it is replaced.
type localWorker struct {
	endpoint    string
	worker      serverless.Worker
	concurrency int
	requests    http.Handler // of a load-balancing endpoint; nil: it has a queue
}

// join makes an endpoint if there is none, and starts serving it.
func (w *instance) join(ctx context.Context, l *localWorker) error {
	if err := endpoints.CheckID(l.endpoint); err != nil {
		return fmt.Errorf("double: endpoint %q: %w", l.endpoint, err)
	}
	if l.requests != nil {
		return w.joinBalanced(ctx, l)
	}
	if err := w.endpoint(ctx, l.endpoint); err != nil {
		return err
	}
	// It counts as busy from now on, although its goroutine has not begun.
	w.act.addLocal(l, 1, nil)
	w.start(func(ctx context.Context) { w.serveLocal(ctx, l) })
	return nil
}

// start runs f in a goroutine that ends with the instance.
func (w *instance) start(f func(ctx context.Context)) {
	w.mu.Lock()
	w.starts = append(w.starts, f)
	w.mu.Unlock()
	select {
	case w.changes <- struct{}{}:
	default:
	}
}

// endpoint makes a shared endpoint, unless there is one.
func (w *instance) endpoint(ctx context.Context, id string) error {
	if err := w.services.Jobs.EnsureEndpoint(ctx, id); err != nil {
		return fmt.Errorf("double: %w", err)
	}
	return nil
}

// serveLocal serves an endpoint, one worker after another.
func (w *instance) serveLocal(ctx context.Context, l *localWorker) {
	ended := make(chan struct{}, 1)
	lives := 0
	for n := 1; ctx.Err() == nil; n++ {
		life, end := context.WithCancel(ctx)
		s := w.act.addLocal(l, n, end)
		lives++
		go func() {
			// At the end it gives its jobs back at once: the clock stands still, so a wait
			// would never end.
			err := w.services.Jobs.Serve(life, l.endpoint, &trackedWorker{l.worker, w, s}, &serverless.ServeOptions{
				ID: s.worker, Concurrency: l.concurrency, Drain: -1,
			})
			if err != nil {
				end()
			}
			w.act.removeWorker(s)
			ended <- struct{}{}
		}()
		<-life.Done()
		end()
		w.act.removeDead(s)
	}
	for range lives {
		<-ended
	}
}

// workerID returns the id of the n-th worker of an endpoint.
func workerID(endpoint string, n int) serverless.WorkerID {
	id := "local-" + endpoint
	if n > 1 {
		id += "-" + strconv.Itoa(n)
	}
	return serverless.WorkerID(id)
}

// removeDead removes a dead worker, so that the clock does not wait for it.
func (a *activity) removeDead(s *workerState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.capacity = 0
	a.changed()
}

// A trackedWorker reports to activity when it works and when it is at rest.
type trackedWorker struct {
	serverless.Worker
	instance *instance
	state    *workerState
}

// A task is the value in the context of a worker. rest notes whether it waits by the clock.
type task struct {
	instance *instance
	rest     func(yes bool)
}

type taskKey struct{}

// Work runs the job.
func (x *trackedWorker) Work(ctx context.Context, t *serverless.Task) ([]byte, error) {
	r := x.instance.act.runOf(runKey{serverless.Ref{Endpoint: x.state.endpoint, ID: t.ID}, x.state.worker})
	if r == nil {
		return x.Worker.Work(ctx, t)
	}
	// The serving loop ends ctx after the report. It does not report a stopped job.
	defer context.AfterFunc(ctx, func() { x.instance.act.forget(r) }) //nolint:staticcheck // it is to begin at the end
	rest := func(yes bool) { x.instance.act.setResting(r, yes) }
	return x.Worker.Work(context.WithValue(ctx, taskKey{}, &task{x.instance, rest}), t)
}

func (a *activity) runOf(k runKey) *run {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs[k]
}

func (a *activity) forget(r *run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(r)
}

// sleep waits by the clock, which can move meanwhile if a worker of the double calls it.
func (w *instance) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t, _ := ctx.Value(taskKey{}).(*task)
	over := make(chan struct{})
	wake := func() { close(over) }
	if t != nil {
		wake = func() {
			w.schedule(func(context.Context) {
				t.rest(false) // before the clock goes on
				close(over)
			})
		}
	}
	stop := w.clock.AfterFunc(w.clock.Now().Add(d), wake)
	defer stop()
	if t != nil {
		t.rest(true)
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hang waits until the job is stopped.
func hang(ctx context.Context) {
	if t, _ := ctx.Value(taskKey{}).(*task); t != nil {
		t.rest(true)
	}
	<-ctx.Done()
}
