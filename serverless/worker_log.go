package serverless

import (
	"context"
	"iter"

	"github.com/podyard/podyard/problem"
)

// What WorkerLog answers.
var (
	ErrNoWorker    = problem.New(problem.NotFound, "worker not found")
	ErrNoWorkerLog = problem.New(problem.NotFound, "the log of this worker is not kept here")
)

// WorkerLog yields what a worker of an endpoint has written, as WorkerLogs does. Errors of
// the call itself: ErrNoEndpoint; ErrNoWorker; ErrNoWorkerLog for one that is not the
// fleet's, or whose fleet keeps none.
func (s *Service) WorkerLog(ctx context.Context, endpoint string, id WorkerID, q LogQuery) (iter.Seq2[LogLine, error], error) {
	list, err := s.WorkerList(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	if !s.force.has(endpoint, id) {
		for i := range list {
			if list[i].ID == id {
				return nil, ErrNoWorkerLog
			}
		}
		return nil, ErrNoWorker
	}
	logs, ok := asFleet[WorkerLogs](s.force.fleet)
	if !ok {
		return nil, ErrNoWorkerLog
	}
	return logs.WorkerLogs(ctx, endpoint, id, q), nil
}

// has reports whether the fleet's workers of an endpoint have this one, those included
// that have ended and are kept for their log.
func (f *workforce) has(endpoint string, id WorkerID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.squads[endpoint]
	return q != nil && q.hands[id] != nil
}

// asFleet finds a power of f, or of what it wraps: a wrapper has a method Unwrap() Fleet.
func asFleet[T any](f Fleet) (T, bool) {
	for f != nil {
		if t, ok := f.(T); ok {
			return t, true
		}
		u, ok := f.(interface{ Unwrap() Fleet })
		if !ok {
			break
		}
		f = u.Unwrap()
	}
	var zero T
	return zero, false
}
