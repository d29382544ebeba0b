package endpoints

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// ErrShared is returned when a user changes a shared endpoint: only the program changes it.
var ErrShared = problem.New(problem.Forbidden, "the endpoint belongs to the service's configuration and cannot be changed")

// Options configures a Service. The zero value, and nil, work.
type Options struct {
	// Clock tells when an endpoint or a release was made. Default: the system's.
	Clock interface{ Now() time.Time }
	// Rand makes ids. Default: crypto/rand.
	Rand io.Reader
	// Catalog knows the ids that endpoints name. Default: none, and ids are not checked.
	Catalog Catalog
	// Registries finds the credentials that endpoints name. Default: none, and no credential
	// exists.
	Registries Registries
	// Volumes finds the network volumes that endpoints name. Default: none, and no volume
	// exists.
	Volumes Volumes
	// Templates finds what requests for endpoints start from. Default: none, and no
	// template exists.
	Templates Templates
	// Admission judges what workers are made of. Default: users may ask for anything.
	Admission Admission
	// Balances says that load-balancing endpoints are offered. Default: they are refused.
	Balances bool
}

// A Service holds the rules of endpoints over a Store. It is safe for concurrent use.
type Service struct {
	store      Store
	clock      interface{ Now() time.Time }
	rand       io.Reader
	catalog    Catalog    // may be nil
	registries Registries // may be nil
	volumes    Volumes    // may be nil
	templates  Templates  // may be nil
	admission  Admission  // may be nil
	keys       idempotency.Guard
	balances   bool
}

// New returns a service over a store. o may be nil.
func New(store Store, o *Options) *Service {
	if o == nil {
		o = &Options{}
	}
	s := &Service{
		store: store, clock: o.Clock, rand: o.Rand,
		catalog: o.Catalog, registries: o.Registries, volumes: o.Volumes, templates: o.Templates,
		admission: o.Admission, balances: o.Balances,
	}
	if s.clock == nil {
		s.clock = clock.System{}
	}
	if s.rand == nil {
		s.rand = rand.Reader
	}
	return s
}

// Create checks r and adds an endpoint of owner. An absent setting has its default:
// DefaultDisk, no minimum and DefaultMaxWorkers as the maximum of workers, DefaultIdle,
// DefaultTimeout, one GPU, FlashBootOff.
//
// A template that does not exist is an error by itself (404). All other violations are
// reported together: 422 for a value, 400 for a rule that concerns several fields. A request
// that was made before with its key gets *idempotency.Repeated.
func (s *Service) Create(ctx context.Context, owner string, r CreateRequest) (*Endpoint, error) {
	return idempotency.Do(ctx, r.Idempotency, idempotency.Creation[*Endpoint]{
		Guard: &s.keys, Store: s.store, Now: s.clock.Now(),
		Check: func() error {
			_, err := s.newEndpoint(ctx, owner, &r)
			return err
		},
		Create: func(k *idempotency.Record) (*Endpoint, error) { return s.create(ctx, owner, r, k) },
	})
}

func (s *Service) create(ctx context.Context, owner string, r CreateRequest, k *idempotency.Record) (*Endpoint, error) {
	e, err := s.newEndpoint(ctx, owner, &r)
	if err != nil {
		return nil, err
	}
	release, err := s.shortID()
	if err != nil {
		return nil, err
	}
	e.addFirstRelease(release, owner, e.Created)
	// A made id is never a reserved one: those are shorter or have other characters.
	err = id.NewUnique(s.rand, ErrExists, func(made string) error {
		e.ID = made
		return idempotency.Add(ctx, s.store, e, made, k)
	})
	if err != nil {
		return nil, fmt.Errorf("endpoints: create endpoint: %w", err)
	}
	return e, nil
}

// newEndpoint turns a valid request into an endpoint that has no id yet.
func (s *Service) newEndpoint(ctx context.Context, owner string, r *CreateRequest) (*Endpoint, error) {
	faults := r.Violations
	v := s.rules(&faults)
	t, err := s.fromTemplate(ctx, v, owner, &r.Settings)
	if err != nil {
		return nil, err
	}
	r.defaultCUDA(t)
	v.create(r)
	e := &Endpoint{
		Owner: owner, Created: s.clock.Now().UTC().Truncate(time.Millisecond),
		Container:   Container{Disk: DefaultDisk},
		Workers:     WorkerLimits{Max: DefaultMaxWorkers, Idle: DefaultIdle},
		ExecTimeout: DefaultTimeout, FlashBoot: FlashBootOff,
	}
	if r.Type == LoadBalancerType {
		e.Type = r.Type
	}
	r.apply(e, s.catalog)
	v.crossField(&r.Settings, nil, e)
	s.admit(&r.Settings, e, &faults)
	if err := s.checkRegistry(ctx, v, owner, r.Registry); err != nil {
		return nil, err
	}
	if err := s.checkVolumes(ctx, v, &r.Settings, e); err != nil {
		return nil, err
	}
	if err := faults.Err(endpointOrder); err != nil {
		return nil, err
	}
	return e, nil
}

// admit judges the container of e, which r has made, if r says anything of what the workers
// run.
func (s *Service) admit(r *Settings, e *Endpoint, faults *problem.Violations) {
	if s.admission != nil && (r.Image != nil || !r.command().IsZero() || r.Env != nil) {
		s.admission.AdmitWorker(e.Owner, e.Container, faults)
	}
}

func (s *Service) rules(faults *problem.Violations) endpointRules {
	return endpointRules{s.catalog, s.balances, container.Rules{Violations: faults}}
}

// checkRegistry adds a violation if the credential is not one of owner. It returns an
// error only if the store of credentials failed.
func (s *Service) checkRegistry(ctx context.Context, v endpointRules, owner string, id *string) error {
	if id == nil {
		return nil
	}
	if err := v.Registry(ctx, s.registries, owner, *id); err != nil {
		return fmt.Errorf("endpoints: %w", err)
	}
	return nil
}

// checkVolumes checks the network volumes of e, the result of r, unless r changes neither
// volumes nor data centers. It returns an error only if the store of volumes failed.
func (s *Service) checkVolumes(ctx context.Context, v endpointRules, r *Settings, e *Endpoint) error {
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
			return fmt.Errorf("endpoints: network volume %q: %w", id, err)
		}
	}
	v.volumes(e, dataCenters, r.NetworkVolumes != nil)
	return nil
}

// Declare creates a shared endpoint with this id, or changes the one that exists so that it
// is as r says. A program declares the endpoints of its configuration at every start: only
// a real change is a release. Without a timeout its jobs have the default of 600,000 ms
// (docs/decisions.md 26). It returns ErrExists if a user's endpoint has the id, and otherwise
// the errors of CheckID and Create.
func (s *Service) Declare(ctx context.Context, id string, r CreateRequest) (*Endpoint, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	e, err := s.newEndpoint(ctx, "", &r)
	if err != nil {
		return nil, err
	}
	release, err := s.shortID()
	if err != nil {
		return nil, err
	}
	e.ID = id
	if r.Timeout == nil {
		e.ExecTimeout = 0 // jobs have the default of a program's endpoint: 600,000 ms
	}
	e.addFirstRelease(release, "", e.Created)
	err = s.store.Create(ctx, e)
	if errors.Is(err, ErrExists) {
		e, err = s.store.Update(ctx, id, func(old *Endpoint) error { return redeclare(old, e, release) })
	}
	if err != nil {
		return nil, fmt.Errorf("endpoints: declare endpoint %q: %w", id, err)
	}
	return e, nil
}

// CheckDeclare returns the error that Declare would return, and changes nothing.
func (s *Service) CheckDeclare(ctx context.Context, id string, r CreateRequest) error {
	if err := CheckID(id); err != nil {
		return err
	}
	if _, err := s.newEndpoint(ctx, "", &r); err != nil {
		return err
	}
	e, err := s.store.Get(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err == nil:
		err = e.shared()
	}
	if err != nil {
		return fmt.Errorf("endpoints: declare endpoint %q: %w", id, err)
	}
	return nil
}

// Undeclare removes a shared endpoint; nil if there is none with this id. It returns
// ErrExists if a user's endpoint has the id.
func (s *Service) Undeclare(ctx context.Context, id string) error {
	e, err := s.store.Get(ctx, id)
	if err == nil {
		err = e.shared()
	}
	if err == nil {
		err = s.store.Delete(ctx, id)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("endpoints: remove endpoint %q: %w", id, err)
	}
	return nil
}

// Ensure creates a shared endpoint without managed workers. It changes nothing if a shared
// endpoint with this id and type exists. It returns ErrExists if the id belongs to a user's
// endpoint or to one of another type; other errors are those of CheckID and of the Store.
func (s *Service) Ensure(ctx context.Context, id string, t Type) error {
	if err := CheckID(id); err != nil {
		return err
	}
	e := &Endpoint{ID: id, Name: id, Created: s.clock.Now().UTC().Truncate(time.Millisecond)}
	if t == LoadBalancerType {
		e.Type, e.Scaling = t, Scaling{Type: RequestCount, Count: 1}
	}
	err := s.store.Create(ctx, e)
	if errors.Is(err, ErrExists) {
		var old *Endpoint
		if old, err = s.store.Get(ctx, id); err == nil {
			err = old.shared()
		}
		if err == nil && old.Balances() != e.Balances() {
			err = fmt.Errorf("%w: by an endpoint of another type", ErrExists)
		}
	}
	if err != nil {
		return fmt.Errorf("endpoints: ensure endpoint %q: %w", id, err)
	}
	return nil
}

// shared returns ErrExists, with the owner, for the endpoint of a user.
func (e *Endpoint) shared() error {
	if e.Owner == "" {
		return nil
	}
	return fmt.Errorf("%w: by an endpoint of user %q, which must be deleted first", ErrExists, e.Owner)
}

// redeclare replaces the settings of a shared endpoint by those of e and keeps its history.
func redeclare(old, e *Endpoint, release string) error {
	if err := old.shared(); err != nil {
		return err
	}
	was := old.Clone()
	now := e.Created
	*old = *e.Clone()
	old.Created, old.Version, old.Releases, old.Cordon, old.Queue = was.Created, was.Version, was.Releases, was.Cordon, was.Queue
	return old.addRelease(was, release, "", now)
}

// Get returns an endpoint of owner or a shared one; ErrNotFound for any other. The
// environment of a shared endpoint is left out, in its releases too: it may hold secrets of
// the program, and every user sees the endpoint.
func (s *Service) Get(ctx context.Context, owner, id string) (*Endpoint, error) {
	e, err := s.Visible(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return e.redacted(), nil
}

// Visible returns an endpoint that owner may use, with its environment, and otherwise
// ErrNotFound. Use Get for what a user reads.
func (s *Service) Visible(ctx context.Context, owner, id string) (*Endpoint, error) {
	e, err := s.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !e.visibleTo(owner) {
		return nil, ErrNotFound
	}
	return e, nil
}

// List returns the endpoints of owner and the shared ones, oldest first, as Get shows them.
func (s *Service) List(ctx context.Context, owner string) ([]*Endpoint, error) {
	return s.list(ctx, func(e *Endpoint) bool { return e.visibleTo(owner) })
}

// All returns the endpoints of all users and the shared ones, as List does.
func (s *Service) All(ctx context.Context) ([]*Endpoint, error) {
	return s.list(ctx, func(*Endpoint) bool { return true })
}

func (s *Service) list(ctx context.Context, keep func(*Endpoint) bool) ([]*Endpoint, error) {
	var list []*Endpoint
	for e, err := range s.store.List(ctx) {
		if err != nil {
			return nil, fmt.Errorf("endpoints: list endpoints: %w", err)
		}
		if keep(e) {
			list = append(list, e.redacted())
		}
	}
	return list, nil
}

func (e *Endpoint) visibleTo(owner string) bool { return e.Owner == "" || e.Owner == owner }

// redacted removes from e, which must be a copy, what users may not read.
func (e *Endpoint) redacted() *Endpoint {
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

// Update changes an endpoint of owner. A change of image, args, env, disk, ports, registry,
// machines, data centers, volumes or flashboot is a release: new workers are made of it.
// Name, worker limits, scaling and timeout take effect at once.
//
// Errors: ErrNotFound, ErrShared, and the violations of r as in Create.
func (s *Service) Update(ctx context.Context, owner, id string, r UpdateRequest) (*Endpoint, error) {
	e, err := s.owned(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	faults := r.Violations
	v := s.rules(&faults)
	if _, err := s.fromTemplate(ctx, v, owner, &r.Settings); err != nil {
		return nil, err
	}
	v.values(&r.Settings)
	if err := s.checkRegistry(ctx, v, owner, r.Registry); err != nil {
		return nil, err
	}
	next := e.Clone()
	r.apply(next, s.catalog)
	v.crossField(&r.Settings, e, next)
	s.admit(&r.Settings, next, &faults)
	if err := s.checkVolumes(ctx, v, &r.Settings, next); err != nil {
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
	e, err = s.store.Update(ctx, id, func(e *Endpoint) error {
		// Another update may have come between the check above and this one.
		was := e.Clone()
		var found problem.Violations
		r.apply(e, s.catalog)
		s.rules(&found).crossField(&r.Settings, was, e)
		s.admit(&r.Settings, e, &found)
		if err := found.Err(endpointOrder); err != nil {
			return err
		}
		return e.addRelease(was, release, owner, now)
	})
	if err != nil {
		return nil, fmt.Errorf("endpoints: update endpoint %q: %w", id, err)
	}
	return e, nil
}

// SetCordon is an operator's act on an endpoint of any owner. It is no release.
func (s *Service) SetCordon(ctx context.Context, id string, c Cordon) (*Endpoint, error) {
	e, err := s.store.Update(ctx, id, func(e *Endpoint) error {
		e.Cordon = c
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("endpoints: cordon endpoint %q: %w", id, err)
	}
	return e, nil
}

// owned returns an endpoint that owner may change.
func (s *Service) owned(ctx context.Context, owner, id string) (*Endpoint, error) {
	e, err := s.store.Get(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case e.Owner == "":
		return nil, ErrShared
	case e.Owner != owner:
		return nil, ErrNotFound
	}
	return e, nil
}

// Delete removes an endpoint of owner. Errors: ErrNotFound, ErrShared.
func (s *Service) Delete(ctx context.Context, owner, id string) error {
	if _, err := s.owned(ctx, owner, id); err != nil {
		return err
	}
	if err := s.store.Delete(ctx, id); err != nil {
		return fmt.Errorf("endpoints: delete endpoint %q: %w", id, err)
	}
	return nil
}

// shortID makes an id of 14 lower-case letters and digits.
func (s *Service) shortID() (string, error) {
	made, err := id.New(s.rand)
	if err != nil {
		return "", fmt.Errorf("endpoints: read random bytes for an id: %w", err)
	}
	return made, nil
}
