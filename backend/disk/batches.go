package disk

import (
	"context"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/batches"
)

// Batches is a batches.Store. The requests of a batch are jobs of the queue.
type Batches struct{ o owned[batches.Batch] }

var _ batches.Store = (*Batches)(nil)

// Batches returns the store of batches.
func (s *Store) Batches() *Batches {
	return &Batches{owned[batches.Batch]{
		s: s, kind: keyBatch, of: func(e *engine) *table[batches.Batch] { return &e.batches },
		clone: batches.Batch.Clone, order: batches.Compare,
		notFound: batches.ErrNotFound, exists: batches.ErrExists,
	}}
}

// Create implements batches.Store.
func (s *Batches) Create(ctx context.Context, b batches.Batch) error {
	return s.o.create(ctx, b.ID, b)
}

// CreateKeyed implements batches.Store.
func (s *Batches) CreateKeyed(ctx context.Context, b batches.Batch, r idempotency.Record) error {
	return s.o.create(ctx, b.ID, b, r)
}

// FindKey implements batches.Store.
func (s *Batches) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return s.o.s.findKey(key)
}

// Get implements batches.Store.
func (s *Batches) Get(_ context.Context, id string) (batches.Batch, error) { return s.o.get(id) }

// List implements batches.Store.
func (s *Batches) List(_ context.Context, owner string) ([]batches.Batch, error) {
	return s.o.list(func(b *batches.Batch) bool { return b.Owner == owner })
}

// All implements batches.Store.
func (s *Batches) All(context.Context) ([]batches.Batch, error) {
	return s.o.list(func(*batches.Batch) bool { return true })
}

// Update implements batches.Store.
func (s *Batches) Update(ctx context.Context, id string, fn func(*batches.Batch) error) (batches.Batch, error) {
	return s.o.update(ctx, id, fn)
}

// Delete implements batches.Store.
func (s *Batches) Delete(ctx context.Context, id string) error { return s.o.delete(ctx, id) }
