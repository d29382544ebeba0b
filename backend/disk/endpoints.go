package disk

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/podyard/podyard/serverless"
)

// Endpoints is a serverless.EndpointStore.
type Endpoints struct{ s *Store }

func storedEndpoint(v *serverless.Endpoint) (change[serverless.Endpoint], error) {
	b, err := json.Marshal(v)
	if err != nil {
		return change[serverless.Endpoint]{}, fmt.Errorf("disk: encode endpoint %q: %w", v.ID, err)
	}
	return change[serverless.Endpoint]{key: textKey(keyEndpoint, v.ID), value: b, v: v}, nil
}

// Create implements serverless.EndpointStore.
func (s *Endpoints) Create(ctx context.Context, ep *serverless.Endpoint) error {
	e, err := s.s.admit(ctx, newWork)
	if err != nil {
		return err
	}
	v := ep.Clone()
	return e.endpoints.change(ctx, e, v.ID, func(old *serverless.Endpoint) (change[serverless.Endpoint], error) {
		if old != nil {
			return change[serverless.Endpoint]{}, serverless.ErrEndpointExists
		}
		return storedEndpoint(v)
	}, nil)
}

// Get implements serverless.EndpointStore.
func (s *Endpoints) Get(_ context.Context, id string) (*serverless.Endpoint, error) {
	e, err := s.s.engine()
	if err != nil {
		return nil, err
	}
	v := e.endpoints.get(id)
	if v == nil {
		return nil, serverless.ErrNoEndpoint
	}
	return v.Clone(), nil
}

// List implements serverless.EndpointStore. It yields the endpoints as they are when it
// begins.
func (s *Endpoints) List(context.Context) iter.Seq2[*serverless.Endpoint, error] {
	return func(yield func(*serverless.Endpoint, error) bool) {
		e, err := s.s.engine()
		if err != nil {
			yield(nil, err)
			return
		}
		all := e.endpoints.all(func(*serverless.Endpoint) bool { return true })
		slices.SortFunc(all, func(a, b *serverless.Endpoint) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		})
		for _, v := range all {
			if !yield(v.Clone(), nil) {
				return
			}
		}
	}
}

// Update implements serverless.EndpointStore.
func (s *Endpoints) Update(ctx context.Context, id string, fn func(*serverless.Endpoint) error) (*serverless.Endpoint, error) {
	e, err := s.s.admit(ctx, underWay)
	if err != nil {
		return nil, err
	}
	var v *serverless.Endpoint
	err = e.endpoints.change(ctx, e, id, func(old *serverless.Endpoint) (change[serverless.Endpoint], error) {
		if old == nil {
			return change[serverless.Endpoint]{}, serverless.ErrNoEndpoint
		}
		v = old.Clone()
		if err := fn(v); err != nil {
			return change[serverless.Endpoint]{}, err
		}
		return storedEndpoint(v.Clone())
	}, nil)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Delete implements serverless.EndpointStore.
func (s *Endpoints) Delete(ctx context.Context, id string) error {
	e, err := s.s.admit(ctx, deletions)
	if err != nil {
		return err
	}
	return e.endpoints.change(ctx, e, id, func(old *serverless.Endpoint) (change[serverless.Endpoint], error) {
		if old == nil {
			return change[serverless.Endpoint]{}, serverless.ErrNoEndpoint
		}
		return change[serverless.Endpoint]{key: textKey(keyEndpoint, id)}, nil
	}, nil)
}

// admit is the engine for a change, if there is one, with room for it.
func (s *Store) admit(ctx context.Context, what need) (*engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := s.engine()
	if err != nil {
		return nil, err
	}
	return e, s.space.check(0, what)
}
