package memory

import (
	"context"

	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/problem/idempotency"
)

// Templates is a templates.Store. It is safe for concurrent use.
type Templates struct {
	keyed
	counted
	t *owned[templates.Template]
}

var _ templates.Store = (*Templates)(nil)

// NewTemplates returns an empty store.
func NewTemplates() *Templates {
	t := newOwned(&owned[templates.Template]{
		holding: (*templates.Template).Holding,
		clone:   templates.Template.Clone, order: templates.Compare,
		notFound: templates.ErrNotFound, exists: templates.ErrExists,
	})
	return &Templates{counted: counted{&t.Tally}, t: t}
}

// Create implements templates.Store.
func (s *Templates) Create(_ context.Context, t templates.Template) error {
	return s.t.create(t.ID, t.Owner, t)
}

// CreateKeyed implements templates.Store.
func (s *Templates) CreateKeyed(ctx context.Context, t templates.Template, r idempotency.Record) error {
	return s.addKeyed(func() error { return s.Create(ctx, t) }, r)
}

// Get implements templates.Store.
func (s *Templates) Get(_ context.Context, id string) (templates.Template, error) { return s.t.get(id) }

// List implements templates.Store.
func (s *Templates) List(_ context.Context, owner string) ([]templates.Template, error) {
	return s.t.list(owner)
}

// All implements templates.Store.
func (s *Templates) All(context.Context) ([]templates.Template, error) {
	return s.t.all(func(*templates.Template) bool { return true })
}

// Public implements templates.Store.
func (s *Templates) Public(context.Context) ([]templates.Template, error) {
	return s.t.all(func(t *templates.Template) bool { return t.Public })
}

// Update implements templates.Store.
func (s *Templates) Update(_ context.Context, id string, fn func(*templates.Template) error) (templates.Template, error) {
	return s.t.update(id, fn)
}

// Delete implements templates.Store.
func (s *Templates) Delete(_ context.Context, id string) error { return s.t.delete(id) }
