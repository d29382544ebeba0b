package fleet

import (
	"context"
	"errors"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
)

// goCall runs a call of the fleet in a goroutine. A deterministic scaler makes the call at
// once.
func (s *Scaler) goCall(call func()) {
	if s.o.Deterministic {
		call()
		return
	}
	s.calls.Go(call)
}

// listFleet starts a listing of all workers of the fleet, if one is due.
func (s *Scaler) listFleet(ctx context.Context, now queue.Instant) {
	n, ok := s.table.beginList(now)
	if !ok {
		return
	}
	s.goCall(func() {
		list, err := s.o.Fleet.Workers(ctx)
		at := s.now()
		if err != nil {
			if ctx.Err() == nil {
				s.o.Logger.Error("listing the workers of the fleet failed", "err", err)
			}
			s.table.listFailed(at)
		} else {
			s.table.listed(at, n, list, s.o.Adopt)
		}
		s.o.Wake(at)
	})
}

// call asks the fleet to start or stop a worker.
func (s *Scaler) call(ctx context.Context, o order) {
	if o.stop {
		s.callStop(ctx, o)
	} else {
		s.callStart(ctx, o)
	}
	s.o.Wake(s.now().Add(s.pace.pause()))
}

func (s *Scaler) callStart(ctx context.Context, o order) {
	err := s.o.Fleet.Start(ctx, o.spec)
	now := s.now()
	switch {
	case err == nil:
		s.table.endStart(o.worker, evAccepted, cause{}, true, now)
	case ctx.Err() != nil: // the next scaler finds the worker in the fleet's list
		s.table.endStart(o.worker, evStartFailed, cause{}, false, now)
	case errors.Is(err, ErrNoCapacity):
		s.table.endStart(o.worker, evRefused, cause{reason: "there is no capacity for a worker"}, true, now)
	default:
		s.o.Logger.Error("starting a worker failed", "endpoint", o.worker.Endpoint, "worker", o.worker.ID, "err", err)
		s.table.endStart(o.worker, evStartFailed, cause{reason: "a worker could not be started: " + problem.Of(err).Detail}, true, now)
	}
}

func (s *Scaler) callStop(ctx context.Context, o order) {
	err := s.o.Fleet.Stop(ctx, o.worker.Endpoint, o.worker.ID, o.grace)
	s.table.endStop(o.worker, err == nil, s.now())
	if err != nil && ctx.Err() == nil {
		s.o.Logger.Error("stopping a worker failed", "endpoint", o.worker.Endpoint, "worker", o.worker.ID, "err", err)
	}
}

// Watch passes the changes of the fleet on to the scaler until ctx ends. It returns at once
// if there is no fleet. It repeats a failed Fleet.Watch after a second.
func (s *Scaler) Watch(ctx context.Context) {
	if s.o.Fleet == nil {
		return
	}
	for ctx.Err() == nil {
		err := s.o.Fleet.Watch(ctx, func(w Instance) {
			now := s.now()
			s.table.heard(w, now)
			s.o.Wake(now)
		})
		if ctx.Err() != nil {
			return
		}
		s.o.Logger.Error("watching the fleet failed", "err", err)
		s.table.lost()
		s.pause(ctx)
	}
}

// pause waits a second by the scaler's clock, or until ctx ends.
func (s *Scaler) pause(ctx context.Context) {
	over := make(chan struct{})
	defer s.o.Clock.AfterFunc(s.o.Clock.Now().Add(retryPause), func() { close(over) })()
	select {
	case <-over:
	case <-ctx.Done():
	}
}
