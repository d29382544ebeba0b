package memory

import (
	"cmp"
	"context"

	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem/idempotency"
)

// Volumes is a volumes.Store. It is safe for concurrent use.
type Volumes struct {
	keyed
	counted
	t *owned[volumes.Volume]
}

var _ volumes.Store = (*Volumes)(nil)

// NewVolumes returns an empty store.
func NewVolumes() *Volumes {
	t := newOwned(&owned[volumes.Volume]{
		holding: (*volumes.Volume).Holding,
		clone:   volumes.Volume.Clone,
		order: func(a, b volumes.Volume) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		},
		notFound: volumes.ErrNotFound, exists: volumes.ErrExists,
	})
	return &Volumes{counted: counted{&t.Tally}, t: t}
}

// Create implements volumes.Store.
func (s *Volumes) Create(_ context.Context, v volumes.Volume) error {
	return s.t.create(v.ID, v.Owner, v)
}

// CreateKeyed implements volumes.Store.
func (s *Volumes) CreateKeyed(ctx context.Context, v volumes.Volume, r idempotency.Record) error {
	return s.addKeyed(func() error { return s.Create(ctx, v) }, r)
}

// Get implements volumes.Store.
func (s *Volumes) Get(_ context.Context, id string) (volumes.Volume, error) { return s.t.get(id) }

// List implements volumes.Store.
func (s *Volumes) List(_ context.Context, owner string) ([]volumes.Volume, error) {
	return s.t.list(owner)
}

// All implements volumes.Store.
func (s *Volumes) All(context.Context) ([]volumes.Volume, error) {
	return s.t.all(func(*volumes.Volume) bool { return true })
}

// Update implements volumes.Store.
func (s *Volumes) Update(_ context.Context, id string, fn func(*volumes.Volume) error) (volumes.Volume, error) {
	return s.t.update(id, fn)
}

// Delete implements volumes.Store.
func (s *Volumes) Delete(_ context.Context, id string) error { return s.t.delete(id) }
