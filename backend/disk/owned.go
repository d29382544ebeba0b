package disk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/podyard/podyard/problem/idempotency"
)

// owned stores records of one kind that belong to users, as JSON.
type owned[T any] struct {
	s        *Store
	kind     byte
	of       func(*engine) *table[T]
	clone    func(T) T
	order    func(a, b T) int
	notFound error
	exists   error
	// frees reports whether an update comes before something that makes room: it is never refused for
	// lack of it. Nil: no update does.
	frees func(old, now *T) bool
	// encode writes a record that has a secret. Nil: all of it is plain JSON.
	encode func(seals sealer, key []byte, v *T) ([]byte, error)
	// kept returns what of a record stays in memory, and whole reads the record from its value on
	// disk. Nil: all of it stays.
	kept  func(v T) T
	whole func(e *engine, key, value []byte) (*T, error)
}

func (o *owned[T]) stored(e *engine, id string, v T) (change[T], error) {
	key := textKey(o.kind, id)
	if o.encode != nil {
		b, err := o.encode(e.seals, key, &v)
		if o.kept != nil {
			v = o.kept(v)
		}
		return change[T]{key: key, value: b, v: &v}, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return change[T]{}, fmt.Errorf("disk: encode %s %q: %w", kindNames[o.kind], id, err)
	}
	return change[T]{key: key, value: b, v: &v}, nil
}

// create adds a record, and those of an Idempotency-Key in keys.
func (o *owned[T]) create(ctx context.Context, id string, v T, keys ...idempotency.Record) error {
	v = o.clone(v)
	return o.s.create(ctx, keys, func(e *engine, w *keyedWrite) error {
		if err := e.mayCreate(o.of(e).holds(id, &v).User); err != nil {
			return err
		}
		return o.of(e).change(ctx, e, id, func(old *T) (c change[T], err error) {
			if old != nil {
				return c, o.exists
			}
			c, err = o.stored(e, id, v)
			c.keyed = w
			return c, err
		}, nil)
	})
}

// create calls fn for new work, with the records of Idempotency-Keys that fn commits with it.
func (s *Store) create(ctx context.Context, keys []idempotency.Record, fn func(*engine, *keyedWrite) error) error {
	e, err := s.admit(ctx, newWork)
	if err != nil {
		return err
	}
	w, err := e.keyed.reserve(ctx, e, keys...)
	if err != nil {
		return err
	}
	defer w.end()
	return fn(e, w)
}

// put adds a record or replaces it.
func (o *owned[T]) put(ctx context.Context, what priority, id string, v T) error {
	e, err := o.s.admit(ctx, what)
	if err != nil {
		return err
	}
	v = o.clone(v)
	return o.of(e).change(ctx, e, id, func(*T) (change[T], error) { return o.stored(e, id, v) }, nil)
}

func (o *owned[T]) get(id string) (v T, err error) {
	e, err := o.s.engine()
	if err != nil {
		return v, err
	}
	p := o.of(e).get(id)
	if p == nil {
		return v, e.missing(o.kind, o.notFound)
	}
	return o.read(e, id, p)
}

// read returns a record, of which p is what stays in memory.
func (o *owned[T]) read(e *engine, id string, p *T) (v T, err error) {
	if o.whole == nil {
		return o.clone(*p), nil
	}
	key := textKey(o.kind, id)
	value, ok, err := e.get(key)
	if err == nil && !ok {
		err = o.notFound // deleted just now
	}
	if err != nil {
		return v, err
	}
	if p, err = o.whole(e, key, value); err != nil {
		return v, err
	}
	return *p, nil
}

func (o *owned[T]) list(keep func(*T) bool) ([]T, error) {
	e, err := o.s.engine()
	if err != nil {
		return nil, err
	}
	var list []T
	for _, p := range o.of(e).all(keep) {
		list = append(list, o.clone(*p))
	}
	slices.SortFunc(list, o.order)
	return list, e.missing(o.kind, nil)
}

func (o *owned[T]) update(ctx context.Context, id string, fn func(*T) error) (v T, err error) {
	e, err := o.s.admit(ctx, deletions)
	if err != nil {
		return v, err
	}
	err = o.of(e).change(ctx, e, id, func(old *T) (change[T], error) {
		if old == nil {
			return change[T]{}, e.missing(o.kind, o.notFound)
		}
		if v, err = o.read(e, id, old); err != nil {
			return change[T]{}, err
		}
		if err := fn(&v); err != nil {
			return change[T]{}, err
		}
		if o.frees == nil || !o.frees(old, &v) {
			if err := o.s.space.check(0, underWay); err != nil {
				return change[T]{}, err
			}
		}
		return o.stored(e, id, o.clone(v))
	}, nil)
	return v, err
}

func (o *owned[T]) delete(ctx context.Context, id string) error {
	e, err := o.s.admit(ctx, deletions)
	if err != nil {
		return err
	}
	return o.of(e).change(ctx, e, id, func(old *T) (change[T], error) {
		if old == nil {
			return change[T]{}, e.missing(o.kind, o.notFound)
		}
		return change[T]{key: textKey(o.kind, id)}, nil
	}, nil)
}
