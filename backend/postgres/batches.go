package postgres

import (
	"context"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/batches"
)

// Batches is a batches.Store. The requests of a batch are jobs of the queue.
type Batches struct {
	keyFinder
	r records[batches.Batch]
}

var _ batches.Store = (*Batches)(nil)

// Batches returns the store of batches.
func (s *Store) Batches() *Batches {
	return &Batches{keyFinder{s}, records[batches.Batch]{
		s: s, table: "batches", order: batches.Compare,
		id:       func(v *batches.Batch) string { return v.ID },
		owner:    func(v *batches.Batch) string { return v.Owner },
		notFound: batches.ErrNotFound, exists: batches.ErrExists,
	}}
}

// Create implements batches.Store.
func (s *Batches) Create(ctx context.Context, v batches.Batch) error { return s.r.create(ctx, v) }

// CreateKeyed implements batches.Store.
func (s *Batches) CreateKeyed(ctx context.Context, v batches.Batch, r idempotency.Record) error {
	return s.r.create(ctx, v, r)
}

// Get implements batches.Store.
func (s *Batches) Get(ctx context.Context, id string) (batches.Batch, error) { return s.r.get(ctx, id) }

// List implements batches.Store.
func (s *Batches) List(ctx context.Context, owner string) ([]batches.Batch, error) {
	return s.r.of(ctx, owner)
}

// All implements batches.Store.
func (s *Batches) All(ctx context.Context) ([]batches.Batch, error) { return s.r.all(ctx) }

// Update implements batches.Store.
func (s *Batches) Update(ctx context.Context, id string, fn func(*batches.Batch) error) (batches.Batch, error) {
	return s.r.update(ctx, id, fn)
}

// Delete implements batches.Store.
func (s *Batches) Delete(ctx context.Context, id string) error { return s.r.delete(ctx, id) }
