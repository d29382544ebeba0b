package conns

import (
	"container/heap"
	"container/list"
	"net/netip"
	"sync/atomic"
)

// A group is what connections count for: the owner of their keys, an address without a key, or
// the address of a trusted proxy.
type group struct {
	owner Owner
	keyed bool // the group is owner
	from  netip.Addr
	proxy bool
}

func (g group) isNobodys() bool { return !g.keyed && !g.proxy }
func (g group) isUsers() bool   { return g.keyed && !g.owner.Operator }

// members are the peers of a group.
type members struct {
	group group
	count int
	free  list.List // of *peer: those that can make way, in this order
	asked list.List // of *peer: requests through a trusted proxy without a key, oldest first
	at    int       // in largest; -1: it is not there
}

// A peer is a connection, a request beyond the first of its connection, or a request through a
// trusted proxy.
type peer struct {
	limiter   *Limiter
	address   netip.Addr
	from      netip.Addr // what address counts as
	conn      *conn      // the connection; nil: a request through a trusted proxy
	isRequest bool
	end       func() // ends a request through a trusted proxy

	nobodys atomic.Bool // it has no key

	// Guarded by the limiter.
	in   *members      // nil: it has ended
	free *list.Element // in in.free, or in in.asked
	idle bool          // a connection that waits for its next request
	size int           // for how many it counts
}

// canMakeWay reports whether p may be ended for somebody else: without a key always, and with a
// user's key while it is idle. Operators and trusted proxies keep what they have.
func (p *peer) canMakeWay() bool {
	return p.conn != nil && (p.in.group.isNobodys() || p.in.group.isUsers() && p.idle)
}

// add makes p one of a group.
func (l *Limiter) add(p *peer, g group) {
	m := l.groups[g]
	if m == nil {
		m = &members{group: g, at: -1}
		l.groups[g] = m
	}
	p.in = m
	p.size = max(1, p.size)
	p.nobodys.Store(g.isNobodys())
	l.count(p, 1)
	if p.end != nil && g.isNobodys() {
		p.free = m.asked.PushBack(p)
		return
	}
	l.mark(p)
}

// remove ends p, if it has not ended yet.
func (l *Limiter) remove(p *peer) {
	m := p.in
	if m == nil {
		return
	}
	if p.free != nil {
		m.free.Remove(p.free)
		m.asked.Remove(p.free) // it is in one of them
		p.free = nil
	}
	l.count(p, -1)
	p.in = nil
	if l.sort(m); m.count == 0 {
		delete(l.groups, m.group)
	}
}

// move makes p one of another group.
func (l *Limiter) move(p *peer, g group) {
	if p.in == nil { // it has just made way
		return
	}
	l.remove(p)
	p.size = 1
	l.add(p, g)
}

// count adds p, or takes it off if sign is -1.
func (l *Limiter) count(p *peer, sign int) {
	n := sign * p.size
	p.in.count += n
	if p.in.group.isUsers() {
		if l.known[p.from] += n; l.known[p.from] == 0 {
			delete(l.known, p.from)
		}
	}
	if p.conn == nil { // it is no connection of this server
		return
	}
	l.total += n
	switch g := p.in.group; {
	case g.isNobodys():
		l.nobodys += n
	case g.isUsers():
		l.ofUsers += n
	}
}

// mark puts p on the list of those that can make way, or takes it off.
func (l *Limiter) mark(p *peer) {
	switch can := p.canMakeWay(); {
	case can && p.free == nil:
		p.free = p.in.free.PushBack(p)
	case !can && p.free != nil:
		p.in.free.Remove(p.free)
		p.free = nil
	}
	l.sort(p.in)
}

// sizeOfHTTP2 is for how many a connection of HTTP/2 without a key counts while it has requests.
// It may have many that Handler does not see, and so does not count: net/http itself answers those
// with too many headers, and answers wait for their client when their handler has ended. One
// connection can hold 2 MB in this way.
const sizeOfHTTP2 = 8

// setIdle records whether a connection waits for its next request.
func (l *Limiter) setIdle(p *peer, idle, http2 bool) {
	var out evicted
	defer out.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	p.idle = idle
	if p.in == nil {
		return
	}
	g, size := p.in.group, 1
	if http2 && !idle && g.isNobodys() {
		size = sizeOfHTTP2
	}
	if size == p.size {
		l.mark(p)
		return
	}
	l.remove(p)
	p.size = size
	if l.o.WithoutKey > 0 {
		l.makeRoom(g, max(1, l.o.WithoutKey-size+1), &out)
	}
	l.add(p, g)
}

// leave ends a peer.
func (l *Limiter) leave(p *peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(p)
}

// evict ends the first peer of m that can make way, with its connection.
func (l *Limiter) evict(m *members, out *evicted) bool {
	first := m.free.Front()
	if first == nil {
		return false
	}
	p, _ := first.Value.(*peer)
	l.remove(p)
	l.remove(&p.conn.peer)
	c := p.conn.Conn
	*out = append(*out, func() { _ = c.Close() })
	return true
}

// endRequest ends the oldest request of m that came through a trusted proxy without a key. The
// connection of the proxy is not counted, so it makes no way by itself.
func (l *Limiter) endRequest(m *members, out *evicted) bool {
	first := m.asked.Front()
	if first == nil {
		return false
	}
	p, _ := first.Value.(*peer)
	l.remove(p)
	*out = append(*out, p.end)
	return true
}

// evicted are the ends of connections and requests that have made way.
type evicted []func()

// close ends them. Their clients are told by the end of the connection.
func (all *evicted) close() {
	for _, end := range *all {
		end()
	}
}

// largest is a heap: who has most is first.
type largest []*members

// sort puts m where it belongs: it is in a heap while it has peers that can make way.
func (l *Limiter) sort(m *members) {
	h := &l.users
	if m.group.isNobodys() {
		h = &l.strangers
	}
	switch {
	case m.free.Len() == 0 && m.at >= 0:
		heap.Remove(h, m.at)
	case m.free.Len() > 0 && m.at < 0:
		heap.Push(h, m)
	case m.at >= 0:
		heap.Fix(h, m.at)
	}
}

// Len implements heap.Interface.
func (h largest) Len() int { return len(h) }

// Less implements heap.Interface.
func (h largest) Less(i, j int) bool { return h[i].count > h[j].count }

// Swap implements heap.Interface.
func (h largest) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *largest) Push(x any) {
	m, _ := x.(*members)
	m.at = len(*h)
	*h = append(*h, m)
}

// Pop implements heap.Interface.
func (h *largest) Pop() any {
	n := len(*h) - 1
	m := (*h)[n]
	(*h)[n], *h = nil, (*h)[:n]
	m.at = -1
	return m
}
