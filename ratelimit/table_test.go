package ratelimit

import (
	"fmt"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestIdleCallersAreForgottenAndThoseInFlightAreNot(t *testing.T) {
	r := NewRates(0)
	const callers = 20_000
	var held *Permit
	for i := range callers {
		p, _ := r.Acquire(start, Key{User: fmt.Sprint(i), Operation: Run}, 0)
		if i == 0 {
			held = p
			continue
		}
		p.Release()
	}
	if n := r.limiters.size(); n != callers {
		t.Fatalf("%d callers are remembered, want all %d while their buckets refill", n, callers)
	}
	// Every shard is swept when it is used, so touch them all.
	later := start.Add(2 * Period)
	for i := range 4000 {
		p, _ := r.Acquire(later, Key{User: "later", Endpoint: fmt.Sprint(i), Operation: Run}, 0)
		p.Release()
	}
	if n := r.limiters.size(); n != 4001 {
		t.Errorf("%d callers are remembered, want the 4000 recent ones and the one in flight", n)
	}
	held.Release()
}

func TestUsersAreForgottenAfterTheirDay(t *testing.T) {
	w := NewWindows(Quotas{})
	for i := range 1000 {
		w.Take(start, fmt.Sprint("old ", i))
	}
	for i := range 4000 {
		w.Take(start.Add(25*time.Hour), fmt.Sprint("new ", i))
	}
	if n := w.users.size(); n != 4000 {
		t.Errorf("%d users are remembered, want the 4000 of today", n)
	}
}

func TestForgettingChangesNoAnswer(t *testing.T) {
	w := NewWindows(Quotas{Minute: 1, Hour: 1, Day: 1})
	w.Take(start, "u")
	for h := range 24 {
		if d := w.Take(start.Add(time.Duration(h)*time.Hour+59*time.Minute), "u"); d.OK {
			t.Fatalf("after %d h: the day's only request was forgotten", h)
		}
	}
}

// size returns the number of values.
func (t *table[K, V]) size() (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += len(s.values)
		s.mu.Unlock()
	}
	return n
}
