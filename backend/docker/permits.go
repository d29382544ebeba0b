package docker

import (
	"context"
	"sync"
	"time"
)

// maxPermits limits how many pairs of owner and image are remembered.
const maxPermits = 4096

// A permit says that a registry gave an image to an owner.
type permit struct{ owner, image string }

// permits remembers permits for a time. The zero value is not usable.
type permits struct {
	lifetime time.Duration

	mu      sync.Mutex
	granted map[permit]time.Time // when it was granted
	asking  map[permit]*asking
}

// An asking is a request to a registry in progress. Other requests for the same permit wait
// for it.
type asking struct {
	turn    chan struct{} // has a token while no request runs
	waiters int
}

func newPermits(lifetime time.Duration) *permits {
	return &permits{lifetime: lifetime, granted: map[permit]time.Time{}, asking: map[permit]*asking{}}
}

// has reports whether p was granted within lifetime.
func (t *permits) has(p permit) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.granted[p]
	return ok && time.Since(at) < t.lifetime
}

func (t *permits) revoke(p permit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.granted, p)
}

// grant remembers p. If there are too many, it drops the expired permits, and otherwise the
// oldest.
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

// acquire waits until no other request for p runs. The caller must call done.
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
