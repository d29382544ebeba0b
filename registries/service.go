package registries

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/problem/idempotency"
)

// What registries needs of its neighbours, without importing them.
type (
	// InUse says whether registries are in use.
	InUse interface {
		// RegistryInUse reports whether a pod of owner names this registry.
		RegistryInUse(ctx context.Context, owner, id string) (bool, error)
	}
	// A Clock has the time.
	Clock interface {
		Now() time.Time
	}
)

// Options of a Service. Nil is all defaults.
type Options struct {
	Clock Clock     // default the system's
	Rand  io.Reader // ids are made of it, by one caller at a time. Default crypto/rand
	InUse InUse     // asked before a delete. Default: nothing is in use
}

// A Service is the rules of registries over a Store. It is safe for concurrent use if
// the Store is.
type Service struct {
	store Store
	o     Options
	keys  idempotency.Guard
}

// New returns a service over store.
func New(store Store, o *Options) *Service {
	s := &Service{store: store}
	if o != nil {
		s.o = *o
	}
	if s.o.Clock == nil {
		s.o.Clock = clock.System{}
	}
	if s.o.Rand == nil {
		s.o.Rand = rand.Reader
	}
	s.o.Rand = id.LockedReader(s.o.Rand)
	return s
}

// Create stores a credential of owner. A request that breaks the rules gets one error
// of kind problem.Invalid with all faults, and changes nothing. A request that was made before
// with its key gets *idempotency.Repeated.
func (s *Service) Create(ctx context.Context, owner string, r CreateRequest) (Registry, error) {
	return idempotency.Do(ctx, r.Idempotency, idempotency.Creation[Registry]{
		Guard: &s.keys, Store: s.store, Now: s.o.Clock.Now(),
		Check:  r.check,
		Create: func(k *idempotency.Record) (Registry, error) { return s.create(ctx, owner, r, k) },
	})
}

func (s *Service) create(ctx context.Context, owner string, r CreateRequest, k *idempotency.Record) (Registry, error) {
	if err := r.check(); err != nil {
		return Registry{}, err
	}
	made := Registry{Owner: owner, Name: r.Name, Created: s.o.Clock.Now().UTC()}
	err := id.NewUnique(s.o.Rand, ErrExists, func(id string) error {
		made.ID = id
		c := Credential{Username: r.Username, Password: r.Password}
		if k == nil {
			return s.store.Create(ctx, made, c)
		}
		k.ID = id
		return s.store.CreateKeyed(ctx, made, c, *k)
	})
	if err != nil {
		return Registry{}, fmt.Errorf("registries: create: %w", err)
	}
	return made, nil
}

// Get returns a registry of owner, or ErrNotFound.
func (s *Service) Get(ctx context.Context, owner, id string) (Registry, error) {
	r, _, err := s.find(ctx, owner, id)
	return r, err
}

// List returns the registries of owner, oldest first.
func (s *Service) List(ctx context.Context, owner string) ([]Registry, error) {
	return listed(s.store.List(ctx, owner))
}

// All returns the registries of all users, oldest first.
func (s *Service) All(ctx context.Context) ([]Registry, error) { return listed(s.store.All(ctx)) }

// Owner returns whose a registry is, or ErrNotFound.
func (s *Service) Owner(ctx context.Context, id string) (string, error) {
	r, _, err := s.store.Get(ctx, id)
	if err != nil {
		return "", fmt.Errorf("registries: get %q: %w", id, err)
	}
	return r.Owner, nil
}

func listed(list []Registry, err error) ([]Registry, error) {
	if err != nil {
		return nil, fmt.Errorf("registries: list: %w", err)
	}
	return list, nil
}

// Delete removes a registry of owner: ErrNotFound without it, ErrInUse while a pod names
// it. That check is a best effort: a pod created at the same moment may come to name a
// registry that is gone, and its next pull fails.
func (s *Service) Delete(ctx context.Context, owner, id string) error {
	if _, _, err := s.find(ctx, owner, id); err != nil {
		return err
	}
	if s.o.InUse != nil {
		used, err := s.o.InUse.RegistryInUse(ctx, owner, id)
		if err != nil {
			return fmt.Errorf("registries: delete %q: %w", id, err)
		}
		if used {
			return ErrInUse
		}
	}
	if err := s.store.Delete(ctx, id); err != nil {
		return fmt.Errorf("registries: delete %q: %w", id, err)
	}
	return nil
}

// PullSecret returns the user name and password of a registry of owner, or ErrNotFound.
// The host of the registry is not stored: registry is empty, and the image names it.
func (s *Service) PullSecret(ctx context.Context, owner, id string) (registry, username, password string, err error) {
	_, c, err := s.find(ctx, owner, id)
	if err != nil {
		return "", "", "", err
	}
	return "", string(c.Username), string(c.Password), nil
}

// find hides the registries of others: they are not found.
func (s *Service) find(ctx context.Context, owner, id string) (Registry, Credential, error) {
	r, c, err := s.store.Get(ctx, id)
	if err != nil {
		return Registry{}, Credential{}, fmt.Errorf("registries: get %q: %w", id, err)
	}
	if r.Owner != owner {
		return Registry{}, Credential{}, fmt.Errorf("registries: get %q: %w", id, ErrNotFound)
	}
	return r, c, nil
}
