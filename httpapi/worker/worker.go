package worker

import (
	"context"
	"crypto/rand"
	"encoding/json"
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

// Run takes jobs and runs them with w until ctx ends or the service refuses the key. After
// ctx has ended it takes no more jobs, running jobs have Options.Drain to end, and Run
// returns nil. If the service cannot be reached, Run tries again, with pauses from half a
// second up to 30 s.
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
		t.MaxIdleConnsPerHost, t.MaxResponseHeaderBytes = o.Concurrency+4, 64<<10
		o.Client = &http.Client{Transport: t}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

type runner struct {
	Options
	w serverless.Worker

	mu      sync.Mutex
	running map[string]*run
	freed   chan struct{} // signalled when a job ends
	jobs    sync.WaitGroup
}

// A run is one running job.
type run struct {
	job     job
	cancel  context.CancelCauseFunc
	refused error // a chunk that was not sent: without it the result is not whole; the mutex of the runner guards it
}

// run takes jobs. At the same time it waits for stop notices and reports the running jobs.
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

// take takes jobs until ctx ends. Running jobs continue with the context jobs.
func (r *runner) take(ctx, jobs context.Context) error {
	wait := backoff{}
	for {
		free := r.waitForSlot(ctx)
		if free == 0 {
			return nil
		}
		got, err := r.takeJobs(ctx, free)
		switch {
		case ctx.Err() != nil: // the result of the request does not matter
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

// waitForSlot waits for a free slot and returns the number of free slots, or 0 if ctx has
// ended.
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
	ctx, cancel := context.WithCancelCause(serverless.ContextWithTrace(ctx, j.trace))
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
		if refused := r.refusedOf(one); refused != nil {
			err = refused
		}
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

// work calls the worker. It turns a panic into an error.
func (r *runner) work(ctx context.Context, one *run) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Logger.Error("worker panicked", "job", one.job.ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the worker panicked: %v", p)
		}
	}()
	emit := func(ctx context.Context, k queue.OpKind, b []byte) error {
		err := r.emit(ctx, one.job.ID, k, b)
		switch {
		case errors.Is(err, serverless.ErrLeaseLost), errors.Is(err, serverless.ErrStreamFull):
			one.cancel(err) // the job is over
		case k == queue.OpChunk && errors.Is(err, errChunk):
			r.mu.Lock()
			one.refused = err
			r.mu.Unlock()
		}
		return err
	}
	task := serverless.NewTask(serverless.JobID(one.job.ID), one.job.Input, one.job.extra(), one.job.attempt, emit)
	if r.Lines != nil {
		task.OnLog(func(text string) { r.print(one.job.ID, text) })
	}
	return r.w.Work(ctx, task)
}

// print writes a line of a job as the SDK prints it.
func (r *runner) print(job, text string) {
	b, err := json.Marshal(struct {
		RequestID string `json:"requestId"`
		Message   string `json:"message"`
		Level     string `json:"level"`
	}{job, text, "INFO"})
	if err != nil {
		return // three texts are always JSON
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.Lines.Write(append(b, '\n')); err != nil {
		r.Logger.Warn("a line of a job was not written", "job", job, "err", err)
	}
}

func (r *runner) refusedOf(one *run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return one.refused
}

// drain waits for running jobs, and cancels those that take too long.
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

// stopJob cancels a job at the request of the service.
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

// A backoff grows from half a second to 30 s.
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
