package postgres

import (
	"context"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/schedules"
)

// Schedules is a schedules.Store. What only workers see is encrypted.
type Schedules struct {
	keyFinder
	r records[schedules.Schedule]
}

var _ schedules.Store = (*Schedules)(nil)

// Schedules returns the store of schedules.
func (s *Store) Schedules() *Schedules {
	return &Schedules{keyFinder{s}, records[schedules.Schedule]{
		s: s, table: "schedules", order: schedules.Compare,
		id:    func(v *schedules.Schedule) string { return v.ID },
		owner: func(v *schedules.Schedule) string { return v.Owner },
		hide: func(v schedules.Schedule) (schedules.Schedule, []byte, error) {
			secret := v.Secret
			v.Secret = nil
			return v, secret, nil
		},
		show:     func(v *schedules.Schedule, secret []byte) error { v.Secret = secret; return nil },
		notFound: schedules.ErrNotFound, exists: schedules.ErrExists,
	}}
}

// Create implements schedules.Store.
func (s *Schedules) Create(ctx context.Context, v schedules.Schedule) error {
	return s.r.create(ctx, v)
}

// CreateKeyed implements schedules.Store.
func (s *Schedules) CreateKeyed(ctx context.Context, v schedules.Schedule, r idempotency.Record) error {
	return s.r.create(ctx, v, r)
}

// Get implements schedules.Store.
func (s *Schedules) Get(ctx context.Context, id string) (schedules.Schedule, error) {
	return s.r.get(ctx, id)
}

// List implements schedules.Store.
func (s *Schedules) List(ctx context.Context, owner string) ([]schedules.Schedule, error) {
	return s.r.of(ctx, owner)
}

// All implements schedules.Store.
func (s *Schedules) All(ctx context.Context) ([]schedules.Schedule, error) { return s.r.all(ctx) }

// Update implements schedules.Store.
func (s *Schedules) Update(ctx context.Context, id string, fn func(*schedules.Schedule) error) (schedules.Schedule, error) {
	return s.r.update(ctx, id, fn)
}

// Delete implements schedules.Store.
func (s *Schedules) Delete(ctx context.Context, id string) error { return s.r.delete(ctx, id) }
