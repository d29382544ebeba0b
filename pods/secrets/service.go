package secrets

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/clock"
)

// A Clock has the time.
type Clock interface {
	Now() time.Time
}

// Options of a Service. Nil is all defaults.
type Options struct {
	Clock Clock // default the system's
}

// A Service is the rules of secrets over a Store. It is safe for concurrent use.
type Service struct {
	store Store
	clock Clock
}

// New returns a service over store.
func New(store Store, o *Options) *Service {
	s := &Service{store: store, clock: clock.System{}}
	if o != nil && o.Clock != nil {
		s.clock = o.Clock
	}
	return s
}

// Create stores a secret of owner. Errors: the faults of r, ErrExists for a name that is taken. So a
// request that is repeated creates nothing twice.
func (s *Service) Create(ctx context.Context, owner string, r CreateRequest) (Secret, error) {
	if err := r.check(); err != nil {
		return Secret{}, err
	}
	now := s.clock.Now().UTC()
	made := Secret{ID: IDOf(owner, r.Name), Owner: owner, Name: r.Name, Created: now, ValueSet: now, Size: len(r.Value), Value: r.Value}
	if r.Description != nil {
		made.Description = *r.Description
	}
	if err := s.store.Create(ctx, made); err != nil {
		return Secret{}, fmt.Errorf("secrets: create: %w", err)
	}
	return made.Listed(), nil
}

// Get returns a secret of owner without its value, or ErrNotFound.
func (s *Service) Get(ctx context.Context, owner, id string) (Secret, error) {
	v, err := s.find(ctx, owner, id)
	return v.Listed(), err
}

// List returns the secrets of owner, oldest first, without their values.
func (s *Service) List(ctx context.Context, owner string) ([]Secret, error) {
	return listed(s.store.List(ctx, owner))
}

// All returns the secrets of all users in the same way.
func (s *Service) All(ctx context.Context) ([]Secret, error) { return listed(s.store.All(ctx)) }

func listed(list []Secret, err error) ([]Secret, error) {
	if err != nil {
		return nil, fmt.Errorf("secrets: list: %w", err)
	}
	return list, nil
}

// Owner returns whose a secret is, or ErrNotFound.
func (s *Service) Owner(ctx context.Context, id string) (string, error) {
	v, err := s.store.Get(ctx, id)
	if err != nil {
		return "", fmt.Errorf("secrets: get %q: %w", id, err)
	}
	return v.Owner, nil
}

// Update changes the value or the description of a secret of owner. Containers that run keep what
// they have.
func (s *Service) Update(ctx context.Context, owner, id string, r UpdateRequest) (Secret, error) {
	if err := r.check(); err != nil {
		return Secret{}, err
	}
	now := s.clock.Now().UTC()
	v, err := s.store.Update(ctx, id, func(v *Secret) error {
		if v.Owner != owner {
			return ErrNotFound
		}
		if r.Value != nil {
			v.Value, v.Size, v.ValueSet = *r.Value, len(*r.Value), now
		}
		if r.Description != nil {
			v.Description = *r.Description
		}
		return nil
	})
	if err != nil {
		return Secret{}, fmt.Errorf("secrets: update %q: %w", id, err)
	}
	return v.Listed(), nil
}

// Delete removes a secret of owner, or returns ErrNotFound. New containers get nothing in its place.
func (s *Service) Delete(ctx context.Context, owner, id string) error {
	if _, err := s.find(ctx, owner, id); err != nil {
		return err
	}
	if err := s.store.Delete(ctx, id); err != nil {
		return fmt.Errorf("secrets: delete %q: %w", id, err)
	}
	return nil
}

// find hides the secrets of others: they are not found.
func (s *Service) find(ctx context.Context, owner, id string) (Secret, error) {
	v, err := s.store.Get(ctx, id)
	if err == nil && v.Owner != owner {
		err = ErrNotFound
	}
	if err != nil {
		return Secret{}, fmt.Errorf("secrets: get %q: %w", id, err)
	}
	return v, nil
}

// SecretValue returns the value of the secret of owner with a name, whatever its case, or
// ErrNotFound.
func (s *Service) SecretValue(ctx context.Context, owner, name string) (string, error) {
	v, err := s.store.Get(ctx, IDOf(owner, name))
	if err == nil && (v.Owner != owner || !strings.EqualFold(v.Name, name)) {
		err = ErrNotFound
	}
	if err != nil {
		return "", fmt.Errorf("secrets: find %q: %w", name, err)
	}
	return string(v.Value), nil
}
