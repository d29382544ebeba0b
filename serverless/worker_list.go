package serverless

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/workers"
)

// A WorkerStatus is the status of a worker, as users see it.
type WorkerStatus string

// The statuses of a worker.
const (
	StatusRunning      WorkerStatus = "RUNNING"      // has a job
	StatusIdle         WorkerStatus = "IDLE"         // has no job
	StatusInitializing WorkerStatus = "INITIALIZING" // has not asked for a job yet
	StatusThrottled    WorkerStatus = "THROTTLED"    // no capacity to start it
	StatusUnhealthy    WorkerStatus = "UNHEALTHY"    // ended before it finished a job, or reported that it is unhealthy
)

// A WorkerInfo describes a worker.
type WorkerInfo struct {
	ID         WorkerID
	Endpoint   string
	Status     WorkerStatus
	Fleet      bool // started by the fleet; otherwise by Serve or by somebody else
	Ready      bool // waiting for a job at this moment
	Release    int  // the Endpoint.Version that it runs; 0: unknown
	Image      string
	Started    time.Time // zero until it runs, and if the fleet did not start it
	DataCenter string
	GPUType    string
	GPUs       int
	Jobs       []JobID // leased to it
	Reason     string  // text for users; set if unhealthy or throttled
}

// WorkerList returns the workers of an endpoint, those of Serve included, ordered by id. It
// leaves out workers that are being stopped. It returns ErrNoEndpoint for an unknown
// endpoint.
func (s *Service) WorkerList(ctx context.Context, endpoint string) ([]WorkerInfo, error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return nil, err
	}
	return s.workerList(endpoint), nil
}

func (s *Service) workerList(endpoint string) []WorkerInfo {
	views := s.views(endpoint)
	list := make([]WorkerInfo, 0, len(views))
	for i := range views {
		list = append(list, registered(endpoint, &views[i]))
	}
	for _, f := range s.scaler.Workers(endpoint) {
		i, known := slices.BinarySearchFunc(list, f.ID, func(w WorkerInfo, id WorkerID) int { return cmp.Compare(w.ID, id) })
		switch {
		case !known && f.Hidden:
		case !known:
			list = slices.Insert(list, i, managed(&f))
		case f.Hidden && len(list[i].Jobs) == 0 && list[i].Status != StatusRunning:
			list = slices.Delete(list, i, i+1)
		default:
			w := managed(&f)
			w.Jobs, w.Ready = list[i].Jobs, list[i].Ready
			if w.Status == StatusInitializing {
				w.Status, w.Reason = list[i].Status, list[i].Reason
			}
			list[i] = w
		}
	}
	return list
}

// registered returns the description of a worker that the fleet did not start.
func registered(endpoint string, v *workers.View) WorkerInfo {
	w := WorkerInfo{ID: v.ID, Endpoint: endpoint, Status: StatusIdle, Jobs: v.Jobs, Ready: v.Polling && v.Takes()}
	switch {
	case v.Unhealthy != "":
		w.Status, w.Reason = StatusUnhealthy, v.Unhealthy
	case v.Busy():
		w.Status = StatusRunning
	case v.Starting:
		w.Status = StatusInitializing
	}
	return w
}

// managed returns the description of a worker of the fleet that has not asked for a job yet.
func managed(f *fleet.Status) WorkerInfo {
	w := WorkerInfo{
		ID: f.ID, Endpoint: f.Endpoint, Status: StatusInitializing, Fleet: true,
		Release: f.Release, Image: f.Image, Started: f.Started,
		DataCenter: f.DataCenter, GPUType: f.GPUType, GPUs: f.GPUs,
	}
	switch f.State {
	case fleet.Failed, fleet.Lost, fleet.Ended:
		w.Status, w.Reason = StatusUnhealthy, f.Reason
	case fleet.Throttled:
		w.Status, w.Reason = StatusThrottled, f.Reason
	}
	return w
}

var errNotOurWorker = problem.New(problem.Conflict, "the service did not start this worker, so it cannot end it: end it where it runs")

// StopWorker ends a worker that the fleet started: it gets no more jobs, and ends when it has none.
// Another one is started if one is needed. It returns ErrNoEndpoint for an unknown endpoint,
// ErrNoWorker for an unknown worker, and a Conflict for a worker that the fleet did not start.
func (s *Service) StopWorker(ctx context.Context, endpoint string, id WorkerID) error {
	list, err := s.WorkerList(ctx, endpoint)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(w WorkerInfo) bool { return w.ID == id })
	switch {
	case i < 0:
		return ErrNoWorker
	case !list[i].Fleet:
		return errNotOurWorker
	}
	s.scaler.Drain(workers.Key{Endpoint: endpoint, ID: id})
	return nil
}

// countWorkers counts workers by status.
func countWorkers(list []WorkerInfo) (n WorkerCounts) {
	for i := range list {
		switch list[i].Status {
		case StatusRunning:
			n.Running++
		case StatusIdle:
			n.Idle++
		case StatusInitializing:
			n.Initializing++
		case StatusThrottled:
			n.Throttled++
		case StatusUnhealthy:
			n.Unhealthy++
		}
		if list[i].Ready {
			n.Ready++
		}
	}
	return n
}
