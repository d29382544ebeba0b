package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/problem/idempotency"
)

// Every 16th request with an Idempotency-Key examines the next 64 records and removes those
// that are over. So there are never many more records than keys of a day.
const (
	keyedSweep = 16
	keyedStep  = 64
)

// A keyedTable has the records of requests with an Idempotency-Key. They are only on disk,
// because there may be one for each job of a day.
type keyedTable struct {
	mu    sync.Mutex
	busy  map[idempotency.Digest]chan struct{} // keys that a commit under way writes or removes
	count int                                  // requests since the last sweep
	next  []byte                               // where the next sweep begins; nil: at the first record
}

// A keyedWrite is the part of a commit that writes records. Its keys are busy until end. Nil
// is one without records.
type keyedWrite struct {
	t    *keyedTable
	add  []idempotency.Record
	drop []idempotency.Digest
}

func keyedKey(k idempotency.Digest) []byte { return append([]byte{keyKeyed}, k[:]...) }

// A record is stored as its content, its time in milliseconds, and its id.
func encodeKeyed(r *idempotency.Record) []byte {
	b := binary.AppendVarint(r.Content[:], r.At.UnixMilli())
	return append(b, r.ID...)
}

func decodeKeyed(key, value []byte) (r idempotency.Record, err error) {
	in := reader{b: value}
	content, at := in.take(len(r.Content)), in.int()
	if in.bad || len(key) != 1+len(r.Key) {
		return r, damaged(key)
	}
	copy(r.Key[:], key[1:])
	copy(r.Content[:], content)
	r.At, r.ID = time.UnixMilli(at).UTC(), string(in.b)
	return r, nil
}

// findKey reads a record.
func (e *engine) findKey(k idempotency.Digest) (idempotency.Record, error) {
	key := keyedKey(k)
	v, ok, err := e.get(key)
	if err == nil && !ok {
		err = e.missing(keyKeyed, idempotency.ErrNotFound)
	}
	if err != nil {
		return idempotency.Record{}, err
	}
	return decodeKeyed(key, v)
}

// findKey implements idempotency.Finder for all stores of the directory.
func (s *Store) findKey(k idempotency.Digest) (idempotency.Record, error) {
	e, err := s.engine()
	if err != nil {
		return idempotency.Record{}, err
	}
	return e.findKey(k)
}

// reserve makes the keys of new records busy. The caller writes them in its commit and then
// calls end, also after an error. The result is nil without records.
func (t *keyedTable) reserve(ctx context.Context, e *engine, records ...idempotency.Record) (*keyedWrite, error) {
	if len(records) == 0 {
		return nil, nil
	}
	w := &keyedWrite{t: t}
	// In one order, so that two callers do not wait for each other.
	records = slices.SortedFunc(slices.Values(records), func(a, b idempotency.Record) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	for i, r := range records {
		if i > 0 && r.Key == records[i-1].Key {
			w.end()
			return nil, idempotency.ErrTaken
		}
		if err := w.reserve(ctx, e, r); err != nil {
			w.end()
			return nil, err
		}
	}
	if t.due(len(records)) {
		w.sweep(e, records[0].At)
	}
	return w, nil
}

func (w *keyedWrite) reserve(ctx context.Context, e *engine, r idempotency.Record) error {
	for {
		busy := w.t.take(r.Key)
		if busy == nil {
			break
		}
		select {
		case <-busy:
		case <-e.failed:
			return e.err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.add = append(w.add, r)
	old, err := e.findKey(r.Key)
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		return nil
	case err == nil && !old.Over(r.At):
		err = idempotency.ErrTaken
	}
	return err
}

// take makes a key busy, or returns the channel that is closed when it no longer is.
func (t *keyedTable) take(k idempotency.Digest) (busy chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy == nil {
		t.busy = map[idempotency.Digest]chan struct{}{}
	}
	if busy = t.busy[k]; busy == nil {
		t.busy[k] = make(chan struct{})
	}
	return busy
}

func (t *keyedTable) due(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count += n
	if t.count < keyedSweep {
		return false
	}
	t.count = 0
	return true
}

var errEnough = errors.New("enough records")

// sweep reads the next records and makes those busy that are over, to drop them. A record
// that cannot be read stays.
func (w *keyedWrite) sweep(e *engine, now time.Time) {
	t := w.t
	t.mu.Lock()
	defer t.mu.Unlock()
	from, to := prefixRange([]byte{keyKeyed})
	if t.next != nil {
		from = t.next
	}
	n := 0
	err := eachIn(e.db, from, to, func(key, value []byte, err error) error {
		if n++; n > keyedStep {
			t.next = bytes.Clone(key)
			return errEnough
		}
		r, derr := decodeKeyed(key, value)
		if err == nil && derr == nil && r.Over(now) && t.busy[r.Key] == nil {
			t.busy[r.Key] = make(chan struct{})
			w.drop = append(w.drop, r.Key)
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.next = nil
	}
}

// write adds the records to a batch.
func (w *keyedWrite) write(b *pebble.Batch) {
	if w == nil {
		return
	}
	for _, k := range w.drop {
		_ = b.Delete(keyedKey(k), nil) // a batch in memory accepts every record
	}
	for i := range w.add {
		put(b, keyedKey(w.add[i].Key), encodeKeyed(&w.add[i]))
	}
}

// end makes the keys free again.
func (w *keyedWrite) end() {
	if w == nil {
		return
	}
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	for _, k := range w.drop {
		w.t.free(k)
	}
	for i := range w.add {
		w.t.free(w.add[i].Key)
	}
}

func (t *keyedTable) free(k idempotency.Digest) {
	close(t.busy[k])
	delete(t.busy, k)
}
