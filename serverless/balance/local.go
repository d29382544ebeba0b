package balance

import (
	"context"
	"time"

	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// A Local is a worker of this process. It is in rotation until Leave.
type Local struct {
	balancer *Balancer
	member   *member
}

// JoinLocal adds a worker of this process. It returns nil if the endpoint has a worker with
// this id.
func (b *Balancer) JoinLocal(endpoint string, id queue.WorkerID, dial Dialer) *Local {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.find(workers.Key{Endpoint: endpoint, ID: id}) != nil {
		return nil
	}
	m := newMember(b.group(endpoint), id, b.now())
	m.dial, m.health, m.healthyAt = dial, Healthy, b.now()
	b.dispatch(m.group)
	return &Local{b, m}
}

// Leave ends the worker: it gets no new requests, and Leave waits until those in flight have
// ended. After d they are cancelled; then Leave waits for them for another second at most.
func (l *Local) Leave(ctx context.Context, d time.Duration) {
	b, m := l.balancer, l.member
	ended := make(chan struct{}, 1)
	b.mu.Lock()
	m.phase = draining
	m.released = func() {
		select {
		case ended <- struct{}{}:
		default:
		}
	}
	b.mu.Unlock()
	if !b.await(ctx, m, ended, d) {
		for _, end := range b.endings(m) {
			end()
		}
		b.await(ctx, m, ended, time.Second)
	}
	b.Remove(m.key)
}

// await waits until m has no request. It reports false after d.
func (b *Balancer) await(ctx context.Context, m *member, ended <-chan struct{}, d time.Duration) bool {
	over := make(chan struct{})
	defer b.o.Clock.AfterFunc(b.o.Clock.Now().Add(d), func() { close(over) })()
	for {
		b.mu.Lock()
		n := len(m.leases)
		b.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-ended:
		case <-over:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
