package serverless

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/problem"
)

// ErrSharedEndpoint answers a change of an endpoint that the program's configuration
// made: everybody may use it, and only the program changes it.
var ErrSharedEndpoint = problem.New(problem.Forbidden, "the endpoint belongs to the service's configuration and cannot be changed")

// CreateEndpoint checks r and adds an endpoint of owner. Its workers follow. What is
// absent in r has its default: a disk of DefaultDisk, 0 to DefaultMaxWorkers workers that
// go after DefaultIdle without a job, DefaultTimeout, one GPU, FlashBootOff.
//
// A template that does not exist is an error at once (404). All faults of the request are
// reported together (422, or 400 for rules across fields).
func (s *Service) CreateEndpoint(ctx context.Context, owner string, r CreateEndpointRequest) (*Endpoint, error) {
	e, err := s.draft(ctx, owner, &r)
	if err != nil {
		return nil, err
	}
	release, err := s.shortID()
	if err != nil {
		return nil, err
	}
	e.first(release, owner, e.Created)
	// No id is reserved: those are shorter, or have other characters.
	err = id.Claim(s.rand, ErrEndpointExists, func(made string) error {
		e.ID = made
		return s.endpoints.Create(ctx, e)
	})
	if err != nil {
		return nil, fmt.Errorf("serverless: create endpoint: %w", err)
	}
	s.restaff()
	return e, nil
}

// draft makes a valid request an endpoint without an id.
func (s *Service) draft(ctx context.Context, owner string, r *CreateEndpointRequest) (*Endpoint, error) {
	faults := r.Faults
	v := s.rules(&faults)
	t, err := s.fromTemplate(ctx, v, owner, &r.EndpointSettings)
	if err != nil {
		return nil, err
	}
	r.seedCUDA(t)
	v.create(r)
	e := &Endpoint{
		Owner: owner, Created: s.clock.Now().UTC().Truncate(time.Millisecond),
		Container:   Container{Disk: DefaultDisk},
		Workers:     WorkerLimits{Max: DefaultMaxWorkers, Idle: DefaultIdle},
		ExecTimeout: DefaultTimeout, FlashBoot: FlashBootOff,
	}
	r.apply(e, s.catalog)
	v.across(&r.EndpointSettings, nil, e)
	if err := s.checkRegistry(ctx, v, owner, r.Registry); err != nil {
		return nil, err
	}
	if err := s.checkVolumes(ctx, v, &r.EndpointSettings, e); err != nil {
		return nil, err
	}
	if err := faults.Err(endpointOrder); err != nil {
		return nil, err
	}
	return e, nil
}

func (s *Service) rules(faults *problem.Violations) endpointRules {
	return endpointRules{s.catalog, container.Rules{Violations: faults}}
}

// checkRegistry asks for a credential of owner. Its error is the store's.
func (s *Service) checkRegistry(ctx context.Context, v endpointRules, owner string, id *string) error {
	if id == nil {
		return nil
	}
	if err := v.Registry(ctx, s.secrets, owner, *id); err != nil {
		return fmt.Errorf("serverless: %w", err)
	}
	return nil
}

// checkVolumes judges the network volumes of e, which r has made, if r says anything of
// where workers go. Its error is that of who keeps volumes.
func (s *Service) checkVolumes(ctx context.Context, v endpointRules, r *EndpointSettings, e *Endpoint) error {
	if len(e.NetworkVolumes) == 0 || r.NetworkVolumes == nil && r.DataCenterIDs == nil {
		return nil
	}
	dataCenters := make([]string, len(e.NetworkVolumes))
	for i, id := range e.NetworkVolumes {
		if s.volumes == nil {
			break
		}
		dc, err := s.volumes.Volume(ctx, e.Owner, id)
		switch {
		case err == nil:
			dataCenters[i] = dc
		case problem.KindOf(err) != problem.NotFound:
			return fmt.Errorf("serverless: network volume %q: %w", id, err)
		}
	}
	v.volumes(e, dataCenters, r.NetworkVolumes != nil)
	return nil
}

// DeclareEndpoint has a shared endpoint be as r says, whether it is there or not: it is
// how a program's configuration makes endpoints that everybody may use. A change of what
// its workers are made of is a release. ErrEndpointExists if the id is that of a user's
// endpoint; other errors are those of CheckEndpointID and CreateEndpoint.
func (s *Service) DeclareEndpoint(ctx context.Context, id string, r CreateEndpointRequest) (*Endpoint, error) {
	if err := CheckEndpointID(id); err != nil {
		return nil, err
	}
	e, err := s.draft(ctx, "", &r)
	if err != nil {
		return nil, err
	}
	release, err := s.shortID()
	if err != nil {
		return nil, err
	}
	e.ID = id
	e.first(release, "", e.Created)
	err = s.endpoints.Create(ctx, e)
	if errors.Is(err, ErrEndpointExists) {
		e, err = s.endpoints.Update(ctx, id, func(old *Endpoint) error { return redeclare(old, e, release) })
	}
	if err != nil {
		return nil, fmt.Errorf("serverless: declare endpoint %q: %w", id, err)
	}
	s.restaff()
	return e, nil
}

// redeclare makes a shared endpoint what e is, with the history that it has.
func redeclare(old, e *Endpoint, release string) error {
	if old.Owner != "" {
		return ErrEndpointExists
	}
	was := old.Clone()
	now := e.Created
	*old = *e.Clone()
	old.Created, old.Version, old.Releases = was.Created, was.Version, was.Releases
	return old.release(was, release, "", now)
}

// GetEndpoint returns an endpoint of owner, or a shared one; ErrNoEndpoint for any other.
// The environment of a shared one is left out, also where it changed: it is for its
// workers, and everybody sees the endpoint.
func (s *Service) GetEndpoint(ctx context.Context, owner, id string) (*Endpoint, error) {
	e, err := s.seen(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return e.shown(), nil
}

// CheckEndpoint is nil for an endpoint that GetEndpoint would return: it is what a request
// for a job is let through by.
func (s *Service) CheckEndpoint(ctx context.Context, owner, id string) error {
	_, err := s.seen(ctx, owner, id)
	return err
}

func (s *Service) seen(ctx context.Context, owner, id string) (*Endpoint, error) {
	e, err := s.endpoints.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !e.isSeenBy(owner) {
		return nil, ErrNoEndpoint
	}
	return e, nil
}

// ListEndpoints returns the endpoints of owner and the shared ones, as GetEndpoint does,
// oldest first.
func (s *Service) ListEndpoints(ctx context.Context, owner string) ([]*Endpoint, error) {
	var list []*Endpoint
	for e, err := range s.endpoints.List(ctx) {
		if err != nil {
			return nil, fmt.Errorf("serverless: list endpoints: %w", err)
		}
		if e.isSeenBy(owner) {
			list = append(list, e.shown())
		}
	}
	return list, nil
}

func (e *Endpoint) isSeenBy(owner string) bool { return e.Owner == "" || e.Owner == owner }

// shown takes out of e, a copy, what only the program knows.
func (e *Endpoint) shown() *Endpoint {
	if e.Owner != "" {
		return e
	}
	e.Container.Env = nil
	for i := range e.Releases {
		r := &e.Releases[i]
		diff := append([]Change(nil), r.Diff...) // a copy shares the changes
		for k := range diff {
			if diff[k].Field == "env" {
				diff[k].Old, diff[k].New = nil, nil
			}
		}
		r.Diff = diff
	}
	return e
}

// UpdateEndpoint changes an endpoint of owner. A change of what its workers are made of
// (image, args, env, disk, ports, registry, machines, data centers, volumes, flashboot)
// is a release: new workers have it. Name, workers, scaling and timeout count at once.
//
// Errors: ErrNoEndpoint, ErrSharedEndpoint, the faults of r as in CreateEndpoint.
func (s *Service) UpdateEndpoint(ctx context.Context, owner, id string, r UpdateEndpointRequest) (*Endpoint, error) {
	e, err := s.owned(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	faults := r.Faults
	v := s.rules(&faults)
	if _, err := s.fromTemplate(ctx, v, owner, &r.EndpointSettings); err != nil {
		return nil, err
	}
	v.values(&r.EndpointSettings)
	if err := s.checkRegistry(ctx, v, owner, r.Registry); err != nil {
		return nil, err
	}
	next := e.Clone()
	r.apply(next, s.catalog)
	v.across(&r.EndpointSettings, e, next)
	if err := s.checkVolumes(ctx, v, &r.EndpointSettings, next); err != nil {
		return nil, err
	}
	if err := faults.Err(endpointOrder); err != nil {
		return nil, err
	}
	release, err := s.shortID()
	if err != nil {
		return nil, err
	}
	now := s.clock.Now().UTC().Truncate(time.Millisecond)
	e, err = s.endpoints.Update(ctx, id, func(e *Endpoint) error {
		// It may have changed since it was looked at.
		was := e.Clone()
		var found problem.Violations
		r.apply(e, s.catalog)
		s.rules(&found).across(&r.EndpointSettings, was, e)
		if err := found.Err(endpointOrder); err != nil {
			return err
		}
		return e.release(was, release, owner, now)
	})
	if err != nil {
		return nil, fmt.Errorf("serverless: update endpoint %q: %w", id, err)
	}
	s.restaff()
	return e, nil
}

// owned is an endpoint that owner may change.
func (s *Service) owned(ctx context.Context, owner, id string) (*Endpoint, error) {
	e, err := s.endpoints.Get(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case e.Owner == "":
		return nil, ErrSharedEndpoint
	case e.Owner != owner:
		return nil, ErrNoEndpoint
	}
	return e, nil
}

// DeleteEndpoint removes an endpoint of owner, cancels its jobs, whoever's they are, and
// has its workers stopped. Webhooks of the jobs are still sent. Errors: ErrNoEndpoint,
// ErrSharedEndpoint; after another one the endpoint may be gone and some of its jobs wait
// for their ttl.
func (s *Service) DeleteEndpoint(ctx context.Context, owner, id string) error {
	if _, err := s.owned(ctx, owner, id); err != nil {
		return err
	}
	if err := s.endpoints.Delete(ctx, id); err != nil {
		return fmt.Errorf("serverless: delete endpoint %q: %w", id, err)
	}
	defer s.restaff()
	// Whoever asked may leave now: the rest is to be done all the same.
	if err := s.endJobs(context.WithoutCancel(ctx), id); err != nil {
		return fmt.Errorf("serverless: delete endpoint %q: end its jobs: %w", id, err)
	}
	return nil
}

// endRounds bounds how often the jobs of a deleted endpoint are looked for: one that was
// being submitted, or handed back, when the others ended shows in the next round.
const endRounds = 8

// endJobs cancels all jobs of an endpoint. Purge ends any number of queued ones in small
// pieces, so that the listing after it is short.
func (s *Service) endJobs(ctx context.Context, endpoint string) error {
	if _, err := s.purge(ctx, Everyone, endpoint); err != nil {
		return err
	}
	for range endRounds {
		n, err := s.cancelAll(ctx, endpoint)
		if n == 0 || err != nil {
			return err
		}
	}
	return nil
}

// cancelAll cancels what has not ended and says how much there was.
func (s *Service) cancelAll(ctx context.Context, endpoint string) (int, error) {
	var ops []Op
	for j, err := range s.queue.List(ctx, s.now(), ListQuery{Endpoint: endpoint, Status: []Status{InQueue, InProgress}}) {
		if err != nil {
			return 0, err
		}
		ops = append(ops, Op{Ref: j.Ref, Kind: OpCancel})
	}
	for from := 0; from < len(ops); from += purgeStep {
		part := ops[from:min(from+purgeStep, len(ops))]
		if err := s.queue.Apply(ctx, s.now(), part, make([]Result, len(part))); err != nil {
			return 0, err
		}
	}
	return len(ops), nil
}

// shortID is 14 letters and digits.
func (s *Service) shortID() (string, error) {
	made, err := id.New(s.rand)
	if err != nil {
		return "", fmt.Errorf("serverless: read random bytes for an id: %w", err)
	}
	return made, nil
}
