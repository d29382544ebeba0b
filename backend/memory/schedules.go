package memory

import (
	"context"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/schedules"
)

// Schedules is a schedules.Store. It is safe for concurrent use.
type Schedules struct {
	keyed
	counted
	t *owned[schedules.Schedule]
}

var _ schedules.Store = (*Schedules)(nil)

// NewSchedules returns an empty store.
func NewSchedules() *Schedules {
	t := newOwned(&owned[schedules.Schedule]{
		holding: (*schedules.Schedule).Holding,
		clone:   schedules.Schedule.Clone, order: schedules.Compare,
		notFound: schedules.ErrNotFound, exists: schedules.ErrExists,
	})
	return &Schedules{counted: counted{&t.Tally}, t: t}
}

// Create implements schedules.Store.
func (s *Schedules) Create(_ context.Context, v schedules.Schedule) error {
	return s.t.create(v.ID, v.Owner, v)
}

// CreateKeyed implements schedules.Store.
func (s *Schedules) CreateKeyed(ctx context.Context, v schedules.Schedule, r idempotency.Record) error {
	return s.addKeyed(func() error { return s.Create(ctx, v) }, r)
}

// Get implements schedules.Store.
func (s *Schedules) Get(_ context.Context, id string) (schedules.Schedule, error) { return s.t.get(id) }

// List implements schedules.Store.
func (s *Schedules) List(_ context.Context, owner string) ([]schedules.Schedule, error) {
	return s.t.list(owner)
}

// All implements schedules.Store.
func (s *Schedules) All(context.Context) ([]schedules.Schedule, error) {
	return s.t.all(func(*schedules.Schedule) bool { return true })
}

// Update implements schedules.Store.
func (s *Schedules) Update(_ context.Context, id string, fn func(*schedules.Schedule) error) (schedules.Schedule, error) {
	return s.t.update(id, fn)
}

// Delete implements schedules.Store.
func (s *Schedules) Delete(_ context.Context, id string) error { return s.t.delete(id) }
