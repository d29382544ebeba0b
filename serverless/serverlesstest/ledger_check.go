package serverlesstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

// Check compares q, which is the queue of the ledger from now on, with what was acknowledged.
// Every job exists until its ttl or retention ends, and then does not. No job has lost its
// result or has another one. Webhooks wait for their delivery. Counters equal a recount.
func (l *Ledger) Check(ctx context.Context, q queue.JobQueue) error {
	l.Queue = q
	for _, ref := range slices.Collect(maps.Keys(l.jobs)) {
		j, err := q.Get(ctx, l.now, ref)
		if err != nil && !errors.Is(err, queue.ErrNotFound) {
			return fmt.Errorf("get %q: %w", ref.ID, err)
		}
		l.checkJob(ref, &j, err == nil)
	}
	settled := map[hook]bool{} // perhaps
	l.mu.Lock()                // a hook of a file system may clone it at any time
	for f := range l.inFlight {
		for _, h := range f.hooks {
			settled[h] = true
		}
	}
	l.inFlight = map[*inFlightCall]bool{}
	l.mu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.checkStats(ctx); err != nil {
		return err
	}
	if err := l.checkHooks(ctx, settled); err != nil {
		return err
	}
	if err := errors.Join(l.checkAttempts(ctx), l.checkLeases(ctx), l.checkDead(ctx)); err != nil {
		return err
	}
	return l.Err()
}

// checkAttempts compares the log of attempts of each job with its state.
func (l *Ledger) checkAttempts(ctx context.Context) error {
	for _, ref := range slices.Collect(maps.Keys(l.jobs)) {
		j, err := l.Queue.Get(ctx, l.now, ref)
		if errors.Is(err, queue.ErrNotFound) {
			continue
		}
		list, err2 := l.Queue.PastAttempts(ctx, l.now, ref)
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("attempts of %q: %w", ref.ID, err)
		}
		for i, a := range list {
			if a.Number != i+1 || !a.Status.Terminal() {
				return fmt.Errorf("attempt %d of %q is %+v", i+1, ref.ID, a)
			}
		}
		if len(list) != int(j.Attempt) {
			return fmt.Errorf("%q has %d attempts in its log, %d have ended", ref.ID, len(list), j.Attempt)
		}
	}
	return nil
}

// checkLeases compares the log of leases of each job with its state.
func (l *Ledger) checkLeases(ctx context.Context) error {
	for _, ref := range slices.Collect(maps.Keys(l.jobs)) {
		j, err := l.Queue.Get(ctx, l.now, ref)
		if errors.Is(err, queue.ErrNotFound) {
			continue
		}
		list, err2 := l.Queue.PastLeases(ctx, l.now, ref)
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("leases of %q: %w", ref.ID, err)
		}
		if len(list) != min(int(j.Leases), queue.MaxLeases) {
			return fmt.Errorf("%q has %d leases in its log, %d have ended", ref.ID, len(list), j.Leases)
		}
		run := uint32(0)
		for _, x := range list {
			if x.Worker == "" || x.End == "" || x.Started == 0 || x.Run < run || x.Run > j.Run {
				return fmt.Errorf("%q had the lease %+v, after one of run %d", ref.ID, x, run)
			}
			run = x.Run
		}
	}
	return nil
}

// checkDead looks for each acknowledged dead letter.
func (l *Ledger) checkDead(ctx context.Context) error {
	l.mu.Lock()
	dead := maps.Clone(l.dead)
	l.mu.Unlock()
	for ref, want := range dead {
		d, err := l.Queue.DeadLetter(ctx, l.now, ref)
		switch {
		case errors.Is(err, queue.ErrNotFound) && (want.dropped || want.until <= l.now):
			continue
		case err != nil:
			return fmt.Errorf("dead letter of %q: %w", ref.ID, err)
		case want.until <= l.now && d.Run == want.run:
			return fmt.Errorf("the dead letter of %q is there after its time", ref.ID)
		case want.obsolete && d.Run == want.run:
			return fmt.Errorf("the dead letter of %q is there after its job has completed", ref.ID)
		}
		l.mu.Lock()
		if a := l.jobs[ref]; a != nil && d.Run >= want.run {
			if d.Reason != queue.Damaged && a.job.Input != nil && !bytes.Equal(d.Input, a.job.Input) {
				l.violation("the dead letter of %q has input %q, submitted with %q", ref.ID, d.Input, a.job.Input)
			}
			l.result(a, &d.State, d.Output)
		} else if a != nil {
			l.violation("the dead letter of %q is of run %d, acknowledged was that of run %d", ref.ID, d.Run, want.run)
		}
		l.mu.Unlock()
	}
	return nil
}

func (l *Ledger) checkJob(ref queue.Ref, j *queue.Job, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.jobs[ref]
	moving := l.inFlightOn(ref)
	switch {
	case !there && !a.acknowledged:
		delete(l.jobs, ref)
		return
	case !there && (a.gone || a.state.Gone(l.now)), !there && slices.ContainsFunc(moving, shortens):
		a.gone = true
		return
	case !there:
		l.violation("%q is lost: it was %v", ref.ID, a.state.Status)
		return
	case a.gone || a.state.Gone(l.now) && len(moving) == 0:
		l.violation("%q is back: it was gone", ref.ID)
		return
	}
	// A run that was acknowledged as ended has its result; one that may have been retried
	// since has a later run. What was not acknowledged may have happened.
	if a.state.Status.Terminal() && j.Run == a.state.Run && j.Status != a.state.Status {
		l.violation("%q was %v and is %v", ref.ID, a.state.Status, j.Status)
	}
	if !a.state.Status.Terminal() && j.Status.Terminal() && len(moving) == 0 && a.sweep == l.sweeps {
		l.violation("%q is %v, which nobody asked for", ref.ID, j.Status)
	}
	l.got(j)
}

// shortens reports whether a call may end the life of a job early.
func shortens(f *inFlightCall) bool {
	return f.op != nil && (f.op.Kind == queue.OpSetTTL || f.op.Kind == queue.OpDelete)
}

// inFlightOn returns the calls in flight that may move a job.
func (l *Ledger) inFlightOn(ref queue.Ref) (fs []*inFlightCall) {
	for f := range l.inFlight {
		if f.op == nil || f.op.Ref == ref {
			fs = append(fs, f)
		}
	}
	return fs
}

func (l *Ledger) checkStats(ctx context.Context) error {
	counts := map[string][2]int64{}
	for ref, a := range l.jobs {
		if a.gone {
			continue
		}
		n := counts[ref.Endpoint]
		switch a.state.Status {
		case queue.InQueue:
			n[0]++
		case queue.InProgress:
			n[1]++
		}
		counts[ref.Endpoint] = n
	}
	for endpoint, n := range counts {
		s, err := l.Queue.Stats(ctx, l.now, endpoint, nil)
		if err != nil {
			return err
		}
		// Jobs past their time count until they are swept.
		if s.Queued < n[0] || s.Running < n[1] {
			return fmt.Errorf("stats of %q say %d queued and %d running, a recount %d and %d", endpoint, s.Queued, s.Running, n[0], n[1])
		}
	}
	return nil
}

// checkHooks looks for each acknowledged webhook that is not settled. The leases that it
// takes end at once.
func (l *Ledger) checkHooks(ctx context.Context, settled map[hook]bool) error {
	const never = queue.Instant(1) << 60
	ds, err := l.Deliveries(ctx, never, never+1, 1<<20)
	if err != nil {
		return err
	}
	found := map[hook]bool{}
	for i := range ds {
		if err := l.LoadDelivery(ctx, &ds[i]); err != nil {
			return err
		}
		found[hook{ds[i].Job.Ref, ds[i].Job.Run}] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for h, open := range l.due {
		switch {
		case !open, found[h]:
		case settled[h]:
			l.due[h] = false
		default:
			l.violation("the webhook of run %d of %q is lost", h.run, h.ID)
		}
	}
	return nil
}
