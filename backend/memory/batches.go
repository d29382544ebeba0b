package memory

import (
	"context"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/batches"
)

// Batches is a batches.Store. It is safe for concurrent use.
type Batches struct {
	keyed
	counted
	t *owned[batches.Batch]
}

var _ batches.Store = (*Batches)(nil)

// NewBatches returns an empty store.
func NewBatches() *Batches {
	t := newOwned(&owned[batches.Batch]{
		holding: (*batches.Batch).Holding,
		clone:   batches.Batch.Clone, order: batches.Compare,
		notFound: batches.ErrNotFound, exists: batches.ErrExists,
	})
	return &Batches{counted: counted{&t.Tally}, t: t}
}

// Create implements batches.Store.
func (s *Batches) Create(_ context.Context, v batches.Batch) error {
	return s.t.create(v.ID, v.Owner, v)
}

// CreateKeyed implements batches.Store.
func (s *Batches) CreateKeyed(ctx context.Context, v batches.Batch, r idempotency.Record) error {
	return s.addKeyed(func() error { return s.Create(ctx, v) }, r)
}

// Get implements batches.Store.
func (s *Batches) Get(_ context.Context, id string) (batches.Batch, error) { return s.t.get(id) }

// List implements batches.Store.
func (s *Batches) List(_ context.Context, owner string) ([]batches.Batch, error) {
	return s.t.list(owner)
}

// All implements batches.Store.
func (s *Batches) All(context.Context) ([]batches.Batch, error) {
	return s.t.all(func(*batches.Batch) bool { return true })
}

// Update implements batches.Store.
func (s *Batches) Update(_ context.Context, id string, fn func(*batches.Batch) error) (batches.Batch, error) {
	return s.t.update(id, fn)
}

// Delete implements batches.Store.
func (s *Batches) Delete(_ context.Context, id string) error { return s.t.delete(id) }
