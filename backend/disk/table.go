package disk

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/ratelimit/budget"
)

// A table keeps small records of one kind completely in memory and on disk.
type table[T any] struct {
	mu   sync.Mutex
	rows map[string]*row[T]

	tally   *budget.Tally
	holding func(id string, v *T) budget.Holding // nil: these records are not counted
}

// holds returns what a record takes of the budgets of its owner.
func (t *table[T]) holds(id string, v *T) budget.Holding {
	if v == nil || t.holding == nil {
		return budget.Holding{}
	}
	return t.holding(id, v)
}

// count has a table count what its records take.
func (t *table[T]) count(e *engine, holding func(id string, v *T) budget.Holding) {
	t.tally, t.holding = &budget.Tally{}, holding
	e.tallies = append(e.tallies, t.tally)
}

// A row is a record. Its value is only replaced, never modified.
type row[T any] struct {
	v    *T            // nil: the record does not exist (yet)
	busy chan struct{} // closed when the current change ends; nil: there is none
}

func (t *table[T]) load(e *engine, kind byte, decode func(e *engine, key, value []byte) (*T, error)) error {
	t.rows = map[string]*row[T]{}
	return e.loadEach(kind, func(key, value []byte) error {
		v, err := decode(e, key, value)
		if err != nil {
			return fmt.Errorf("%w: %w", damaged(key), err)
		}
		t.rows[string(key[1:])] = &row[T]{v: v}
		if t.tally != nil {
			t.tally.Load(t.holds(string(key[1:]), v))
		}
		return nil
	})
}

func decodeJSON[T any](_ *engine, _, value []byte) (*T, error) {
	v := new(T)
	return v, json.Unmarshal(value, v)
}

// get returns the record, or nil if there is none. The caller must not modify it.
func (t *table[T]) get(id string) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.rows[id]; r != nil {
		return r.v
	}
	return nil
}

// all returns the records that keep selects, in any order.
func (t *table[T]) all(keep func(*T) bool) []*T {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*T
	for _, r := range t.rows {
		if r.v != nil && keep(r.v) {
			list = append(list, r.v)
		}
	}
	return list
}

// A change is the new value of a record.
type change[T any] struct {
	key   []byte
	value []byte // as it is stored
	v     *T     // nil: deleted
	keyed *keyedWrite
}

// change replaces a record by the result of fn. old is nil if there is no record. Changes of
// one record are made one after the other. fn runs under the lock, and so does publish, after
// the change is durable.
func (t *table[T]) change(ctx context.Context, e *engine, id string, fn func(old *T) (change[T], error), publish func(old, now *T)) error {
	r, c, err := t.begin(ctx, e, id, fn)
	if err != nil {
		return err
	}
	return e.commit(func(b *pebble.Batch) {
		c.keyed.write(b)
		if c.v == nil {
			_ = b.Delete(c.key, nil) // a batch in memory accepts every record
			return
		}
		put(b, c.key, c.value)
	}, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		old := r.v
		r.v = c.v
		if r.v == nil {
			delete(t.rows, id)
		}
		if publish != nil {
			publish(old, c.v)
		}
		close(r.busy)
		r.busy = nil
	})
}

// begin waits until the record is not busy, and calls fn.
func (t *table[T]) begin(ctx context.Context, e *engine, id string, fn func(old *T) (change[T], error)) (*row[T], change[T], error) {
	for {
		r, c, busy, err := t.try(id, fn)
		if busy == nil {
			return r, c, err
		}
		select {
		case <-busy:
		case <-e.failed:
			return nil, c, e.err()
		case <-ctx.Done():
			return nil, c, ctx.Err()
		}
	}
}

func (t *table[T]) try(id string, fn func(old *T) (change[T], error)) (*row[T], change[T], chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[id]
	if r == nil {
		r = &row[T]{}
	}
	if r.busy != nil {
		return nil, change[T]{}, r.busy, nil
	}
	c, err := fn(r.v)
	if err == nil && t.tally != nil {
		err = t.tally.Move(t.holds(id, r.v), t.holds(id, c.v))
	}
	if err != nil {
		return nil, c, nil, err
	}
	r.busy = make(chan struct{})
	t.rows[id] = r
	return r, c, nil, nil
}
