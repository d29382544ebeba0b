package schedules

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// retryDelay is how long a schedule waits after a failure that may pass, such as a store that
// does not answer.
const retryDelay = time.Second

// replan sets the next instant of a schedule, and wakes Run if it has to know.
func (s *Service) replan(id string, next time.Time) {
	if s.plan.set(id, next) {
		s.wakeUp()
	}
}

func (s *Service) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Events gets the events of the queue, which end the waiting of schedules. It does not block.
func (s *Service) Events(evs []queue.Event) {
	for _, id := range s.plan.ended(evs) {
		s.replan(id, s.now())
	}
}

// Run submits the jobs of schedules until ctx ends. It returns nil. Call it once.
func (s *Service) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		next, err := s.Step(ctx, s.o.Clock.Now())
		if err != nil && ctx.Err() == nil {
			s.o.Logger.ErrorContext(ctx, "schedules cannot be read", "err", err)
			next = s.o.Clock.Now().Add(retryDelay)
		}
		clock.Nap(ctx, s.o.Clock, next, s.wake)
	}
	return nil
}

// Step submits what is due at now. It returns the next instant at which something is due, or
// the zero time. A failure of one schedule is logged, and it is tried again. Only one Step may
// run at a time.
func (s *Service) Step(ctx context.Context, now time.Time) (next time.Time, err error) {
	if s.plan.stepped(now) {
		s.o.Logger.WarnContext(ctx, "the clock was set back: schedules are planned again")
	}
	if err := s.load(ctx, now); err != nil {
		return time.Time{}, err
	}
	var all sync.WaitGroup
	room := make(chan struct{}, s.o.Parallel)
	for _, id := range s.plan.due(now) {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			s.stepOne(ctx, id, now)
		})
		if s.o.Parallel == 1 {
			all.Wait()
		}
	}
	all.Wait()
	return s.next(), nil
}

// next returns when Step has something to do.
func (s *Service) next() time.Time {
	next := s.plan.next()
	if s.o.Refresh == 0 {
		return next
	}
	if read := s.plan.read.Add(s.o.Refresh); next.IsZero() || read.Before(next) {
		return read
	}
	return next
}

// load plans all schedules of the store, once, or when they must be read again. Those that wait
// for a job are due at once, and so are those that another clock has brought too far.
func (s *Service) load(ctx context.Context, now time.Time) error {
	if s.plan.known && (s.o.Refresh == 0 || now.Before(s.plan.read.Add(s.o.Refresh))) {
		return nil
	}
	list, err := s.store.All(ctx)
	if err != nil {
		return fmt.Errorf("schedules: load: %w", err)
	}
	for i := range list {
		next := list[i].Next()
		switch {
		case list[i].ahead(now):
			next = now
		case !list[i].Waiting.IsZero():
			next = list[i].After
		}
		s.plan.sooner(list[i].ID, next)
	}
	s.plan.known, s.plan.read = true, now
	return nil
}

// stepOne submits what is due of a schedule, and plans its next instant.
func (s *Service) stepOne(ctx context.Context, id string, now time.Time) {
	next, err := s.fire(ctx, id, now)
	if err != nil {
		if ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "a schedule has to wait", "schedule", id, "err", err)
		}
		next = now.Add(retryDelay)
	}
	s.plan.add(id, next)
}

// fire submits what is due of a schedule, and returns when something is due again.
func (s *Service) fire(ctx context.Context, id string, now time.Time) (next time.Time, err error) {
	v, err := s.store.Get(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	t, err := v.times()
	if err != nil {
		return time.Time{}, s.disable(ctx, &v, now, err.Error())
	}
	if v.ahead(now) && v.Enabled {
		if err := s.beginAgain(ctx, &v, now); err != nil {
			return time.Time{}, err
		}
	}
	if err := s.fireWaiting(ctx, &v); err != nil {
		return time.Time{}, err
	}
	passed, all := t.passed(v.After, now)
	submit, missed := v.due(passed, now)
	if len(missed) > 0 && v.Enabled {
		if err := s.miss(ctx, &v, missed, all); err != nil {
			return time.Time{}, err
		}
	}
	for _, at := range submit {
		if !v.Enabled {
			break
		}
		if err := s.decide(ctx, &v, at); err != nil {
			return time.Time{}, err
		}
	}
	return s.rest(ctx, &v, now)
}

// beginAgain has a schedule count from now on. It has decided instants that are to come, because
// the clock was ahead then; until these have passed it would not fire.
func (s *Service) beginAgain(ctx context.Context, v *Schedule, now time.Time) error {
	why := fmt.Sprintf("the clock was ahead by %v or more when the schedule last fired; it counts from now on", v.After.Sub(now).Truncate(time.Second))
	s.o.Logger.WarnContext(ctx, "a schedule begins again: "+why, "schedule", v.ID)
	return s.update(ctx, v, func(v *Schedule) {
		if v.ahead(now) { // no other server was faster
			v.After = now
			v.record(Outcome{At: now, Decision: Missed, Detail: why})
		}
	})
}

// rest returns when a schedule is due again. One that waits for a job that has ended meanwhile
// is due at once.
func (s *Service) rest(ctx context.Context, v *Schedule, now time.Time) (time.Time, error) {
	if v.Waiting.IsZero() {
		return v.Next(), nil
	}
	s.plan.wait(v.lastRef(), v.ID)
	ended, err := s.jobs.Ended(ctx, v.lastRef())
	if ended {
		return now, err
	}
	return v.Next(), err
}

func (s *Schedule) lastRef() queue.Ref { return queue.Ref{Endpoint: s.Endpoint, ID: s.Last} }

// fireWaiting submits the instant that waits for a job, if that has ended.
func (s *Service) fireWaiting(ctx context.Context, v *Schedule) error {
	if v.Waiting.IsZero() || !v.Enabled {
		return nil
	}
	ended, err := s.jobs.Ended(ctx, v.lastRef())
	if err != nil || !ended {
		return err
	}
	return s.submit(ctx, v, v.Waiting)
}

// miss records that instants were missed.
func (s *Service) miss(ctx context.Context, v *Schedule, missed []time.Time, all bool) error {
	least := ""
	if !all {
		least = "at least "
	}
	return s.record(ctx, v, Outcome{
		At: missed[len(missed)-1], Decision: Missed,
		Detail: fmt.Sprintf("%s%d instants have passed without a server that could submit them; catchUp is %s", least, len(missed), v.CatchUp),
	})
}

// decide does what an instant asks for, and records it.
func (s *Service) decide(ctx context.Context, v *Schedule, at time.Time) error {
	if !at.After(v.After) {
		return nil // another server was faster
	}
	if v.Overlap == OverlapAllow || v.Last == "" {
		return s.submit(ctx, v, at)
	}
	ended, err := s.jobs.Ended(ctx, v.lastRef())
	switch {
	case err != nil:
		return err
	case v.Overlap == OverlapQueue && v.Waiting.IsZero() && !ended:
		return s.update(ctx, v, func(v *Schedule) { v.After, v.Waiting = later(v.After, at), at })
	case !ended:
		return s.record(ctx, v, Outcome{At: at, Decision: Skipped, Detail: fmt.Sprintf("the job %s has not ended; overlap is %s", v.Last, v.Overlap)})
	}
	return s.submit(ctx, v, at)
}

// submit queues the job of an instant. That it is queued already is a success: a server has
// ended before it could record it, or another one was faster.
func (s *Service) submit(ctx context.Context, v *Schedule, at time.Time) error {
	may, err := s.mayRun(ctx, v)
	if err != nil {
		return err
	}
	switch {
	case !may && v.Name != "":
		return s.record(ctx, v, Outcome{At: at, Decision: Refused, Detail: "run is not that of the program which declares the schedule, and the owner has no valid key that may run jobs on this endpoint"})
	case !may:
		return s.disable(ctx, v, at, "the owner has no valid key that may run jobs on this endpoint; enable the schedule when there is one")
	}
	_, err = s.jobs.Submit(ctx, v.firing(at))
	switch kind := problem.KindOf(err); {
	case err == nil, errors.Is(err, queue.ErrExists):
		return s.record(ctx, v, Outcome{At: at, Decision: Submitted, Job: v.JobID(at)})
	case errors.Is(err, endpoints.ErrNotFound):
		v.Enabled, v.Waiting = false, time.Time{}
		return ignore(s.remove(ctx, v.ID), ErrNotFound)
	case kind == problem.Internal, kind == problem.Unavailable:
		return err
	}
	return s.record(ctx, v, Outcome{At: at, Decision: Refused, Detail: problem.Of(err).Detail})
}

// mayRun reports whether a schedule may submit jobs. A declared one is the program's own and needs no key,
// unless somebody has changed what its jobs do: that would go on when the key that did it is gone.
func (s *Service) mayRun(ctx context.Context, v *Schedule) (bool, error) {
	if v.Name != "" && !v.Edited {
		return true, nil
	}
	return s.jobs.MayRun(ctx, v.Owner, v.Endpoint)
}

// disable turns a schedule off, with the reason.
func (s *Service) disable(ctx context.Context, v *Schedule, at time.Time, why string) error {
	s.o.Logger.WarnContext(ctx, "a schedule is disabled", "schedule", v.ID, "user", v.Owner, "endpoint", v.Endpoint, "reason", why)
	o := Outcome{At: at, Decision: Disabled, Detail: why}
	return s.update(ctx, v, func(v *Schedule) {
		v.After, v.Waiting, v.Enabled = later(v.After, at), time.Time{}, false
		v.record(o)
	})
}

// record notes what became of an instant.
func (s *Service) record(ctx context.Context, v *Schedule, o Outcome) error {
	return s.update(ctx, v, func(v *Schedule) {
		v.After = later(v.After, o.At)
		if v.Waiting.Equal(o.At) {
			v.Waiting = time.Time{}
		}
		if o.Decision == Submitted {
			v.Last = o.Job
		}
		v.record(o)
	})
}

// update changes the stored schedule and v. A schedule that is gone is a disabled one.
func (s *Service) update(ctx context.Context, v *Schedule, fn func(*Schedule)) error {
	now, err := s.store.Update(ctx, v.ID, func(v *Schedule) error { fn(v); return nil })
	if errors.Is(err, ErrNotFound) {
		v.Enabled, v.Waiting = false, time.Time{}
		return nil
	}
	if err == nil {
		*v = now
	}
	return err
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}
