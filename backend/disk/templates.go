package disk

import (
	"context"

	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/problem/idempotency"
)

// Templates is a templates.Store.
type Templates struct{ o owned[templates.Template] }

var _ templates.Store = (*Templates)(nil)

// Templates returns the store of templates.
func (s *Store) Templates() *Templates {
	return &Templates{owned[templates.Template]{
		s: s, kind: keyTemplate, of: func(e *engine) *table[templates.Template] { return &e.templates },
		clone: templates.Template.Clone, order: templates.Compare,
		notFound: templates.ErrNotFound, exists: templates.ErrExists,
	}}
}

// Create implements templates.Store.
func (s *Templates) Create(ctx context.Context, t templates.Template) error {
	return s.o.create(ctx, t.ID, t)
}

// CreateKeyed implements templates.Store.
func (s *Templates) CreateKeyed(ctx context.Context, t templates.Template, r idempotency.Record) error {
	return s.o.create(ctx, t.ID, t, r)
}

// FindKey implements templates.Store.
func (s *Templates) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return s.o.s.findKey(key)
}

// Get implements templates.Store.
func (s *Templates) Get(_ context.Context, id string) (templates.Template, error) { return s.o.get(id) }

// List implements templates.Store.
func (s *Templates) List(_ context.Context, owner string) ([]templates.Template, error) {
	return s.o.list(func(t *templates.Template) bool { return t.Owner == owner })
}

// All implements templates.Store.
func (s *Templates) All(context.Context) ([]templates.Template, error) {
	return s.o.list(func(*templates.Template) bool { return true })
}

// Public implements templates.Store.
func (s *Templates) Public(context.Context) ([]templates.Template, error) {
	return s.o.list(func(t *templates.Template) bool { return t.Public })
}

// Update implements templates.Store.
func (s *Templates) Update(ctx context.Context, id string, fn func(*templates.Template) error) (templates.Template, error) {
	return s.o.update(ctx, id, fn)
}

// Delete implements templates.Store.
func (s *Templates) Delete(ctx context.Context, id string) error { return s.o.delete(ctx, id) }
