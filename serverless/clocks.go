package serverless

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
)

// jumped notes that the clock was set, by so much.
func (s *Service) jumped(ctx context.Context, by time.Duration) {
	if by >= 0 {
		s.log.Warn("the clock jumped forward, or this machine stood still: leases, timeouts and ttls of jobs may have passed", "by", by)
		return
	}
	s.log.Warn("the clock was set back: what is due at an instant comes later by that much", "by", -by)
	s.goroutines.Go(func() { s.startInTime(ctx) })
}

// compareClock notes how far the newest job of the queue is from the clock. A clock with an empty
// battery, or one that NTP has not set yet, is years away from what the store knows.
func (s *Service) compareClock(ctx context.Context) {
	newest, err := s.newest(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("the clock was not compared with the jobs of the store", "err", err)
		}
		return
	}
	if newest == 0 {
		return
	}
	if by := newest.Sub(s.now()); by > schedules.Grace {
		s.log.Warn("the store has jobs of the future: the clock was ahead then, or is behind now", "by", by)
		s.startInTime(ctx)
	} else {
		s.log.Info("the newest job of the store is from before", "by", max(-by, 0).Round(time.Second))
	}
}

// newest returns the latest instant at which something has happened to the newest job of any
// endpoint; 0: there are no jobs.
func (s *Service) newest(ctx context.Context) (at Instant, err error) {
	for ep, err := range s.endpoints.List(ctx) {
		if err != nil {
			return 0, err
		}
		for j, err := range s.queue.List(ctx, s.now(), queue.ListQuery{Endpoint: ep.ID, Limit: 1}) {
			if err != nil {
				return 0, err
			}
			at = max(at, j.Submitted, j.Started, j.Finished)
			break
		}
	}
	return at, nil
}

// A lateStart is a delayed job, and when it is to be ready.
type lateStart struct {
	ref Ref
	at  time.Time
}

// startInTime makes jobs ready that wait for an instant of a clock that was ahead. Their delay counts
// from now on, so none is ready too early. A job that waits for an instant which its user gave goes on
// waiting for it. It returns when all are ready, or when ctx ends; then the next start finds the others.
func (s *Service) startInTime(ctx context.Context) {
	late, err := s.lateStarts(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Error("delayed jobs of a clock that was ahead wait until it has caught up", "err", err)
		}
		return
	}
	if len(late) > 0 {
		s.log.Warn("jobs were delayed by a clock that was ahead: their delay counts from now on", "count", len(late))
	}
	for _, l := range late {
		clock.Sleep(ctx, s.clock, l.at, nil)
		if ctx.Err() != nil {
			return
		}
		if _, err := s.apply(ctx, queue.Op{Ref: l.ref, Kind: queue.OpStart}); err != nil && !errors.Is(err, ErrStatus) && !errors.Is(err, ErrNotFound) {
			s.log.Error("a delayed job of a clock that was ahead waits until it has caught up", "endpoint", l.ref.Endpoint, "job", l.ref.ID, "err", err)
		}
	}
}

// lateStarts returns the jobs of startInTime, in the order in which they are to be ready.
func (s *Service) lateStarts(ctx context.Context) (list []lateStart, err error) {
	now := s.clock.Now()
	for ep, err := range s.endpoints.List(ctx) {
		if err != nil {
			return nil, err
		}
		for j, err := range s.queue.List(ctx, At(now), queue.ListQuery{Endpoint: ep.ID, Status: []Status{InQueue}}) {
			if err != nil {
				return nil, err
			}
			if delay, ok := countsAgain(&j.State, At(now)); ok {
				list = append(list, lateStart{j.Ref, now.Add(delay)})
			}
		}
	}
	slices.SortFunc(list, func(a, b lateStart) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.ref.ID, b.ref.ID)) })
	return list, nil
}

// countsAgain returns the delay of a job that began to wait by a clock that was ahead of now by more
// than a minute.
func countsAgain(j *queue.State, now Instant) (delay time.Duration, ok bool) {
	switch {
	case !j.Delayed:
		return 0, false
	case j.Attempt > 0:
		delay = j.Retry.MaxDelay
		return delay, j.Queued.Sub(now) > delay+schedules.Grace
	}
	return j.Queued.Sub(j.Submitted), j.Flags&queue.FromSubmit != 0 && j.Submitted.Sub(now) > schedules.Grace
}
