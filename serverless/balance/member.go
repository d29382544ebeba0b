package balance

import (
	"context"
	"net"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// A Dialer opens a connection to a worker of this process.
type Dialer func(ctx context.Context) (net.Conn, error)

// A Target says how a worker is reached.
type Target struct {
	Worker  workers.Key
	Address string // host:port
	Dial    Dialer // for a worker of this process, which has no address
}

// A member is a worker of an endpoint. The mutex of the Balancer guards it.
type member struct {
	key      workers.Key
	group    *group
	listener endpoints.Listener
	address  string // of its port for requests, once known
	dial     Dialer // for a worker of this process; nil: the fleet has started it

	health    Health
	healthyAt queue.Instant // last check that succeeded; 0: none has
	phase     phase
	served    bool // a request has ended
	idleSince queue.Instant
	turn      uint64 // when it was last chosen
	leases    map[*Lease]struct{}

	checks    *checks     // nil: there are none
	stopTimer func() bool // of the end of the drain; nil: there is none
	released  func()      // called at the end of each request; nil: nothing waits for it
}

func newMember(g *group, id queue.WorkerID, now queue.Instant) *member {
	m := &member{
		key: workers.Key{Endpoint: g.endpoint, ID: id}, group: g, idleSince: now,
		leases: map[*Lease]struct{}{},
	}
	g.members[id] = m
	return m
}

// A phase says what a worker does with requests.
type phase uint8

const (
	serving  phase = iota
	draining       // it gets no more
	over           // those in flight must end
)

// isProven reports whether m has been healthy.
func (m *member) isProven() bool { return m.healthyAt != 0 }

func (m *member) isLocal() bool { return m.dial != nil }

// takes reports whether m is in rotation.
func (m *member) takes() bool { return m.health == Healthy && m.phase == serving }

// before reports whether m is a better choice than other.
func (m *member) before(other *member) bool {
	if len(m.leases) != len(other.leases) {
		return len(m.leases) < len(other.leases)
	}
	if m.turn != other.turn {
		return m.turn < other.turn
	}
	return m.key.ID < other.key.ID // so that every run chooses the same
}

func (m *member) view(now queue.Instant) workers.View {
	v := workers.View{
		ID: m.key.ID, Requests: len(m.leases), IdleSince: m.idleSince, Served: m.served,
		Polling: m.takes(), Draining: m.phase != serving,
	}
	if m.isDead(now) {
		v.Unhealthy = "no health check has succeeded for " + DeadTime.String()
	}
	return v
}

// isDead reports whether m must be replaced.
func (m *member) isDead(now queue.Instant) bool {
	return !m.isLocal() && m.health != Healthy && m.healthyAt.Add(DeadTime) <= now
}

// A Lease is a worker that has a request in flight. Its methods are safe for concurrent use.
type Lease struct {
	balancer *Balancer
	member   *member
	target   Target
	end      func() // guarded by the mutex of the Balancer
}

// lease records a request of m.
func (b *Balancer) lease(g *group, m *member) *Lease {
	l := &Lease{balancer: b, member: m, target: Target{Worker: m.key, Address: m.address, Dial: m.dial}}
	g.turn++
	m.turn = g.turn
	g.running++
	m.leases[l] = struct{}{}
	return l
}

// Target returns how the worker is reached.
func (l *Lease) Target() Target { return l.target }

// OnEnd sets what is called, once and without blocking, when the request must end: the
// worker has drained for too long, or is gone. It is called at once if that is so already.
func (l *Lease) OnEnd(f func()) {
	b := l.balancer
	b.mu.Lock()
	now := l.member.phase == over
	l.end = f
	b.mu.Unlock()
	if now {
		f()
	}
}

// Unreachable takes the worker out of rotation until its next check, which is made at once.
func (l *Lease) Unreachable() {
	b, m := l.balancer, l.member
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.isLocal() {
		return // it has no checks that would bring it back
	}
	m.health = Unhealthy
	b.wake(m)
}

// Release ends the request. Only the first call has an effect.
func (l *Lease) Release() {
	b, m := l.balancer, l.member
	b.mu.Lock()
	_, held := m.leases[l]
	if held {
		delete(m.leases, l)
		m.group.running--
		m.served, m.idleSince = true, b.now()
		b.tidy(m.group)
		if m.released != nil {
			m.released()
		}
	}
	b.mu.Unlock()
	if held {
		b.o.Changed(m.key.Endpoint)
	}
}
