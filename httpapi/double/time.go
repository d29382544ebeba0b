package double

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless"
)

// maxRounds bounds the rounds of work at one instant.
const maxRounds = 10_000

// Step does everything that is due at now, and what follows from it at the same instant, until
// everything is at rest.
func (w *instance) Step(ctx context.Context, now time.Time) (next time.Time, err error) {
	w.steps++
	for range maxRounds {
		if err := w.runScheduled(ctx, now); err != nil {
			return next, err
		}
		v := w.act.at()
		var more bool
		if next, more, err = w.stepServices(ctx, now); err != nil {
			return next, err
		}
		if err := w.act.wait(ctx, now, w.settle); err != nil {
			return next, err
		}
		if !more && w.act.at() == v && !w.hasScheduled() {
			w.next = next
			return next, nil
		}
	}
	return next, fmt.Errorf("double: it does not come to rest at %s", now.Format(time.RFC3339Nano))
}

// schedule makes f run at this instant, after the functions before it have come to rest, so
// that the order within an instant is always the same.
func (w *instance) schedule(f func(ctx context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scheduled = append(w.scheduled, f)
}

func (w *instance) hasScheduled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.scheduled) > 0
}

// pop returns the next scheduled function; nil: none.
func (w *instance) pop() (f func(ctx context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.scheduled) > 0 {
		f, w.scheduled[0] = w.scheduled[0], nil // or the array would keep what f captures
		w.scheduled = w.scheduled[1:]
	}
	return f
}

// runScheduled runs the scheduled functions, one after another.
func (w *instance) runScheduled(ctx context.Context, now time.Time) error {
	for f := w.pop(); f != nil; f = w.pop() {
		f(ctx)
		if err := w.act.wait(ctx, now, w.settle); err != nil {
			return err
		}
	}
	return nil
}

// runAllScheduled runs them without waiting, at the end and where the clock does not wait.
func (w *instance) runAllScheduled(ctx context.Context) {
	for f := w.pop(); f != nil; f = w.pop() {
		f(ctx)
	}
}

// stepServices makes each service do what is due. next is when they have more to do later, and
// more is true if they have more to do now. What they start ends with the instance, and not
// with the caller.
func (w *instance) stepServices(ctx context.Context, now time.Time) (next time.Time, more bool, err error) {
	ctx = context.WithoutCancel(ctx)
	a, err := w.services.Pods.Step(ctx, now)
	if err != nil {
		return next, false, err
	}
	b, err := w.pingRemote(ctx, now)
	if err != nil {
		return next, false, err
	}
	c, err := w.services.Jobs.Step(ctx, now)
	if err != nil {
		return next, false, err
	}
	d, _ := w.services.Spending.Step(ctx, now) // after a fault of the plan it is tried again
	for _, t := range [...]time.Time{a, b, c, d} {
		if t.After(now) {
			next = earlier(next, t)
		}
	}
	return next, !c.IsZero() && !c.After(now), nil
}

// earlier is the earlier of two instants, where zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// pingRemote pings for remote workers that made a request lately in wall time, because they
// cannot follow this clock.
func (w *instance) pingRemote(ctx context.Context, now time.Time) (next time.Time, err error) {
	alive := w.act.remote(time.Now())
	if len(alive) == 0 {
		return time.Time{}, nil
	}
	if due := w.pinged.Add(lease / 3); now.Before(due) && !w.pinged.IsZero() {
		return due, nil
	}
	w.pinged = now
	for _, a := range alive {
		err := w.services.Jobs.Ping(ctx, a.endpoint, a.worker, a.holds)
		if err != nil && !errors.Is(err, serverless.ErrNoEndpoint) && !errors.Is(err, serverless.ErrLeaseLost) {
			return next, err
		}
	}
	return now.Add(lease / 3), nil
}

// A remoteWorker is a remote worker with the jobs that it knows it has.
type remoteWorker struct {
	workerKey
	holds []serverless.JobID
}

func (a *activity) remote(wall time.Time) (list []remoteWorker) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, s := range a.workers {
		if s.local {
			continue
		}
		if wall.Sub(s.seen) > lease && !a.hasRequest(k) {
			continue
		}
		x := remoteWorker{workerKey: k}
		for _, r := range a.runs {
			if r.holder == s && !r.lost {
				x.holds = append(x.holds, r.ID)
			}
		}
		list = append(list, x)
	}
	return list
}

// hasRequest reports whether a request of the worker is in progress. The caller holds the lock.
func (a *activity) hasRequest(k workerKey) bool {
	for x := range a.requests {
		if x.endpoint == k.endpoint && x.worker == k.worker {
			return true
		}
	}
	return false
}

// advance moves the clock on.
func (w *instance) advance(ctx context.Context, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("double: advance by %v: time does not go back", d)
	}
	w.step.Lock()
	defer w.step.Unlock()
	return w.clock.Advance(ctx, d, w)
}

// due returns when something is done by itself next, as far as it was known when the clock moved last;
// zero: nothing is.
func (w *instance) due() time.Time {
	w.step.Lock()
	defer w.step.Unlock()
	return earlier(w.next, w.clock.Next())
}

// idleLimit bounds how far RunUntilIdle moves the clock, podLimit how long it waits for a pod,
// which may never become healthy.
const (
	idleLimit = 7 * 24 * time.Hour
	podLimit  = time.Hour
)

// untilIdle moves from due instant to due instant while something is in progress.
func (w *instance) untilIdle(ctx context.Context) (time.Duration, error) {
	w.step.Lock()
	defer w.step.Unlock()
	start := w.clock.Now()
	for {
		now := w.clock.Now()
		if err := w.clock.Advance(ctx, 0, w); err != nil {
			return now.Sub(start), err
		}
		under, err := w.underWay(ctx, now.Sub(start))
		next := earlier(w.next, w.clock.Next())
		if err != nil || !under || next.IsZero() || next.Sub(start) > idleLimit {
			return now.Sub(start), err
		}
		if err := w.clock.Advance(ctx, next.Sub(now), w); err != nil {
			return w.clock.Now().Sub(start), err
		}
	}
}

// underWay reports whether time alone will end something: a job of a worker in this process, one
// that waits for its time, a webhook, a starting pod.
func (w *instance) underWay(ctx context.Context, since time.Duration) (bool, error) {
	if w.act.working() || w.act.requestsUnderWay() {
		return true, nil
	}
	if waits, err := w.delayed(ctx); err != nil || waits {
		return err == nil, err
	}
	if since <= podLimit {
		if staffing, err := w.scaling(ctx); err != nil || staffing {
			return err == nil, err
		}
	}
	if at, err := w.queue.NextDelivery(ctx); err != nil || at != 0 {
		return err == nil, err
	}
	if since > podLimit {
		return false, nil
	}
	for p, err := range w.pods.List(ctx, pods.Filter{}) {
		if err != nil {
			return false, err
		}
		if p.Seen.Status == pods.Provisioning || p.Seen.Status == pods.Starting || p.Want.Power == pods.PowerTerminated ||
			p.Want.Power == pods.PowerOff && p.Seen.Status == pods.Running {
			return true, nil
		}
	}
	return false, nil
}

// delayed reports whether a job waits for its time on an endpoint that has a worker.
func (w *instance) delayed(ctx context.Context) (bool, error) {
	for e, err := range w.services.Jobs.Endpoints().List(ctx) {
		if err != nil {
			return false, err
		}
		h, err := w.services.Jobs.Health(ctx, e.ID)
		if err != nil {
			return false, err
		}
		if h.Jobs.Delayed > 0 && h.Workers.Idle+h.Workers.Running > 0 {
			return true, nil
		}
	}
	return false, nil
}

// scaling reports whether a worker of a known image is starting, or jobs wait for one.
func (w *instance) scaling(ctx context.Context) (bool, error) {
	for e, err := range w.services.Jobs.Endpoints().List(ctx) {
		if err != nil {
			return false, err
		}
		if e.Container.Image == "" || e.Workers.Max == 0 || w.imageOf(e.Container.Image) == nil {
			continue
		}
		h, err := w.services.Jobs.Health(ctx, e.ID)
		if err != nil {
			return false, err
		}
		if h.Workers.Initializing > 0 || w.services.Jobs.RequestDemand(e.ID).Waiting > 0 || h.Jobs.Queued > h.Jobs.QueuedLow || h.Jobs.Queued > 0 && h.Workers.Ready > 0 {
			return true, nil
		}
	}
	return false, nil
}

// working reports whether a worker of this process has a job, or a remote one has lost
// its answer.
func (a *activity) working() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.runs {
		if (r.holder.local || r.lost) && !a.dead[r.runKey] {
			return true
		}
	}
	return false
}
