package serverless

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
)

// Schedules returns the schedules of jobs, or nil without Options.Schedules. Run submits their
// jobs.
func (s *Service) Schedules() *schedules.Service { return s.schedules }

// newSchedules returns nil where o has no schedules.
func (s *Service) newSchedules(o *Options) *schedules.Service {
	if o.Schedules == nil || o.DecodeRun == nil {
		return nil
	}
	so := schedules.Options{Clock: s.clock, Rand: s.rand, Budgets: o.Budgets, Logger: s.log}
	if o.Deterministic {
		so.Parallel = 1
	}
	if s.shared {
		so.Refresh = refreshPeriod
	}
	return schedules.New(o.Schedules, &scheduledJobs{s, o.DecodeRun, o.MayRun}, &so)
}

// scheduledJobs are the jobs of schedules.
type scheduledJobs struct {
	s      *Service
	decode func(body []byte) (Request, error)
	mayRun func(ctx context.Context, owner, endpoint string) (bool, error) // nil: everybody
}

var _ schedules.Jobs = (*scheduledJobs)(nil)

// CheckRun implements schedules.Jobs.
func (j *scheduledJobs) CheckRun(body []byte, v *problem.Violations, path string) error {
	r, err := j.decode(body)
	if err != nil {
		return err
	}
	if r.Queue.StartAfter != nil || !r.Queue.StartAt.IsZero() {
		r.Violations.Add(problem.Invalid, "/queue/startAfter", "must be absent: the schedule says when its jobs start")
		r.Queue.StartAfter, r.Queue.StartAt = nil, time.Time{} // the bounds of others do not follow it
	}
	_ = r.check(j.s.now()) // its faults are in the violations
	v.AddBelow(path, &r.Violations, requestFields)
	return nil
}

// MayRun implements schedules.Jobs.
func (j *scheduledJobs) MayRun(ctx context.Context, owner, endpoint string) (bool, error) {
	if j.mayRun == nil {
		return true, nil
	}
	return j.mayRun(ctx, owner, endpoint)
}

// Submit implements schedules.Jobs.
func (j *scheduledJobs) Submit(ctx context.Context, f schedules.Firing) (Job, error) {
	r, err := j.decode(f.Run)
	if err != nil {
		return Job{}, err
	}
	if r.Extra, err = withSchedule(r.Extra, f); err != nil {
		return Job{}, err
	}
	job, err := j.s.newJob(ctx, f.Owner, f.Endpoint, &r)
	if err != nil {
		return Job{}, err
	}
	if f.ID != "" {
		job.ID = f.ID
	}
	return j.s.enqueueUnique(ctx, job, r.Queue.Unique)
}

// withSchedule adds the member schedule to an object that only the worker sees.
func withSchedule(extra []byte, f schedules.Firing) ([]byte, error) {
	type firing struct {
		ID string `json:"id"`
		At string `json:"at"`
	}
	b, err := json.Marshal(struct {
		Schedule firing `json:"schedule"`
	}{firing{f.Schedule, f.At.UTC().Format(time.RFC3339)}})
	if err != nil || len(extra) <= len("{}") {
		return b, err
	}
	return append(append(b[:len(b)-1], ','), extra[1:]...), nil
}

// Ended implements schedules.Jobs.
func (j *scheduledJobs) Ended(ctx context.Context, ref Ref) (bool, error) {
	job, err := j.s.queue.Get(ctx, j.s.now(), ref)
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return true, nil
	case err != nil && !errors.Is(err, queue.ErrDamaged):
		return false, err
	}
	return job.Status.Terminal(), nil
}

// removeSchedules removes the schedules on an endpoint that was deleted.
func (s *Service) removeSchedules(ctx context.Context, endpoint string) error {
	if s.schedules == nil {
		return nil
	}
	if err := s.schedules.EndpointGone(ctx, endpoint); err != nil {
		return fmt.Errorf("serverless: delete endpoint %q: %w", endpoint, err)
	}
	return nil
}

// stepSchedules is Step for the schedules.
func (s *Service) stepSchedules(ctx context.Context, now time.Time) (Instant, error) {
	if s.schedules == nil {
		return 0, nil
	}
	next, err := s.schedules.Step(ctx, now)
	if err != nil || next.IsZero() {
		return 0, err
	}
	return At(next), nil
}
