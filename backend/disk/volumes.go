package disk

import (
	"cmp"
	"context"

	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem/idempotency"
)

// Volumes is a volumes.Store.
type Volumes struct{ o owned[volumes.Volume] }

var _ volumes.Store = (*Volumes)(nil)

// Volumes returns the store of network volumes.
func (s *Store) Volumes() *Volumes {
	return &Volumes{owned[volumes.Volume]{
		s: s, kind: keyVolume, of: func(e *engine) *table[volumes.Volume] { return &e.volumes },
		clone: volumes.Volume.Clone,
		order: func(a, b volumes.Volume) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		},
		notFound: volumes.ErrNotFound, exists: volumes.ErrExists,
	}}
}

// Create implements volumes.Store.
func (s *Volumes) Create(ctx context.Context, v volumes.Volume) error {
	return s.o.create(ctx, v.ID, v)
}

// CreateKeyed implements volumes.Store.
func (s *Volumes) CreateKeyed(ctx context.Context, v volumes.Volume, r idempotency.Record) error {
	return s.o.create(ctx, v.ID, v, r)
}

// FindKey implements volumes.Store.
func (s *Volumes) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return s.o.s.findKey(key)
}

// Get implements volumes.Store.
func (s *Volumes) Get(_ context.Context, id string) (volumes.Volume, error) { return s.o.get(id) }

// List implements volumes.Store.
func (s *Volumes) List(_ context.Context, owner string) ([]volumes.Volume, error) {
	return s.o.list(func(v *volumes.Volume) bool { return v.Owner == owner })
}

// All implements volumes.Store.
func (s *Volumes) All(context.Context) ([]volumes.Volume, error) {
	return s.o.list(func(*volumes.Volume) bool { return true })
}

// Update implements volumes.Store.
func (s *Volumes) Update(ctx context.Context, id string, fn func(*volumes.Volume) error) (volumes.Volume, error) {
	return s.o.update(ctx, id, fn)
}

// Delete implements volumes.Store.
func (s *Volumes) Delete(ctx context.Context, id string) error { return s.o.delete(ctx, id) }
