package memory

import (
	"context"

	"github.com/podyard/podyard/internal/records"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
)

// Registries is a registries.Store. It is safe for concurrent use.
type Registries struct {
	keyed
	counted
	t *owned[registry]
}

var _ registries.Store = (*Registries)(nil)

// A registry is a registry with its credential.
type registry struct {
	registries.Registry
	credential registries.Credential
}

// NewRegistries returns an empty store.
func NewRegistries() *Registries {
	t := newOwned(records.Kind[registry]{
		ID:       func(r *registry) string { return r.ID },
		Owner:    func(r *registry) string { return r.Owner },
		Clone:    func(r *registry) *registry { c := *r; return &c },
		Order:    func(a, b registry) int { return registries.Compare(a.Registry, b.Registry) },
		Holding:  func(r *registry) budget.Holding { return r.Holding() },
		NotFound: registries.ErrNotFound, Exists: registries.ErrExists,
	})
	return &Registries{counted: counted{&t.Tally}, t: t}
}

// Create implements registries.Store.
func (s *Registries) Create(_ context.Context, r registries.Registry, c registries.Credential) error {
	return s.t.create(registry{r, c})
}

// CreateKeyed implements registries.Store.
func (s *Registries) CreateKeyed(ctx context.Context, r registries.Registry, c registries.Credential, k idempotency.Record) error {
	return s.addKeyed(func() error { return s.Create(ctx, r, c) }, k)
}

// Get implements registries.Store.
func (s *Registries) Get(_ context.Context, id string) (registries.Registry, registries.Credential, error) {
	r, err := value(s.t.get(id))
	return r.Registry, r.credential, err
}

// List implements registries.Store.
func (s *Registries) List(_ context.Context, owner string) ([]registries.Registry, error) {
	return shown(s.t.list(owner))
}

// All implements registries.Store.
func (s *Registries) All(context.Context) ([]registries.Registry, error) {
	return shown(s.t.all(func(*registry) bool { return true }))
}

// shown leaves the credentials out.
func shown(rows []registry, err error) (list []registries.Registry, _ error) {
	for _, r := range rows {
		list = append(list, r.Registry)
	}
	return list, err
}

// Delete implements registries.Store.
func (s *Registries) Delete(_ context.Context, id string) error { return s.t.delete(id) }
