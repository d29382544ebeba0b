package serverless

import (
	"context"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

const (
	// smallPayload is how many bytes of an input, an output or a chunk count for nothing.
	smallPayload = 64 << 10
	// inputWait is how long a job waits for room until its run is said to begin anew: its execution
	// timeout must not end it meanwhile.
	inputWait = 30 * time.Second
)

// inputs says which jobs of a loop have room for their payloads. The mutex of the loop guards it.
type inputs struct {
	held    int // jobs that have it, without those whose slot was given to another job
	waiting []*inputWaiter
}

// An inputWaiter is a job that waits for room.
type inputWaiter struct {
	input, output int64              // bytes that it needs
	force         context.CancelFunc // ends the wait, so that it goes on without room
	forced        bool
}

// hold waits until there is room for the input of a job, which is not kept in memory meanwhile, and for
// its output. One job of the worker always goes on, whether there is room or not. hold returns false for
// a job that must not run.
func (l *loop) hold(ctx context.Context, r *run) bool {
	input := int64(len(r.job.Input))
	if input > smallPayload && l.s.inputs != nil {
		r.input = l.s.inputs(r.job.Owner)
	}
	l.mu.Lock()
	output := l.expects(r)
	if fits := r.input.Try(input) && (output == 0 || r.output.Try(output)); fits || l.inputs.held == 0 {
		l.inputs.held++
		r.holds = true
		l.mu.Unlock()
		if !fits {
			r.goesOn(input, output)
		}
		if output > 0 {
			l.endReserve(r)
		}
		return true
	}
	w := &inputWaiter{input: input, output: output}
	ctx, w.force = context.WithCancel(ctx)
	defer w.force()
	l.inputs.waiting = append(l.inputs.waiting, w)
	l.mu.Unlock()
	r.job.Input = nil
	err := l.awaitRoom(ctx, r, w)
	if !l.gotRoom(r, w, err) || l.begin(ctx, r) != nil {
		return false
	}
	l.endReserve(r)
	j, err := l.s.queue.Get(context.WithoutCancel(ctx), l.s.now(), r.job.Ref)
	r.job.Input = j.Input
	return err == nil && len(j.Input) > 0
}

// reach reports whether a job reaches the worker, which is not so if the worker ends.
func (l *loop) reach(ctx context.Context, r *run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.began = ctx.Err() == nil
	return r.began
}

// goesOn has a job take what it needs, whether there is room or not.
func (r *run) goesOn(input, output int64) {
	r.input.Force(input - r.input.Size())
	r.output.Force(output - r.output.Size())
}

// awaitRoom waits for room until ctx ends. What is being stored leaves sooner than what runs, so the job
// waits for the room of its output last.
func (l *loop) awaitRoom(ctx context.Context, r *run, w *inputWaiter) error {
	for {
		now := l.s.clock.Now()
		part, stop := clock.WithDeadline(ctx, l.s.clock, now.Add(min(inputWait, r.job.ExecTimeout/2)))
		err := grow(part, &r.input, w.input)
		if err == nil {
			err = grow(part, &r.output, w.output)
		}
		stop()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := l.begin(ctx, r); err != nil {
			return err
		}
	}
}

// grow waits until h has n. The first byte is for the turn: a hold that has something may go on beyond
// the limit, so a job that is larger than that runs, too.
func grow(ctx context.Context, h *budget.Hold, n int64) error {
	for _, more := range [...]int64{min(n, 1) - h.Size(), n - max(h.Size(), 1)} {
		if more > 0 {
			if err := h.Grow(ctx, more); err != nil {
				return err
			}
		}
	}
	return nil
}

// gotRoom ends a wait with an error or without, and reports whether the job goes on.
func (l *loop) gotRoom(r *run, w *inputWaiter, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.forced {
		r.goesOn(w.input, w.output)
		r.holds = true
		return true
	}
	l.inputs.waiting = slices.DeleteFunc(l.inputs.waiting, func(o *inputWaiter) bool { return o == w })
	if err != nil {
		r.input.Release()
		r.output.Release()
		return false
	}
	l.inputs.held++
	r.holds = true
	return true
}

// begin has the run of a job begin now, not when it was claimed.
func (l *loop) begin(ctx context.Context, r *run) error {
	op := l.op(r, queue.OpRenew, nil)
	op.Begins, op.Until = true, l.s.now().Add(l.s.localLease)
	_, err := l.s.apply(context.WithoutCancel(ctx), op)
	return err
}

// letGo gives back the room of a job.
func (l *loop) letGo(r *run) {
	r.input.Release()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncount(r)
	l.pass(r)
}

// pass ends the turn of a job, which may keep its room. If no other one of the worker has a turn, the
// first that waits goes on. The caller holds mu.
func (l *loop) pass(r *run) {
	if !r.holds {
		return
	}
	r.holds = false
	if l.inputs.held--; l.inputs.held > 0 || len(l.inputs.waiting) == 0 {
		return
	}
	w := l.inputs.waiting[0]
	l.inputs.waiting[0] = nil // or the array would keep it
	l.inputs.waiting = l.inputs.waiting[1:]
	l.inputs.held++
	w.forced = true
	w.force()
}
