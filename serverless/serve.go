package serverless

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// ServeOptions are the settings of an in-process worker. The zero value, and nil, work.
type ServeOptions struct {
	// ID names the worker. Default: "local-" and the endpoint.
	ID WorkerID
	// Concurrency is how many jobs run at once. Default 1.
	Concurrency int
	// Drain is how long running jobs may go on when ctx has ended; then their contexts
	// end and they are handed back unharmed. Default 10 s.
	Drain time.Duration
}

// stuck is how long a worker may go on with a job after it was told to stop; then its
// place is given to another job.
const stuck = 10 * time.Second

// Serve runs the jobs of an endpoint with w, in this process, until ctx ends, and returns
// when they have ended or were handed back. It returns nil then, and otherwise the error
// that keeps it from starting: no such endpoint, or one that a worker of this id serves
// already.
func (s *Service) Serve(ctx context.Context, endpoint string, w Worker, opts *ServeOptions) error {
	o := ServeOptions{}
	if opts != nil {
		o = *opts
	}
	if o.ID == "" {
		o.ID = WorkerID("local-" + endpoint)
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 1
	}
	if o.Drain == 0 {
		o.Drain = 10 * time.Second
	}
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return fmt.Errorf("serverless: serve %q: %w", endpoint, err)
	}
	m, _ := s.crew.join(endpoint, o.ID, s.now(), 0)
	if !s.crew.localize(m, o.Concurrency) {
		return fmt.Errorf("serverless: serve %q: the worker id %q is taken", endpoint, o.ID)
	}
	l := &loop{s: s, m: m, w: w, log: o, free: o.Concurrency, freed: make(chan struct{}, 1), hands: make(chan func()), over: make(chan struct{})}
	defer close(l.over)
	s.rouse(endpoint)
	l.take(ctx)
	l.drain(ctx, o.Drain)
	s.crew.leave(m)
	s.rouse(endpoint)
	l.stops.Wait()
	return nil
}

// A loop takes jobs for one in-process worker and runs each in a goroutine.
type loop struct {
	s   *Service
	m   *member
	w   Worker
	log ServeOptions

	hands chan func()   // to goroutines that are done with a job
	over  chan struct{} // closed when they are not needed any more

	mu    sync.Mutex
	free  int
	freed chan struct{} // signalled when free grows
	live  map[*run]bool // by run: a job that is retried may come back before its last run is over
	stops sync.WaitGroup
}

// A run is one job under way.
type run struct {
	job    Job
	cancel context.CancelCauseFunc
	once   sync.Once // gives the slot back
}

// take starts jobs until ctx ends.
func (l *loop) take(ctx context.Context) {
	for {
		n := l.await(ctx)
		if n == 0 {
			return
		}
		jobs, err := l.s.take(ctx, l.m, n)
		if err != nil {
			l.s.log.Error("take failed", "endpoint", l.m.endpoint, "err", err)
			l.s.pause(ctx)
			continue
		}
		for i := range jobs {
			l.start(ctx, jobs[i])
		}
	}
}

// await waits for a free slot and says how many there are; 0 when ctx has ended.
func (l *loop) await(ctx context.Context) int {
	for ctx.Err() == nil {
		l.mu.Lock()
		n := l.free
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
	r := &run{job: j}
	ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.mu.Lock()
	l.free--
	if l.live == nil {
		l.live = map[*run]bool{}
	}
	l.live[r] = true
	l.mu.Unlock()
	l.hand(func() { l.run(ctx, r) })
	stop := func() { l.stop(r, l.s.why(ctx, r.job.Ref)) } // of j it would keep a copy
	if !l.s.crew.attach(l.m, j.ID, func() { l.stops.Go(stop) }) {
		stop() // it was to stop between the claim and now
	}
}

// hand runs f in a goroutine. One that has run a job before has its stack already: growing
// it takes longer than a short job does.
func (l *loop) hand(f func()) {
	select {
	case l.hands <- f:
		return
	default:
	}
	go func() {
		for {
			f()
			select {
			case f = <-l.hands:
			case <-l.over:
				return
			}
		}
	}()
}

// stop ends the job's context. A worker that does not care loses its slot after a while:
// a goroutine cannot be killed, but others need not wait for it.
func (l *loop) stop(r *run, cause error) {
	r.cancel(cause)
	l.s.clock.AfterFunc(l.s.clock.Now().Add(stuck), func() { l.release(r, true) })
}

func (l *loop) release(r *run, late bool) {
	r.once.Do(func() {
		if late {
			l.s.log.Warn("a worker goes on with a job it was told to stop", "endpoint", l.m.endpoint, "job", r.job.ID)
		}
		l.mu.Lock()
		l.free++
		delete(l.live, r)
		l.mu.Unlock()
		signal(l.freed)
	})
}

func (l *loop) run(ctx context.Context, r *run) {
	defer l.release(r, false)
	defer r.cancel(context.Canceled)
	t := &Task{ID: r.job.ID, Input: r.job.Input, Extra: r.job.Extra, Attempt: int(r.job.Deliveries)}
	t.emit = func(given context.Context, k OpKind, b []byte) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return l.emit(given, r, k, b)
	}
	end := Op{Status: Failed, Error: "the worker's goroutine ended without a result"}
	defer func() { // deferred because a worker can end the goroutine
		if ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrDraining) {
			return // stopped: nobody waits for the result
		}
		l.report(ctx, l.finish(ctx, r, end))
	}()
	end = l.work(ctx, t)
}

// work calls the worker and returns its result as Status, Payload and Error. A panic, be it
// of the error that is asked for its text, is a failure.
func (l *loop) work(ctx context.Context, t *Task) (end Op) {
	defer func() {
		if p := recover(); p != nil {
			l.s.log.Error("worker panicked", "endpoint", l.m.endpoint, "job", t.ID, "panic", p, "stack", string(debug.Stack()))
			end = Op{Status: Failed, Error: fmt.Sprintf("the worker panicked: %v", p)}
		}
	}()
	out, err := l.w.Work(ctx, t)
	if err == nil {
		return Op{Status: Completed, Payload: out}
	}
	end = Op{Status: Failed, Error: err.Error()}
	if f := (*Failure)(nil); errors.As(err, &f) {
		end.Payload = f.Output
	}
	return end
}

// emit sends a chunk or progress.
func (l *loop) emit(ctx context.Context, r *run, k OpKind, b []byte) error {
	if !json.Valid(b) {
		return errors.New("serverless: a chunk or progress value must be JSON")
	}
	op := l.op(r, k, b)
	op.Adopt, op.Until = true, l.s.now().Add(l.s.local)
	if k == OpChunk {
		op.Payload = appendItem(b)
		return l.s.addChunk(ctx, op)
	}
	_, err := l.s.apply(ctx, op)
	return err
}

func (l *loop) op(r *run, k OpKind, b []byte) Op {
	return Op{Ref: r.job.Ref, Kind: k, Worker: l.m.id, Token: r.job.Token, Payload: b}
}

// finish makes the op of a worker's result. What fails because the worker is stopping goes
// back to the queue.
func (l *loop) finish(ctx context.Context, r *run, end Op) Op {
	if end.Status == Failed && errors.Is(context.Cause(ctx), ErrDraining) {
		return l.op(r, OpRelease, nil)
	}
	op := l.op(r, OpFinish, end.Payload)
	op.Adopt, op.Status, op.Error = true, end.Status, end.Error
	if op.Payload != nil && !json.Valid(op.Payload) {
		op.Status, op.Payload = Failed, nil
		op.Error = "the worker's output is not JSON"
	}
	return op
}

// report repeats itself while the store fails: the result is not to be lost, and a
// repeat of what had happened is answered with ErrLeaseLost.
func (l *loop) report(ctx context.Context, op Op) {
	for {
		err := l.s.Report(context.WithoutCancel(ctx), op)
		switch {
		case err == nil, errors.Is(err, ErrLeaseLost), errors.Is(err, ErrNotFound), errors.Is(err, ErrStatus):
			return
		}
		l.s.log.Error("report failed", "endpoint", l.m.endpoint, "job", op.ID, "err", err)
		if !l.s.pause(ctx) {
			return
		}
	}
}

// drain waits for the jobs under way, then hands them back.
func (l *loop) drain(ctx context.Context, d time.Duration) {
	over := make(chan struct{})
	stop := l.s.clock.AfterFunc(l.s.clock.Now().Add(d), func() { close(over) })
	defer stop()
	for {
		l.mu.Lock()
		n := len(l.live)
		l.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-l.freed:
		case <-over:
			over = nil
			l.handBack(context.WithoutCancel(ctx))
		}
	}
}

// handBack ends what still runs and returns the jobs to the queue.
func (l *loop) handBack(ctx context.Context) {
	l.mu.Lock()
	var rs []*run
	for r := range l.live {
		rs = append(rs, r)
	}
	l.mu.Unlock()
	for _, r := range rs {
		l.stop(r, ErrDraining)
		if err := l.s.Report(ctx, Op{Ref: r.job.Ref, Kind: OpRelease, Worker: l.m.id, Token: r.job.Token}); err != nil {
			l.s.log.Warn("hand back failed", "endpoint", l.m.endpoint, "job", r.job.ID, "err", err)
		}
	}
}

// pause waits a second by the service's clock; false when ctx ended first.
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
