package serverless

import (
	"context"
	"fmt"
	"sync"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// An intake says whether workers that ask this service get jobs.
type intake struct {
	mu     sync.Mutex
	closed chan struct{} // closed while they get none
	open   chan struct{} // closed while they do
}

func newIntake() *intake {
	i := &intake{closed: make(chan struct{}), open: make(chan struct{})}
	close(i.open)
	return i
}

func (i *intake) set(draining bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if isClosed(i.closed) == draining {
		return
	}
	if draining {
		close(i.closed)
		i.open = make(chan struct{})
	} else {
		close(i.open)
		i.closed = make(chan struct{})
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// ends is closed when workers get no jobs any more.
func (i *intake) ends() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.closed
}

// wait returns when workers get jobs, or reports false when ctx has ended.
func (i *intake) wait(ctx context.Context) bool {
	i.mu.Lock()
	open := i.open
	i.mu.Unlock()
	select {
	case <-open:
		return true
	default:
	}
	select {
	case <-open:
		return true
	case <-ctx.Done():
		return false
	}
}

// SetDraining has workers that ask this service get no jobs until it is taken back, those of
// Serve included (docs/decisions.md 34, 35). Their calls are held as if there were no job.
// Jobs that they have go on, and jobs are still submitted.
func (s *Service) SetDraining(draining bool) { s.intake.set(draining) }

// JobsHere returns how many jobs and requests of an endpoint are in progress at workers that belong to this
// service: those of Serve, and those of its fleet. Workers that others started are not among them: they go on
// at another server. It looks at each job of the endpoint that is in progress.
func (s *Service) JobsHere(ctx context.Context, endpoint string) (int, error) {
	n, fleet := s.balancer.Demand(endpoint).Running, map[WorkerID]bool{}
	for _, w := range s.scaler.Workers(endpoint) {
		fleet[w.ID] = true
	}
	for j, err := range s.queue.List(ctx, s.now(), queue.ListQuery{Endpoint: endpoint, Status: []Status{InProgress}}) {
		if err != nil {
			return 0, fmt.Errorf("serverless: jobs in progress of %q: %w", endpoint, err)
		}
		w := s.registry.Find(workers.Key{Endpoint: endpoint, ID: j.Worker})
		if fleet[j.Worker] || w != nil && w.IsLocal() {
			n++
		}
	}
	return n, nil
}

// CordonEndpoint is an operator's act on an endpoint of any owner: with endpoints.Cordoned no
// worker is started for it, with endpoints.Drained those that are there end too, each after
// its job. Its queue takes jobs all the same. It returns ErrNoEndpoint.
func (s *Service) CordonEndpoint(ctx context.Context, id string, c endpoints.Cordon) (*Endpoint, error) {
	e, err := s.eps.SetCordon(ctx, id, c)
	if err == nil {
		s.scaler.Wake(id)
		s.arm(s.now())
	}
	return e, err
}

// ReplaceWorker has a worker of the fleet end after its jobs. Another one is started if one is
// needed. It does nothing for an unknown worker.
func (s *Service) ReplaceWorker(endpoint string, id WorkerID) {
	s.scaler.Drain(workers.Key{Endpoint: endpoint, ID: id})
	s.arm(s.now())
}
