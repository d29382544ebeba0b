package docker

import (
	"context"
	"sync"
	"time"
)

// maxPermits bounds how many owners and images are remembered.
const maxPermits = 4096

// A permit is what a registry allowed: an owner may have an image.
type permit struct{ owner, image string }

// permits remember for a time what registries allowed. The zero value is not usable.
type permits struct {
	lifetime time.Duration

	mu      sync.Mutex
	granted map[permit]time.Time // when
	asking  map[permit]*asking
}

// An asking is a request to a registry that is made now. Others for the same wait for it.
type asking struct {
	turn    chan struct{} // holds a token while nobody asks
	waiters int
}

func newPermits(lifetime time.Duration) *permits {
	return &permits{lifetime: lifetime, granted: map[permit]time.Time{}, asking: map[permit]*asking{}}
}

// has says whether p was granted lately.
func (t *permits) has(p permit) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.granted[p]
	return ok && time.Since(at) < t.lifetime
}

// revoke forgets p.
func (t *permits) revoke(p permit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.granted, p)
}

// grant remembers p. When there are too many, those that are over go, and else the oldest.
func (t *permits) grant(p permit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.granted) >= maxPermits {
		t.dropOldest()
	}
	t.granted[p] = time.Now()
}

func (t *permits) dropOldest() {
	var oldest permit
	var since time.Time
	for p, at := range t.granted {
		if time.Since(at) >= t.lifetime {
			delete(t.granted, p)
		} else if since.IsZero() || at.Before(since) {
			oldest, since = p, at
		}
	}
	if len(t.granted) >= maxPermits {
		delete(t.granted, oldest)
	}
}

// acquire waits until nobody else asks for p. The caller calls done.
func (t *permits) acquire(ctx context.Context, p permit) (done func(), err error) {
	t.mu.Lock()
	a := t.asking[p]
	if a == nil {
		a = &asking{turn: make(chan struct{}, 1)}
		a.turn <- struct{}{}
		t.asking[p] = a
	}
	a.waiters++
	t.mu.Unlock()
	select {
	case <-a.turn:
		return func() { a.turn <- struct{}{}; t.release(p, a) }, nil
	case <-ctx.Done():
		t.release(p, a)
		return nil, ctx.Err()
	}
}

func (t *permits) release(p permit, a *asking) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.waiters--; a.waiters == 0 {
		delete(t.asking, p)
	}
}
