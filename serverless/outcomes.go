package serverless

import (
	"context"
	"log/slog"
	"sync"

	"github.com/podyard/podyard/serverless/queue"
)

// Outcomes are told how attempts and jobs have ended. They are called after the commit, one after the
// other, on the server that has made the move: once for each end on all servers together, and never for
// one that a crash of this server comes before. A webhook has that, too. The calls of the others wait
// meanwhile, and Run returns after the last one. ctx does not end with Run.
type Outcomes struct {
	// AttemptFailed gets each attempt that has failed or run too long. If a.Last is set, the job has
	// ended with it; else another attempt follows at j.Queued. Nil: nobody is told.
	AttemptFailed func(ctx context.Context, j Job, a queue.JobAttempt)
	// JobEnded gets each job that has ended, with j.Status, j.Output and j.ErrorText(). A job whose
	// ttl has passed before is none. Nil: nobody is told.
	JobEnded func(ctx context.Context, j Job)
	// Unlogged keeps failures out of Options.Logger, where an attempt that has failed is a line of
	// the level Warn, and a job that has failed for good one of the level Error: for a service whose
	// jobs are those of strangers.
	Unlogged bool
}

// outcomes reads the jobs of which Outcomes are told, in a goroutine that runs only while there are some.
type outcomes struct {
	Outcomes

	q     JobQueue
	now   func() Instant
	log   *slog.Logger
	mu    sync.Mutex
	idle  sync.Cond
	queue []outcome
	busy  bool
}

// An outcome is a move that has ended an attempt or a job.
type outcome struct {
	ref   Ref
	state queue.State // after the move
}

// newOutcomes returns nil if nobody wants to know outcomes.
func newOutcomes(o *Options, q JobQueue, now func() Instant) *outcomes {
	x := &outcomes{Outcomes: o.Outcomes, q: q, now: now, log: o.Logger}
	// A program that moves the clock itself decides which calls the queue gets.
	//nolint:forbidigo // there is no caller yet
	if x.log != nil && (x.Unlogged || o.Deterministic || !x.log.Enabled(context.Background(), slog.LevelError)) {
		x.log = nil
	}
	if x.log == nil && x.AttemptFailed == nil && x.JobEnded == nil {
		return nil
	}
	x.idle.L = &x.mu
	return x
}

// moved gets a move.
func (x *outcomes) moved(ref Ref, after *queue.State, e queue.Effect) {
	switch {
	case e&queue.PutAttempt != 0: // and another one follows
	case e&queue.EvDone == 0 || e&queue.Delete != 0:
		return
	case after.Status != Failed && after.Status != TimedOut && x.JobEnded == nil:
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.queue = append(x.queue, outcome{ref, *after})
	if !x.busy {
		x.busy = true
		go x.run()
	}
}

// wait returns when everybody was told of everything.
func (x *outcomes) wait() {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.busy {
		x.idle.Wait()
	}
}

func (x *outcomes) run() {
	ctx := context.Background() //nolint:forbidigo // of no caller: the move was made for whoever submitted the job
	for {
		x.mu.Lock()
		list := x.queue
		x.queue = nil
		if len(list) == 0 {
			x.busy = false
			x.idle.Broadcast()
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		for i := range list {
			x.tell(ctx, &list[i])
		}
	}
}

// tell reads what a move does not show. Of a job that cannot be read only this is told.
func (x *outcomes) tell(ctx context.Context, o *outcome) {
	j, err := x.q.Get(ctx, x.now(), o.ref)
	if err != nil {
		j = Job{Ref: o.ref}
	}
	j.State = o.state // it may have moved on
	if !j.Status.Terminal() {
		x.tellFailed(ctx, j, x.pastAttempt(ctx, &j))
		return
	}
	if j.Status == Failed || j.Status == TimedOut {
		a, ok := j.LastAttempt()
		if !ok { // it failed while it was queued
			a = queue.JobAttempt{Number: j.Number(), Last: true, Status: j.Status, Error: j.ErrorText(), Finished: j.Finished}
		}
		x.tellFailed(ctx, j, a)
	}
	if x.JobEnded != nil {
		x.JobEnded(ctx, j)
	}
}

// pastAttempt returns the attempt that has ended last, of a job that is queued again.
func (x *outcomes) pastAttempt(ctx context.Context, j *Job) queue.JobAttempt {
	n := int(j.Attempt)
	list, err := x.q.PastAttempts(ctx, x.now(), j.Ref)
	if err == nil {
		for _, a := range list {
			if a.Number == n {
				return a
			}
		}
	}
	return queue.JobAttempt{Number: n, Status: Failed}
}

func (x *outcomes) tellFailed(ctx context.Context, j Job, a queue.JobAttempt) {
	if x.AttemptFailed != nil {
		x.AttemptFailed(ctx, j, a)
	}
	if x.log == nil {
		return
	}
	of := max(int(j.Retry.Attempts), 1)
	if a.Last {
		x.log.ErrorContext(ctx, "job failed", "endpoint", j.Endpoint, "job", j.ID, "user", j.Owner, "worker", a.Worker,
			"attempt", a.Number, "attempts", of, "status", a.Status, "err", a.Error)
		return
	}
	x.log.WarnContext(ctx, "attempt failed, another one follows", "endpoint", j.Endpoint, "job", j.ID, "user", j.Owner, "worker", a.Worker,
		"attempt", a.Number, "attempts", of, "status", a.Status, "err", a.Error, "next", j.Queued.Time().UTC())
}
