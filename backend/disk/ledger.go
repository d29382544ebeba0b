package disk

import (
	"slices"
	"sync"

	"github.com/podyard/podyard/pods"
)

// A ledger adds up what pods and reservations claim of each resource.
type ledger struct {
	mu    sync.Mutex
	sums  map[string]*claimed
	whole func() error // returns an error while there may be unreadable claims
}

// claimed is how much of a resource is claimed. committed is durable. reserved is committed
// and what changes under way add. What a change releases stays reserved until the change is
// durable.
type claimed struct{ committed, reserved int64 }

func (l *ledger) entry(resource string) *claimed {
	c := l.sums[resource]
	if c == nil {
		c = &claimed{}
		l.sums[resource] = c
	}
	return c
}

// load adds the claims of a record on disk.
func (l *ledger) load(claims []pods.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range claims {
		sum := l.entry(c.Resource)
		sum.committed += c.Units
		sum.reserved += c.Units
	}
}

// reserve reserves the additional claims of a change. If they do not fit, it returns
// pods.ErrNoCapacity and reserves nothing. It also fails while unreadable records may have
// claims.
func (l *ledger) reserve(old, now []pods.Claim) error {
	if slices.Equal(old, now) {
		return nil
	}
	more := difference(old, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range now {
		n := more[c.Resource]
		if n > 0 && l.entry(c.Resource).reserved+n > c.Limit {
			return pods.ErrNoCapacity
		}
		if err := l.whole(); n > 0 && err != nil {
			return err
		}
	}
	for resource, n := range more {
		if n > 0 {
			l.entry(resource).reserved += n
		}
	}
	return nil
}

// publish replaces old claims by now after the change has become durable.
func (l *ledger) publish(old, now []pods.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for resource, n := range difference(old, now) {
		c := l.entry(resource)
		c.committed += n
		if n < 0 {
			c.reserved += n
		}
		if c.committed == 0 && c.reserved == 0 {
			delete(l.sums, resource)
		}
	}
}

func (l *ledger) used(resource string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.sums[resource]; c != nil {
		return c.committed
	}
	return 0
}

func difference(old, now []pods.Claim) map[string]int64 {
	d := map[string]int64{}
	for _, c := range old {
		d[c.Resource] -= c.Units
	}
	for _, c := range now {
		d[c.Resource] += c.Units
	}
	return d
}
