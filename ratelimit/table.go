package ratelimit

import (
	"hash/maphash"
	"sync"
	"time"
)

// A table has one value for each key until the value is idle. It is divided into shards, so
// that requests of different callers rarely wait for one another. Each shard removes its idle
// values at the first use after the period every, so nothing runs in the background.
type table[K comparable, V any] struct {
	seed   maphash.Seed
	every  time.Duration
	idle   func(v *V, now time.Time) bool
	shards [shards]shard[K, V]
}

const shards = 64

type shard[K comparable, V any] struct {
	mu        sync.Mutex
	values    map[K]*V
	lastSweep time.Time
}

func newTable[K comparable, V any](every time.Duration, idle func(*V, time.Time) bool) *table[K, V] {
	return &table[K, V]{seed: maphash.MakeSeed(), every: every, idle: idle}
}

// with calls f with the value of k, under the lock of its shard. The value is zero if there
// was none. f must be quick.
func (t *table[K, V]) with(now time.Time, k K, f func(*V)) {
	s := &t.shards[maphash.Comparable(t.seed, k)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if over(s.lastSweep, now, t.every) {
		s.sweep(now, t.idle)
	}
	v := s.values[k]
	if v == nil {
		if s.values == nil {
			s.values = make(map[K]*V)
		}
		v = new(V)
		s.values[k] = v
	}
	f(v)
}

// look calls f with a copy of the value of k, under the lock of its shard. It is zero if there is
// none.
func (t *table[K, V]) look(k K, f func(*V)) {
	s := &t.shards[maphash.Comparable(t.seed, k)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	var v V
	if has := s.values[k]; has != nil {
		v = *has
	}
	f(&v)
}

func (s *shard[K, V]) sweep(now time.Time, idle func(*V, time.Time) bool) {
	s.lastSweep = now
	for k, v := range s.values {
		if idle(v, now) {
			delete(s.values, k)
		}
	}
}
