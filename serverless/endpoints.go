package serverless

import (
	"context"
	"fmt"
	"iter"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// CreateEndpoint checks r and adds an endpoint of owner. The scaler then starts its workers.
// Absent fields get the defaults of package endpoints: a disk of DefaultDisk, 0 to
// DefaultMaxWorkers workers that stop after DefaultIdle without a job, DefaultTimeout, one
// GPU, FlashBootOff.
//
// A template that does not exist is an error at once (404). All other faults of the request
// are reported together (422, or 400 for rules across fields).
func (s *Service) CreateEndpoint(ctx context.Context, owner string, r endpoints.CreateRequest) (*Endpoint, error) {
	e, err := s.eps.Create(ctx, owner, r)
	if err == nil {
		s.Resync()
	}
	return e, err
}

// EnsureEndpoint creates a shared endpoint without managed workers, for a program that calls
// Serve. It changes nothing if a shared endpoint with this id exists. It returns
// ErrEndpointExists if the id belongs to a user's endpoint. An id has 1 to 63 letters,
// digits, '-' and '_'.
func (s *Service) EnsureEndpoint(ctx context.Context, id string) error {
	return s.ensure(ctx, id, endpoints.QueueType)
}

func (s *Service) ensure(ctx context.Context, id string, t endpoints.Type) error {
	err := s.eps.Ensure(ctx, id, t)
	if err == nil {
		s.declared.Store(id, true)
	}
	return err
}

// UndeclaredEndpoints returns the shared endpoints that this process has neither ensured nor declared
// since New, with their environments: call it when the program has declared all of its own. They stay,
// with their jobs, until UndeclareEndpoint removes them. While a program is replaced by another version,
// they may be those of the other one.
func (s *Service) UndeclaredEndpoints(ctx context.Context) (list []*Endpoint, err error) {
	for e, err := range s.endpoints.List(ctx) {
		if err != nil {
			return nil, fmt.Errorf("serverless: list endpoints: %w", err)
		}
		if _, here := s.declared.Load(e.ID); e.Owner == "" && !here {
			list = append(list, e)
		}
	}
	return list, nil
}

// EnsureBalanced is EnsureEndpoint for a load-balancing endpoint, whose requests go to the
// workers of ServeRequests. It returns ErrEndpointExists also if the id belongs to an endpoint
// with a queue.
func (s *Service) EnsureBalanced(ctx context.Context, id string) error {
	return s.ensure(ctx, id, endpoints.LoadBalancerType)
}

// DeclareEndpoint creates a shared endpoint from r, or changes the shared endpoint with this
// id to match r. A program uses it to make the endpoints of its configuration for all users.
// A change of the workers' settings is a release (see UpdateEndpoint). It returns
// ErrEndpointExists if the id belongs to a user's endpoint; other errors are those of
// EnsureEndpoint and CreateEndpoint.
func (s *Service) DeclareEndpoint(ctx context.Context, id string, r endpoints.CreateRequest) (*Endpoint, error) {
	e, err := s.eps.Declare(ctx, id, r)
	if err == nil {
		s.declared.Store(id, true)
		s.Resync()
	}
	return e, err
}

// CheckDeclareEndpoint returns the error that DeclareEndpoint would return, and changes
// nothing.
func (s *Service) CheckDeclareEndpoint(ctx context.Context, id string, r endpoints.CreateRequest) error {
	return s.eps.CheckDeclare(ctx, id, r)
}

// UndeclareEndpoint removes a shared endpoint and cancels its jobs, as DeleteEndpoint does
// for one of a user. If there is no endpoint with this id, it cancels the jobs that are left
// of one. It returns ErrEndpointExists if the id belongs to a user's endpoint.
func (s *Service) UndeclareEndpoint(ctx context.Context, id string) error {
	if err := s.eps.Undeclare(ctx, id); err != nil {
		return err
	}
	s.declared.Delete(id)
	s.balancer.Forget(id)
	defer s.Resync()
	return s.endAll(ctx, id)
}

// GetEndpoint returns an endpoint of owner or a shared one, and ErrNoEndpoint for any other.
// It leaves out the environment of a shared endpoint, also in its releases, because every
// user can see the endpoint.
func (s *Service) GetEndpoint(ctx context.Context, owner, id string) (*Endpoint, error) {
	return s.eps.Get(ctx, owner, id)
}

// CheckEndpoint returns an endpoint that owner may use, for Request.Endpoint, or the error
// of GetEndpoint. Do not show the result to users: that of a shared endpoint has its
// environment.
func (s *Service) CheckEndpoint(ctx context.Context, owner, id string) (*Endpoint, error) {
	return s.eps.Visible(ctx, owner, id)
}

// ListEndpoints returns the endpoints of owner and the shared ones, oldest first, each as
// GetEndpoint returns it.
func (s *Service) ListEndpoints(ctx context.Context, owner string) ([]*Endpoint, error) {
	return s.eps.List(ctx, owner)
}

// AllEndpoints yields the endpoints of all users and the shared ones, for operators, with
// their environments.
func (s *Service) AllEndpoints(ctx context.Context) iter.Seq2[*Endpoint, error] {
	return s.endpoints.List(ctx)
}

// ListAllEndpoints returns the endpoints of all users and the shared ones, as ListEndpoints does.
func (s *Service) ListAllEndpoints(ctx context.Context) ([]*Endpoint, error) { return s.eps.All(ctx) }

// UpdateEndpoint changes an endpoint of owner. A change of what its workers are made of
// (image, args, env, disk, ports, registry, machines, data centers, volumes, flashboot) is a
// release: new workers use it. A change of name, workers, scaling or timeout applies at once.
//
// Errors are ErrNoEndpoint, ErrSharedEndpoint, and the faults of r as in CreateEndpoint.
func (s *Service) UpdateEndpoint(ctx context.Context, owner, id string, r endpoints.UpdateRequest) (*Endpoint, error) {
	e, err := s.eps.Update(ctx, owner, id, r)
	if err == nil {
		s.Resync()
	}
	return e, err
}

// DeleteEndpoint removes an endpoint of owner, cancels its jobs, also those of other users,
// and stops its workers. Webhooks of the jobs are still sent. Inputs go at once where no webhook
// needs them; results stay until the retention of the jobs is over. Errors are ErrNoEndpoint and
// ErrSharedEndpoint. After any other error the endpoint may be gone while some of its jobs
// remain until their ttl.
func (s *Service) DeleteEndpoint(ctx context.Context, owner, id string) error {
	if err := s.eps.Delete(ctx, owner, id); err != nil {
		return err
	}
	s.balancer.Forget(id)
	defer s.Resync()
	return s.endAll(ctx, id)
}

// endAll ends the jobs of an endpoint that is gone, even if the caller's ctx ends.
func (s *Service) endAll(ctx context.Context, id string) error {
	ctx = context.WithoutCancel(ctx)
	if err := s.removeSchedules(ctx, id); err != nil {
		return err
	}
	if err := s.removeBatches(ctx, id); err != nil {
		return err
	}
	if err := s.endJobs(ctx, id); err != nil {
		return fmt.Errorf("serverless: delete endpoint %q: end its jobs: %w", id, err)
	}
	return nil
}

// endRounds bounds the passes over the jobs of a deleted endpoint. A job that was submitted
// or released during one pass is found by the next.
const endRounds = 8

// endJobs cancels all jobs of an endpoint, and deletes its dead letters. It purges the queued jobs first, in small steps,
// so that the listing after it is short.
func (s *Service) endJobs(ctx context.Context, endpoint string) error {
	if _, err := s.purge(ctx, AllOwners, endpoint); err != nil {
		return err
	}
	if err := s.dropAllDead(ctx, AllOwners, endpoint); err != nil {
		return err
	}
	for range endRounds {
		n, err := s.cancelAll(ctx, endpoint)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	return s.dropInputs(ctx, endpoint)
}

// dropInputs removes the inputs of jobs that have ended. Their results stay until their retention
// is over.
func (s *Service) dropInputs(ctx context.Context, endpoint string) error {
	var ops []queue.Op
	for j, err := range s.queue.List(ctx, s.now(), queue.ListQuery{Endpoint: endpoint, Status: []Status{Completed, Failed, TimedOut}}) {
		if err != nil {
			return err
		}
		if j.HasInput() && j.Flags&queue.HasWebhook == 0 {
			ops = append(ops, queue.Op{Ref: j.Ref, Kind: queue.OpDropInput})
		}
	}
	return s.applySteps(ctx, ops)
}

// cancelAll cancels the jobs that have not ended and returns their number.
func (s *Service) cancelAll(ctx context.Context, endpoint string) (int, error) {
	var ops []queue.Op
	for j, err := range s.queue.List(ctx, s.now(), queue.ListQuery{Endpoint: endpoint, Status: []Status{InQueue, InProgress}}) {
		if err != nil {
			return 0, err
		}
		ops = append(ops, queue.Op{Ref: j.Ref, Kind: queue.OpCancel})
	}
	if err := s.applySteps(ctx, ops); err != nil {
		return 0, err
	}
	return len(ops), nil
}
