package memory

import (
	"context"
	"iter"

	"github.com/podyard/podyard/internal/records"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/endpoints"
)

// Endpoints is an endpoints.Store in memory. It is safe for concurrent use.
type Endpoints struct {
	keyed
	counted
	t *owned[endpoints.Endpoint]
}

var _ endpoints.Store = (*Endpoints)(nil)

// NewEndpoints returns an empty store.
func NewEndpoints() *Endpoints {
	t := newOwned(records.Endpoints())
	return &Endpoints{counted: counted{&t.Tally}, t: t}
}

// Create implements endpoints.Store.
func (s *Endpoints) Create(_ context.Context, e *endpoints.Endpoint) error { return s.t.create(*e) }

// CreateKeyed implements endpoints.Store.
func (s *Endpoints) CreateKeyed(ctx context.Context, e *endpoints.Endpoint, r idempotency.Record) error {
	return s.addKeyed(func() error { return s.Create(ctx, e) }, r)
}

// Get implements endpoints.Store.
func (s *Endpoints) Get(_ context.Context, id string) (*endpoints.Endpoint, error) {
	return s.t.get(id)
}

// List implements endpoints.Store. It yields the endpoints as they were when the iteration
// began.
func (s *Endpoints) List(context.Context) iter.Seq2[*endpoints.Endpoint, error] {
	return func(yield func(*endpoints.Endpoint, error) bool) {
		all, err := s.t.all(func(*endpoints.Endpoint) bool { return true })
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range all {
			if !yield(&all[i], nil) {
				return
			}
		}
	}
}

// Update implements endpoints.Store. fn runs once, while no other endpoint can be changed.
func (s *Endpoints) Update(_ context.Context, id string, fn func(*endpoints.Endpoint) error) (*endpoints.Endpoint, error) {
	return s.t.update(id, fn)
}

// Delete implements endpoints.Store.
func (s *Endpoints) Delete(_ context.Context, id string) error { return s.t.delete(id) }
