package serverless

import (
	"context"
	"fmt"
)

// A Health has the counts of jobs and workers of an endpoint.
type Health struct {
	Jobs    Stats
	Workers WorkerCounts
}

// WorkerCounts are the numbers of an endpoint's workers by status. Ready counts workers of
// any status.
type WorkerCounts struct {
	Idle         int // without a job
	Initializing int // started, but not seen yet
	Ready        int // waiting for a job at this moment
	Running      int // with a job
	Throttled    int // no capacity to start them
	Unhealthy    int
}

// Health returns the counts of jobs and workers of an endpoint, or ErrNoEndpoint. Requests in
// flight of a load-balancing endpoint count as running jobs.
func (s *Service) Health(ctx context.Context, endpoint string) (Health, error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return Health{}, err
	}
	st, err := s.stats(ctx, endpoint)
	if err != nil {
		return Health{}, fmt.Errorf("serverless: health of %q: %w", endpoint, err)
	}
	st.Running += int64(s.balancer.Demand(endpoint).Running)
	return Health{Jobs: st, Workers: countWorkers(s.workerList(endpoint))}, nil
}

// RunningWorkers returns the number of workers of the endpoint that have a job or a request. With
// Options.Presence those of all servers count, as they were a second ago.
func (s *Service) RunningWorkers(endpoint string) int {
	if s.crowd != nil {
		return s.crowd.running(endpoint, s.now()) + s.balancer.Busy(endpoint)
	}
	return s.registry.Running(endpoint) + s.balancer.Busy(endpoint)
}
