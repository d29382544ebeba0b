package serverless

import (
	"context"
	"iter"
	"slices"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/workers"
)

// Errors of WorkerLog.
var (
	ErrNoWorker    = problem.New(problem.NotFound, "worker not found")
	ErrNoWorkerLog = problem.New(problem.NotFound, "the log of this worker is not kept here")
)

// WorkerLog yields the log of a worker, as fleet.WorkerLogs does. The call returns
// ErrNoEndpoint for an unknown endpoint, ErrNoWorker for an unknown worker, and
// ErrNoWorkerLog for a worker that the fleet did not start or whose fleet keeps no logs.
func (s *Service) WorkerLog(ctx context.Context, endpoint string, id WorkerID, q fleet.LogQuery) (iter.Seq2[fleet.LogLine, error], error) {
	list, err := s.WorkerList(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	lines, known, kept := s.scaler.Log(ctx, workers.Key{Endpoint: endpoint, ID: id}, q)
	switch {
	case kept:
		return lines, nil
	case known || slices.ContainsFunc(list, func(w WorkerInfo) bool { return w.ID == id }):
		return nil, ErrNoWorkerLog
	}
	return nil, ErrNoWorker
}
