package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// Run takes jobs and runs them with w until ctx ends or the service says that the key is
// not good. When ctx has ended no more jobs are taken, and those under way have
// Options.Drain to end; it returns nil then. A service that cannot be reached is asked
// again, less and less often up to every 30 seconds.
func Run(ctx context.Context, w serverless.Worker, opts *Options) error {
	if opts == nil {
		return errors.New("worker: options are missing")
	}
	o := *opts
	if err := o.urls(); err != nil {
		return err
	}
	o.defaults()
	r := &runner{Options: o, w: w, running: map[string]*run{}, freed: make(chan struct{}, 1)}
	return r.run(ctx)
}

func (o *Options) defaults() {
	if o.ID == "" {
		o.ID = strings.ToLower(rand.Text())[:14]
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 1
	}
	if o.Ping <= 0 {
		o.Ping = 3 * time.Second
	}
	if o.Drain == 0 {
		o.Drain = 10 * time.Second
	}
	if o.Client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = o.Concurrency + 4
		o.Client = &http.Client{Transport: t}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// A runner is one worker.
type runner struct {
	Options
	w serverless.Worker

	mu      sync.Mutex
	running map[string]*run
	freed   chan struct{} // signalled when a job has ended
	jobs    sync.WaitGroup
}

// A run is one job under way.
type run struct {
	job    job
	cancel context.CancelCauseFunc
}

// run does three things beside each other: it takes jobs, hears which to stop, and says
// which it has.
func (r *runner) run(ctx context.Context) error {
	beside, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	taking, halt := context.WithCancelCause(ctx)
	defer halt(nil)
	var loops sync.WaitGroup
	loops.Go(func() { r.stopLoop(beside) })
	loops.Go(func() { r.pingLoop(beside) })
	err := r.take(taking, beside)
	r.drain()
	stop(nil)
	loops.Wait()
	return err
}

// take asks for jobs until ctx ends. Jobs run on when it has.
func (r *runner) take(ctx, jobs context.Context) error {
	wait := backoff{}
	for {
		free := r.waitForSlot(ctx)
		if free == 0 {
			return nil
		}
		got, err := r.takeJobs(ctx, free)
		switch {
		case ctx.Err() != nil: // whatever became of the request
			return nil //nolint:nilerr // it was to end
		case errors.Is(err, errKey):
			return err
		case err != nil:
			r.Logger.Warn("taking jobs failed", "endpoint", r.Endpoint, "err", err)
			wait.sleep(ctx)
			continue
		}
		wait = backoff{}
		for _, j := range got {
			r.start(jobs, j)
		}
	}
}

// waitForSlot waits for a free slot and says how many there are; 0 when ctx has ended.
func (r *runner) waitForSlot(ctx context.Context) int {
	for ctx.Err() == nil {
		r.mu.Lock()
		n := r.Concurrency - len(r.running)
		r.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-r.freed:
		case <-ctx.Done():
		}
	}
	return 0
}

func (r *runner) start(ctx context.Context, j job) {
	ctx, cancel := context.WithCancelCause(ctx)
	one := &run{job: j, cancel: cancel}
	r.mu.Lock()
	_, twice := r.running[j.ID]
	if !twice {
		r.running[j.ID] = one
	}
	r.mu.Unlock()
	if twice {
		cancel(nil)
		return
	}
	r.jobs.Go(func() {
		defer r.end(one)
		defer cancel(nil)
		out, err := r.work(ctx, one)
		if ctx.Err() == nil {
			r.report(ctx, j.ID, out, err)
		}
	})
}

func (r *runner) end(one *run) {
	r.mu.Lock()
	delete(r.running, one.job.ID)
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// work calls the worker and turns a panic into an error.
func (r *runner) work(ctx context.Context, one *run) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Logger.Error("worker panicked", "job", one.job.ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the worker panicked: %v", p)
		}
	}()
	emit := func(ctx context.Context, k queue.OpKind, b []byte) error {
		err := r.emit(ctx, one.job.ID, k, b)
		if errors.Is(err, serverless.ErrLeaseLost) {
			one.cancel(err)
		}
		return err
	}
	return r.w.Work(ctx, serverless.NewTask(serverless.JobID(one.job.ID), one.job.Input, one.job.extra(), 1, emit))
}

// drain waits for the jobs under way, and ends those that take too long.
func (r *runner) drain() {
	done := make(chan struct{})
	go func() { r.jobs.Wait(); close(done) }()
	over := time.NewTimer(r.Drain)
	defer over.Stop()
	select {
	case <-done:
		return
	case <-over.C:
	}
	r.mu.Lock()
	for _, one := range r.running {
		one.cancel(serverless.ErrDraining)
	}
	r.mu.Unlock()
	<-done
}

// stopJob stops a job that the service does not want any more.
func (r *runner) stopJob(id string) {
	r.mu.Lock()
	one := r.running[id]
	r.mu.Unlock()
	if one != nil {
		one.cancel(serverless.ErrCancelled)
	}
}

func (r *runner) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, 0, len(r.running))
	for id := range r.running {
		ids = append(ids, id)
	}
	return ids
}

// A backoff grows from half a second to 30.
type backoff struct{ d time.Duration }

func (p *backoff) sleep(ctx context.Context) {
	p.d = min(max(2*p.d, 500*time.Millisecond), 30*time.Second)
	t := time.NewTimer(p.d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
