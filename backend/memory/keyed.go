package memory

import (
	"context"
	"sync"
	"time"

	"github.com/podyard/podyard/problem/idempotency"
)

// keyed has the records of the requests with an Idempotency-Key to one store. The zero value
// is ready.
type keyed struct {
	keysMu  sync.Mutex // locked before the store
	records map[idempotency.Digest]idempotency.Record
	order   []keyedAt // oldest first
}

// A keyedAt is an entry of the order. It counts for nothing if the key has a later record.
type keyedAt struct {
	key idempotency.Digest
	at  time.Time
}

// sweepStep is how many records that are over a creation removes.
const sweepStep = 4

// addKeyed calls create and adds the records if create returns nil.
func (k *keyed) addKeyed(create func() error, records ...idempotency.Record) error {
	k.keysMu.Lock()
	defer k.keysMu.Unlock()
	for i := range records {
		if old, ok := k.records[records[i].Key]; ok && !old.Over(records[i].At) {
			return idempotency.ErrTaken
		}
	}
	if err := create(); err != nil {
		return err
	}
	if k.records == nil {
		k.records = map[idempotency.Digest]idempotency.Record{}
	}
	for _, r := range records {
		k.records[r.Key] = r
		k.order = append(k.order, keyedAt{r.Key, r.At})
		k.sweepKeys(r.At)
	}
	return nil
}

// sweepKeys removes some records that are over.
func (k *keyed) sweepKeys(now time.Time) {
	for range sweepStep {
		if len(k.order) == 0 {
			return
		}
		old := k.order[0]
		r := k.records[old.key]
		if current := r.At.Equal(old.at); current && !r.Over(now) {
			return
		} else if current {
			delete(k.records, old.key)
		}
		k.order = k.order[1:]
	}
}

// FindKey implements idempotency.Finder.
func (k *keyed) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	k.keysMu.Lock()
	defer k.keysMu.Unlock()
	r, ok := k.records[key]
	if !ok {
		return idempotency.Record{}, idempotency.ErrNotFound
	}
	return r, nil
}
