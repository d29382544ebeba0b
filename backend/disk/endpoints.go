package disk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/endpoints"
)

// Endpoints is an endpoints.Store.
type Endpoints struct{ s *Store }

func storedEndpoint(v *endpoints.Endpoint) (change[endpoints.Endpoint], error) {
	b, err := json.Marshal(v)
	if err != nil {
		return change[endpoints.Endpoint]{}, fmt.Errorf("disk: encode endpoint %q: %w", v.ID, err)
	}
	return change[endpoints.Endpoint]{key: textKey(keyEndpoint, v.ID), value: b, v: v}, nil
}

// Create implements endpoints.Store.
func (s *Endpoints) Create(ctx context.Context, ep *endpoints.Endpoint) error {
	return s.create(ctx, ep)
}

// CreateKeyed implements endpoints.Store.
func (s *Endpoints) CreateKeyed(ctx context.Context, ep *endpoints.Endpoint, r idempotency.Record) error {
	return s.create(ctx, ep, r)
}

func (s *Endpoints) create(ctx context.Context, ep *endpoints.Endpoint, keys ...idempotency.Record) error {
	v := ep.Clone()
	// A server declares its endpoints at every start, also on a full disk.
	if e, err := s.s.engine(); err == nil && len(keys) == 0 && e.endpoints.get(v.ID) != nil {
		return endpoints.ErrExists
	}
	return s.s.create(ctx, keys, func(e *engine, w *keyedWrite) error {
		if err := e.mayCreate(v.Owner); err != nil {
			return err
		}
		return e.endpoints.change(ctx, e, v.ID, func(old *endpoints.Endpoint) (c change[endpoints.Endpoint], err error) {
			if old != nil {
				return c, endpoints.ErrExists
			}
			c, err = storedEndpoint(v)
			c.keyed = w
			return c, err
		}, nil)
	})
}

// FindKey implements endpoints.Store.
func (s *Endpoints) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return s.s.findKey(key)
}

// Get implements endpoints.Store.
func (s *Endpoints) Get(_ context.Context, id string) (*endpoints.Endpoint, error) {
	e, err := s.s.engine()
	if err != nil {
		return nil, err
	}
	v := e.endpoints.get(id)
	if v == nil {
		return nil, e.missing(keyEndpoint, endpoints.ErrNotFound)
	}
	return v.Clone(), nil
}

// List implements endpoints.Store. It yields the endpoints as they were when it began.
func (s *Endpoints) List(context.Context) iter.Seq2[*endpoints.Endpoint, error] {
	return func(yield func(*endpoints.Endpoint, error) bool) {
		e, err := s.s.engine()
		if err != nil {
			yield(nil, err)
			return
		}
		all := e.endpoints.all(func(*endpoints.Endpoint) bool { return true })
		slices.SortFunc(all, func(a, b *endpoints.Endpoint) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		})
		for _, v := range all {
			if !yield(v.Clone(), nil) {
				return
			}
		}
		if err := e.missing(keyEndpoint, nil); err != nil {
			yield(nil, err)
		}
	}
}

// Update implements endpoints.Store.
func (s *Endpoints) Update(ctx context.Context, id string, fn func(*endpoints.Endpoint) error) (*endpoints.Endpoint, error) {
	e, err := s.s.admit(ctx, deletions)
	if err != nil {
		return nil, err
	}
	var v *endpoints.Endpoint
	err = e.endpoints.change(ctx, e, id, func(old *endpoints.Endpoint) (change[endpoints.Endpoint], error) {
		if old == nil {
			return change[endpoints.Endpoint]{}, e.missing(keyEndpoint, endpoints.ErrNotFound)
		}
		v = old.Clone()
		if err := fn(v); err != nil {
			return change[endpoints.Endpoint]{}, err
		}
		if same, err := sameEndpoint(old, v); same || err != nil {
			return change[endpoints.Endpoint]{}, cmp.Or(err, errUnchanged)
		}
		if v.Workers.Max >= old.Workers.Max && v.Cordon == old.Cordon { // otherwise workers end, which may make room
			if err := s.s.space.check(0, underWay); err != nil {
				return change[endpoints.Endpoint]{}, err
			}
		}
		return storedEndpoint(v.Clone())
	}, nil)
	if err != nil && !errors.Is(err, errUnchanged) {
		return nil, err
	}
	return v, nil
}

// errUnchanged: nothing has to be written.
var errUnchanged = errors.New("disk: the record is as it was")

func sameEndpoint(a, b *endpoints.Endpoint) (bool, error) {
	x, err := storedEndpoint(a)
	if err != nil {
		return false, err
	}
	y, err := storedEndpoint(b)
	return bytes.Equal(x.value, y.value), err
}

// Delete implements endpoints.Store.
func (s *Endpoints) Delete(ctx context.Context, id string) error {
	e, err := s.s.admit(ctx, deletions)
	if err != nil {
		return err
	}
	return e.endpoints.change(ctx, e, id, func(old *endpoints.Endpoint) (change[endpoints.Endpoint], error) {
		if old == nil {
			return change[endpoints.Endpoint]{}, e.missing(keyEndpoint, endpoints.ErrNotFound)
		}
		return change[endpoints.Endpoint]{key: textKey(keyEndpoint, id)}, nil
	}, nil)
}

// admit returns the engine for a change, if the store works and there is room for the change.
func (s *Store) admit(ctx context.Context, what priority) (*engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := s.engine()
	if err != nil {
		return nil, err
	}
	return e, s.space.check(0, what)
}
