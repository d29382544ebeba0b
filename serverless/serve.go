package serverless

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// ServeOptions are the settings of an in-process worker. The zero value and nil work.
type ServeOptions struct {
	// ID is the id of the worker. Default: LocalWorkerPrefix followed by the endpoint. With
	// Options.Server the epoch of this server is added, and over a queue.Shared without it something
	// random, so that every server can have one.
	ID WorkerID
	// Concurrency is the most jobs that run at once. Default 1. Over a queue.Shared, as many more
	// may be in progress that have run, and whose results are being stored.
	Concurrency int
	// Drain is how long running jobs may continue after ctx has ended. Then their contexts
	// end and the jobs return to the queue, without a counted delivery. Default 10 s.
	Drain time.Duration
}

// LocalWorkerPrefix begins the ids that are kept for workers of Serve.
const LocalWorkerPrefix = "local-"

// IsLocalWorker reports whether a worker is one of Serve: its id has LocalWorkerPrefix, or it
// serves the endpoint in this process now. The worker protocol is not for such a worker
// (docs/decisions.md 14). The prefix counts by itself, because a worker of Serve may start
// later, or run in another process that shares the queue.
func (s *Service) IsLocalWorker(endpoint string, id WorkerID) bool {
	return strings.HasPrefix(string(id), LocalWorkerPrefix) || s.registry.HasLocal(workers.Key{Endpoint: endpoint, ID: id})
}

// stopTimeout is how long a worker may continue a job after its context has ended. Then its
// slot is given to another job.
const stopTimeout = 10 * time.Second

// Serve runs the jobs of an endpoint with w, in this process, until ctx ends. It then drains:
// it returns nil when every running job has ended or was returned to the queue. It returns an
// error at once if the endpoint does not exist, or if a worker with this id serves it
// already. w is called concurrently if Concurrency is more than 1.
func (s *Service) Serve(ctx context.Context, endpoint string, w Worker, opts *ServeOptions) error {
	o := ServeOptions{}
	if opts != nil {
		o = *opts
	}
	if o.ID == "" {
		o.ID = WorkerID(LocalWorkerPrefix + endpoint)
	}
	o.ID = s.localID(o.ID)
	if o.Concurrency <= 0 {
		o.Concurrency = 1
	}
	if o.Drain == 0 {
		o.Drain = 10 * time.Second
	}
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return fmt.Errorf("serverless: serve %q: %w", endpoint, err)
	}
	m := s.registry.JoinLocal(endpoint, o.ID, s.now())
	if m == nil {
		return fmt.Errorf("serverless: serve %q: the worker id %q is taken", endpoint, o.ID)
	}
	l := &loop{s: s, in: m, w: w, opts: o, freed: make(chan struct{}, 1), idle: make(chan func()), done: make(chan struct{})}
	defer close(l.done)
	s.scaler.Wake(endpoint)
	l.take(ctx)
	l.drain(ctx, o.Drain)
	m.Leave()
	s.scaler.Wake(endpoint)
	l.stops.Wait()
	return nil
}

// localID makes the id of an in-process worker one that no other server has.
func (s *Service) localID(id WorkerID) WorkerID {
	if s.server == nil {
		return id + s.copy
	}
	return id + WorkerID(fmt.Sprintf("-%d", s.server.Epoch()))
}

// A loop takes jobs for one in-process worker and runs each in a goroutine.
type loop struct {
	s    *Service
	in   *workers.Worker // in the registry
	w    Worker
	opts ServeOptions

	idle chan func()   // jobs for goroutines that have finished one
	done chan struct{} // closed when those goroutines must end

	mu      sync.Mutex
	freed   chan struct{} // signalled when free grows, or running shrinks
	running map[*run]bool // by run, because a retried job may be claimed before its last run has ended
	reports int           // of those in running, whose results are being stored
	stops   sync.WaitGroup
	inputs  inputs
	outputs map[string]stored // by owner, of those whose outputs are being stored
}

// A run is one run of a job.
type run struct {
	s      *Service
	job    Job
	cancel context.CancelCauseFunc
	ended  bool                  // its result is being stored
	away   atomic.Pointer[error] // of the store, when it was last away from the worker
	input  budget.Hold           // of the bytes of its input
	output budget.Hold           // of the bytes of its output; the mutex of the loop guards it
	made   int64                 // bytes of its output, if it is large
	stop   func() bool           // stops the timer of endReserve; nil: nothing was reserved
	holds  bool                  // it has room for its payloads, or goes on without; the mutex of the loop guards it
	began  bool                  // the worker has it; the mutex of the loop guards it
	forget func() bool           // stops the timer of stop; nil: there is none; the mutex of the loop guards it
}

// take starts jobs until ctx ends.
func (l *loop) take(ctx context.Context) {
	for {
		n := l.waitForSlot(ctx)
		if n == 0 {
			return
		}
		jobs, err := l.s.take(ctx, l.in, n)
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			l.s.log.Error("take failed", "endpoint", l.in.Key().Endpoint, "err", err)
			l.s.pause(ctx)
			continue
		}
		for i := range jobs {
			l.start(ctx, jobs[i])
		}
	}
}

// waitForSlot waits for a free slot and returns the number of free slots. It returns 0 when
// ctx has ended.
func (l *loop) waitForSlot(ctx context.Context) int {
	for ctx.Err() == nil {
		l.mu.Lock()
		n := l.free()
		l.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-l.freed:
		case <-ctx.Done():
		}
	}
	return 0
}

func (l *loop) start(ctx context.Context, j Job) {
	r := &run{s: l.s, job: j}
	ctx, r.cancel = context.WithCancelCause(ContextWithTrace(context.WithoutCancel(ctx), j.Trace))
	l.mu.Lock()
	if l.running == nil {
		l.running = map[*run]bool{}
	}
	l.running[r] = true
	l.mu.Unlock()
	stop := func() { l.stop(r, l.s.stopCause(ctx, r.job.Ref)) } // r.job, because capturing j would keep a second copy
	if !l.in.OnStop(j.ID, func() { l.stops.Go(stop) }) {
		stop() // the job was stopped after the claim
	}
	l.spawn(func() { l.run(ctx, r) }) // last: OnStop knows no job that has ended
}

// line implements printer.
func (r *run) line(text string) { r.s.printed(&r.job, text) }

// spawn runs f in a goroutine. It prefers a goroutine that has run a job before: its stack is
// grown already, and growing a stack takes longer than a short job.
func (l *loop) spawn(f func()) {
	select {
	case l.idle <- f:
		return
	default:
	}
	go func() {
		for {
			f()
			f = nil // or an idle goroutine would keep the input of its last job
			select {
			case f = <-l.idle:
			case <-l.done:
				return
			}
		}
	}()
}

// stop ends the context of a job. If the worker ignores it, stop frees the slot after
// stopTimeout: a goroutine cannot be killed, but other jobs need not wait for it.
func (l *loop) stop(r *run, cause error) {
	r.cancel(cause)
	// The clock may hold its lock while it calls release, which takes ours.
	forget := l.s.clock.AfterFunc(l.s.clock.Now().Add(stopTimeout), func() { l.release(r, true) })
	l.mu.Lock()
	used := l.running[r] && r.forget == nil
	if used {
		r.forget = forget
	}
	l.mu.Unlock()
	if !used {
		forget()
	}
}

// free returns the number of free slots. Over a shared queue it takes a while to store a result, so a
// job needs no slot for that, unless there are more of such jobs than slots. The caller holds mu.
func (l *loop) free() int {
	busy := len(l.running)
	if l.s.shared {
		busy -= min(l.reports, l.opts.Concurrency)
	}
	return l.opts.Concurrency - busy
}

// release forgets a job, which frees its slot.
func (l *loop) release(r *run, late bool) {
	if forget := l.forget(r, late); forget != nil {
		forget() // or the timer would keep the input
	}
}

// forget returns what stops the timer of the job, if there is one, to be called without the lock.
func (l *loop) forget(r *run, late bool) func() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running[r] {
		return nil
	}
	if late {
		l.s.log.Warn("worker ignores the end of its context", "endpoint", l.in.Key().Endpoint, "job", r.job.ID)
		l.pass(r) // its input stays in memory
	}
	delete(l.running, r)
	if r.ended {
		l.reports--
	}
	signal(l.freed)
	return r.forget
}

// worked records that the worker has ended a job, whose result is now stored.
func (l *loop) worked(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running[r] {
		return
	}
	r.ended = true
	l.reports++
	signal(l.freed)
}

func (l *loop) run(ctx context.Context, r *run) {
	defer l.release(r, false)
	defer l.letGo(r)
	defer r.cancel(context.Canceled)
	end := queue.Op{Status: Failed, Error: "the worker's goroutine ended without a result"}
	defer func() { // deferred, because the worker may call runtime.Goexit
		l.worked(r)
		if ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrDraining) {
			return // stopped: the result is dropped
		}
		l.report(ctx, l.finish(ctx, r, end))
	}()
	if !l.hold(ctx, r) || !l.reach(ctx, r) {
		end = queue.Op{Kind: queue.OpRelease, Untouched: true}
		return
	}
	t := &Task{ID: r.job.ID, Input: r.job.Input, Extra: r.job.Extra, Attempt: r.job.Number()}
	t.emit = func(given context.Context, k queue.OpKind, b []byte) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return l.emit(given, r, k, b)
	}
	t.log = r
	end = l.work(ctx, r, t)
	l.count(r, int64(len(end.Payload)))
}

// work calls the worker and returns its result as Status, Payload and Error. A panic fails
// the job, also a panic of the Error method of the worker's error.
func (l *loop) work(ctx context.Context, r *run, t *Task) (end queue.Op) {
	defer func() {
		if p := recover(); p != nil {
			l.s.log.Error("worker panicked", "endpoint", l.in.Key().Endpoint, "job", t.ID, "panic", p, "stack", string(debug.Stack()))
			end = queue.Op{Status: Failed, Error: fmt.Sprintf("the worker panicked: %v", p)}
		}
	}()
	out, err := l.w.Work(ctx, t)
	if err == nil {
		return queue.Op{Status: Completed, Payload: out}
	}
	if away := r.away.Load(); away != nil && errors.Is(err, *away) {
		return queue.Op{Kind: queue.OpRelease}
	}
	if v := (*Verdict)(nil); errors.As(err, &v) {
		return v.end(queue.Op{Payload: out}, l.s.now())
	}
	end = queue.Op{Status: Failed, Error: err.Error()}
	if f := (*Failure)(nil); errors.As(err, &f) {
		end.Payload, end.NoRetry = f.Output, f.NoRetry
	}
	return end
}

// emit sends a chunk or a progress value to the queue.
func (l *loop) emit(ctx context.Context, r *run, k queue.OpKind, b []byte) error {
	if !json.Valid(b) {
		return l.refuse(ctx, r, k, b)
	}
	held := l.holdOutput(r, int64(len(b)))
	held.Force(int64(len(b)))
	defer held.Release()
	op := l.op(r, k, b)
	op.Adopt, op.Until = true, l.s.now().Add(l.s.localLease)
	var err error
	if k == queue.OpChunk {
		op.Payload = appendItem(b)
		err = l.s.reportChunk(ctx, op)
	} else {
		_, err = l.s.apply(ctx, op)
	}
	if problem.KindOf(err) == problem.Unavailable {
		r.away.Store(&err)
	}
	return err
}

// refuse is emit of something that is not JSON. Without a chunk the result would not be whole, so the
// job fails.
func (l *loop) refuse(ctx context.Context, r *run, k queue.OpKind, b []byte) error {
	why := "a chunk of the worker's result is not JSON: " + notJSON(b)
	if k != queue.OpChunk {
		return errors.New("serverless: a progress value must be JSON")
	}
	op := l.op(r, k, nil)
	op.Adopt = true
	if err := l.s.RefuseReport(ctx, op, why); err != nil {
		return err
	}
	return errors.New("serverless: " + why)
}

func (l *loop) op(r *run, k queue.OpKind, b []byte) queue.Op {
	return queue.Op{Ref: r.job.Ref, Kind: k, Worker: l.in.Key().ID, Token: r.job.Token, Payload: b}
}

// finish returns the op for the result of a worker. A failure while the worker drains, or
// because the store was away, releases the job instead.
func (l *loop) finish(ctx context.Context, r *run, end queue.Op) queue.Op {
	if end.Kind == queue.OpRelease || end.Status == Failed && errors.Is(context.Cause(ctx), ErrDraining) {
		op := l.op(r, queue.OpRelease, nil)
		op.Untouched = end.Untouched
		return op
	}
	op := l.op(r, queue.OpFinish, end.Payload)
	op.Adopt, op.Status, op.Error, op.NoRetry, op.Ready, op.Hold = true, end.Status, end.Error, end.NoRetry, end.Ready, end.Hold
	if op.Payload != nil && !json.Valid(op.Payload) {
		op.Status, op.Error = Failed, "the worker's result is not JSON: "+notJSON(op.Payload)
		op.Payload = nil
	}
	return op
}

// report reports a result and repeats the report while the store fails, so that no result is
// lost. A repeat of a report that had succeeded returns ErrLeaseLost.
func (l *loop) report(ctx context.Context, op queue.Op) {
	for {
		err := l.s.Report(context.WithoutCancel(ctx), op)
		switch {
		case err == nil, errors.Is(err, ErrLeaseLost), errors.Is(err, ErrNotFound), errors.Is(err, ErrStatus):
			return
		}
		l.s.log.Error("report failed", "endpoint", l.in.Key().Endpoint, "job", op.ID, "err", err)
		if !l.s.pause(ctx) {
			return
		}
	}
}

// drain waits up to d for the running jobs, then releases them.
func (l *loop) drain(ctx context.Context, d time.Duration) {
	over := make(chan struct{})
	stop := l.s.clock.AfterFunc(l.s.clock.Now().Add(d), func() { close(over) })
	defer stop()
	for {
		l.mu.Lock()
		n := len(l.running)
		l.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-l.freed:
		case <-over:
			over = nil
			l.releaseAll(context.WithoutCancel(ctx))
		}
	}
}

// releaseAll stops the running jobs and returns them to the queue.
func (l *loop) releaseAll(ctx context.Context) {
	l.mu.Lock()
	began := map[*run]bool{}
	for r := range l.running {
		r.cancel(ErrDraining) // all at once, so that none begins because another one ends
		began[r] = r.began
	}
	l.mu.Unlock()
	for r, began := range began {
		l.stop(r, ErrDraining)
		op := l.op(r, queue.OpRelease, nil)
		op.Untouched = !began
		if err := l.s.Report(ctx, op); err != nil && !errors.Is(err, ErrLeaseLost) { // the run has given it back itself
			l.s.log.Warn("hand back failed", "endpoint", l.in.Key().Endpoint, "job", r.job.ID, "err", err)
		}
	}
}

// pauseAnyway is pause, but waits no longer than a second of the system's clock: that of the service
// may stand still.
func (s *Service) pauseAnyway(ctx context.Context) bool {
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	system := clock.System{}
	defer system.AfterFunc(system.Now().Add(time.Second), cancel)()
	s.pause(short)
	return ctx.Err() == nil
}

// pause waits a second by the service's clock. It reports false when ctx ended first.
func (s *Service) pause(ctx context.Context) bool {
	over := make(chan struct{})
	defer s.clock.AfterFunc(s.clock.Now().Add(time.Second), func() { close(over) })()
	select {
	case <-over:
		return true
	case <-ctx.Done():
		return false
	}
}
