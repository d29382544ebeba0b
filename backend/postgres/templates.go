package postgres

import (
	"context"

	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/problem/idempotency"
)

// Templates is a templates.Store.
type Templates struct {
	keyFinder
	r records[templates.Template]
}

var _ templates.Store = (*Templates)(nil)

// Templates returns the store of templates.
func (s *Store) Templates() *Templates {
	return &Templates{keyFinder{s}, records[templates.Template]{
		s: s, table: "templates", order: templates.Compare,
		id:     func(v *templates.Template) string { return v.ID },
		owner:  func(v *templates.Template) string { return v.Owner },
		column: "public", value: func(v *templates.Template) any { return v.Public },
		notFound: templates.ErrNotFound, exists: templates.ErrExists,
	}}
}

// Create implements templates.Store.
func (s *Templates) Create(ctx context.Context, v templates.Template) error {
	return s.r.create(ctx, v)
}

// CreateKeyed implements templates.Store.
func (s *Templates) CreateKeyed(ctx context.Context, v templates.Template, r idempotency.Record) error {
	return s.r.create(ctx, v, r)
}

// Get implements templates.Store.
func (s *Templates) Get(ctx context.Context, id string) (templates.Template, error) {
	return s.r.get(ctx, id)
}

// List implements templates.Store.
func (s *Templates) List(ctx context.Context, owner string) ([]templates.Template, error) {
	return s.r.of(ctx, owner)
}

// All implements templates.Store.
func (s *Templates) All(ctx context.Context) ([]templates.Template, error) { return s.r.all(ctx) }

// Public implements templates.Store.
func (s *Templates) Public(ctx context.Context) ([]templates.Template, error) {
	return s.r.list(ctx, `WHERE public`)
}

// Update implements templates.Store.
func (s *Templates) Update(ctx context.Context, id string, fn func(*templates.Template) error) (templates.Template, error) {
	return s.r.update(ctx, id, fn)
}

// Delete implements templates.Store.
func (s *Templates) Delete(ctx context.Context, id string) error { return s.r.delete(ctx, id) }
