package postgres

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/podyard/podyard/internal/records"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/endpoints"
)

// Endpoints is an endpoints.Store.
type Endpoints struct {
	keyFinder
	r recordTable[endpoints.Endpoint]
}

var _ endpoints.Store = (*Endpoints)(nil)

// Endpoints returns the store of endpoints.
func (s *Store) Endpoints() *Endpoints {
	return &Endpoints{keyFinder{s}, recordTable[endpoints.Endpoint]{
		Kind: records.Endpoints(),
		s:    s, table: "endpoints", sized: true, last: new(atomic.Pointer[map[string]decoded[endpoints.Endpoint]]),
	}}
}

// Create implements endpoints.Store.
func (s *Endpoints) Create(ctx context.Context, e *endpoints.Endpoint) error {
	return s.r.create(ctx, *e)
}

// CreateKeyed implements endpoints.Store.
func (s *Endpoints) CreateKeyed(ctx context.Context, e *endpoints.Endpoint, r idempotency.Record) error {
	return s.r.create(ctx, *e, r)
}

// Get implements endpoints.Store.
func (s *Endpoints) Get(ctx context.Context, id string) (*endpoints.Endpoint, error) {
	return pointer(s.r.get(ctx, id))
}

// List implements endpoints.Store. It yields the endpoints as they were when it began.
func (s *Endpoints) List(ctx context.Context) iter.Seq2[*endpoints.Endpoint, error] {
	return each(ctx, func() ([]endpoints.Endpoint, error) { return s.r.all(ctx) })
}

// Update implements endpoints.Store.
func (s *Endpoints) Update(ctx context.Context, id string, fn func(*endpoints.Endpoint) error) (*endpoints.Endpoint, error) {
	return pointer(s.r.update(ctx, id, fn))
}

// Delete implements endpoints.Store.
func (s *Endpoints) Delete(ctx context.Context, id string) error { return s.r.delete(ctx, id) }
