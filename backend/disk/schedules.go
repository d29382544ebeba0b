package disk

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/schedules"
)

// Schedules is a schedules.Store. What only workers see is encrypted on disk.
type Schedules struct{ o owned[schedules.Schedule] }

var _ schedules.Store = (*Schedules)(nil)

// Schedules returns the store of schedules.
func (s *Store) Schedules() *Schedules {
	return &Schedules{owned[schedules.Schedule]{
		s: s, kind: keySchedule, of: func(e *engine) *table[schedules.Schedule] { return &e.schedules },
		clone: schedules.Schedule.Clone, order: schedules.Compare, encode: encodeSchedule,
		notFound: schedules.ErrNotFound, exists: schedules.ErrExists,
	}}
}

// A storedSchedule is a schedule as it is on disk.
type storedSchedule struct {
	*schedules.Schedule
	Sealed []byte `json:",omitempty"` // Schedule.Secret
}

func encodeSchedule(seals sealer, key []byte, v *schedules.Schedule) ([]byte, error) {
	r := storedSchedule{Schedule: v}
	if len(v.Secret) > 0 {
		plain := *v
		plain.Secret = nil
		r.Schedule = &plain
		var err error
		if r.Sealed, err = seals.seal(key, v.Secret); err != nil {
			return nil, err
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("disk: encode schedule %q: %w", v.ID, err)
	}
	return b, nil
}

func decodeSchedule(e *engine, key, value []byte) (*schedules.Schedule, error) {
	r := storedSchedule{Schedule: &schedules.Schedule{}}
	if err := json.Unmarshal(value, &r); err != nil || r.Sealed == nil {
		return r.Schedule, err
	}
	var err error
	r.Secret, err = e.seals.open(key, r.Sealed)
	return r.Schedule, err
}

// Create implements schedules.Store.
func (s *Schedules) Create(ctx context.Context, v schedules.Schedule) error {
	return s.o.create(ctx, v.ID, v)
}

// CreateKeyed implements schedules.Store.
func (s *Schedules) CreateKeyed(ctx context.Context, v schedules.Schedule, r idempotency.Record) error {
	return s.o.create(ctx, v.ID, v, r)
}

// FindKey implements schedules.Store.
func (s *Schedules) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return s.o.s.findKey(key)
}

// Get implements schedules.Store.
func (s *Schedules) Get(_ context.Context, id string) (schedules.Schedule, error) { return s.o.get(id) }

// List implements schedules.Store.
func (s *Schedules) List(_ context.Context, owner string) ([]schedules.Schedule, error) {
	return s.o.list(func(v *schedules.Schedule) bool { return v.Owner == owner })
}

// All implements schedules.Store.
func (s *Schedules) All(context.Context) ([]schedules.Schedule, error) {
	return s.o.list(func(*schedules.Schedule) bool { return true })
}

// Update implements schedules.Store.
func (s *Schedules) Update(ctx context.Context, id string, fn func(*schedules.Schedule) error) (schedules.Schedule, error) {
	return s.o.update(ctx, id, fn)
}

// Delete implements schedules.Store.
func (s *Schedules) Delete(ctx context.Context, id string) error { return s.o.delete(ctx, id) }
