package postgres

import (
	"cmp"
	"context"

	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem/idempotency"
)

// Volumes is a volumes.Store.
type Volumes struct {
	keyFinder
	r records[volumes.Volume]
}

var _ volumes.Store = (*Volumes)(nil)

// Volumes returns the store of network volumes.
func (s *Store) Volumes() *Volumes {
	return &Volumes{keyFinder{s}, records[volumes.Volume]{
		s: s, table: "volumes", order: func(a, b volumes.Volume) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		},
		id:       func(v *volumes.Volume) string { return v.ID },
		owner:    func(v *volumes.Volume) string { return v.Owner },
		notFound: volumes.ErrNotFound, exists: volumes.ErrExists,
	}}
}

// Create implements volumes.Store.
func (s *Volumes) Create(ctx context.Context, v volumes.Volume) error { return s.r.create(ctx, v) }

// CreateKeyed implements volumes.Store.
func (s *Volumes) CreateKeyed(ctx context.Context, v volumes.Volume, r idempotency.Record) error {
	return s.r.create(ctx, v, r)
}

// Get implements volumes.Store.
func (s *Volumes) Get(ctx context.Context, id string) (volumes.Volume, error) {
	return s.r.get(ctx, id)
}

// List implements volumes.Store.
func (s *Volumes) List(ctx context.Context, owner string) ([]volumes.Volume, error) {
	return s.r.of(ctx, owner)
}

// All implements volumes.Store.
func (s *Volumes) All(ctx context.Context) ([]volumes.Volume, error) { return s.r.all(ctx) }

// Update implements volumes.Store.
func (s *Volumes) Update(ctx context.Context, id string, fn func(*volumes.Volume) error) (volumes.Volume, error) {
	return s.r.update(ctx, id, fn)
}

// Delete implements volumes.Store.
func (s *Volumes) Delete(ctx context.Context, id string) error { return s.r.delete(ctx, id) }
