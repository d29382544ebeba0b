// Package conns limits the connections of a server: in all, and those of each address, with a
// key that was accepted and without (docs/decisions.md 37). When there are too many, the oldest
// connection without a key is closed for a new one. One that is idle for long is closed, too.
//
//	limit := conns.New(&conns.Options{})
//	l = limit.Listener(l)
//	srv := &http.Server{Handler: limit.Handler(h), ConnContext: limit.ConnContext, ConnState: limit.ConnState}
//
// server.Options.Connections does all but the first two lines. The handlers of httpapi call
// Accept for every key that they accept. With TLS the listener inside tls.NewListener is the
// one to limit. The server should have a ReadHeaderTimeout.
package conns

import (
	"cmp"
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/problem"
)

// Defaults of Options.
const (
	DefaultTotal      = 10_000
	DefaultPerAddress = 2048
	DefaultWithoutKey = 256
	DefaultIdle       = 10 * time.Second
)

// Options configures a Limiter. A zero field has its default; a negative number is no limit.
type Options struct {
	Total      int // connections
	PerAddress int // connections of an address with a key that was accepted
	WithoutKey int // connections of an address without
	// Idle is how long a connection without a key may wait for its next request.
	Idle time.Duration
	// Trusted are the networks of proxies. Their connections count in Total only. Instead of
	// them, the requests in flight of each address in X-Forwarded-For are limited.
	Trusted []netip.Prefix
}

// A Limiter limits the connections of one or more listeners together. It is safe for
// concurrent use.
type Limiter struct {
	o Options

	mu        sync.Mutex
	total     int
	waiting   list.List // of *peer: connections without a key, oldest first
	addresses map[netip.Addr]*address
}

// An address has the connections of an address, or its requests through a trusted proxy.
type address struct {
	known   int
	waiting list.List // of *peer, oldest first
}

// A peer is a connection, or a request through a trusted proxy.
type peer struct {
	limiter *Limiter
	at      *address // nil: of a trusted proxy
	from    netip.Addr
	conn    *conn // nil: a request

	// Guarded by the limiter.
	known, over bool
	inAll, inAt *list.Element // while it has no key
}

// New returns a Limiter. o may be nil.
func New(o *Options) *Limiter {
	l := &Limiter{addresses: map[netip.Addr]*address{}}
	if o != nil {
		l.o = *o
	}
	l.o.Total = cmp.Or(l.o.Total, DefaultTotal)
	l.o.PerAddress = cmp.Or(l.o.PerAddress, DefaultPerAddress)
	l.o.WithoutKey = cmp.Or(l.o.WithoutKey, DefaultWithoutKey)
	l.o.Idle = cmp.Or(l.o.Idle, DefaultIdle)
	return l
}

// Stats are what a Limiter counts.
type Stats struct {
	Connections int // all
	WithoutKey  int
	Addresses   int // with connections, or with requests through a proxy
}

// Stats returns the present counts.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{l.total, l.waiting.Len(), len(l.addresses)}
}

// ErrConnections refuses a request on a connection too many of its address.
var ErrConnections = problem.New(problem.TooManyRequests, "too many connections of this address: use fewer at once")

type peerKey struct{}

// Accept records that the request of ctx has a valid key. It returns ErrConnections if its
// address has too many connections already; the connection should then end. It returns nil for
// a connection that is not limited.
func Accept(ctx context.Context) error {
	p, ok := ctx.Value(peerKey{}).(*peer)
	if !ok {
		return nil
	}
	return p.accept()
}

func (p *peer) accept() error {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case p.known || p.over:
		return nil
	case p.at != nil && l.o.PerAddress > 0 && p.at.known >= l.o.PerAddress:
		return ErrConnections
	}
	l.forget(p)
	p.known = true
	if p.at != nil {
		p.at.known++
	}
	return nil
}

// forget takes a peer off the lists of those without a key.
func (l *Limiter) forget(p *peer) {
	if p.inAll != nil {
		l.waiting.Remove(p.inAll)
		p.inAll = nil
	}
	if p.inAt != nil {
		p.at.waiting.Remove(p.inAt)
		p.inAt = nil
	}
}

// leave ends a peer.
func (l *Limiter) leave(p *peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(p)
}

func (l *Limiter) end(p *peer) {
	if p.over {
		return
	}
	p.over = true
	l.forget(p)
	if p.conn != nil {
		l.total--
	}
	if p.at == nil {
		return
	}
	if p.known {
		p.at.known--
	}
	if p.at.known == 0 && p.at.waiting.Len() == 0 {
		delete(l.addresses, p.from)
	}
}

// enter adds a peer. It returns the connection that must make way for it, if there is one, and
// false if there is no room.
func (l *Limiter) enter(p *peer) (out *conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	trusted := p.conn != nil && l.trusts(p.from)
	if !trusted {
		if p.at = l.addresses[p.from]; p.at == nil {
			p.at = &address{}
			l.addresses[p.from] = p.at
		}
	}
	if out, ok = l.makeWay(p); !ok {
		if p.at != nil && p.at.known == 0 && p.at.waiting.Len() == 0 {
			delete(l.addresses, p.from)
		}
		return nil, false
	}
	if p.conn != nil {
		l.total++
		p.inAll = l.waiting.PushBack(p)
	}
	if p.at != nil {
		l.addresses[p.from] = p.at // it may have been deleted with the one that made way
		p.inAt = p.at.waiting.PushBack(p)
	}
	return out, true
}

// makeWay ends the oldest connection without a key where there are too many.
func (l *Limiter) makeWay(p *peer) (out *conn, ok bool) {
	full := p.at != nil && l.o.WithoutKey > 0 && p.at.waiting.Len() >= l.o.WithoutKey
	switch {
	case p.conn == nil:
		return nil, !full
	case full:
		return l.evict(p.at.waiting.Front())
	case l.o.Total > 0 && l.total >= l.o.Total:
		return l.evict(l.waiting.Front())
	}
	return nil, true
}

func (l *Limiter) evict(oldest *list.Element) (out *conn, ok bool) {
	if oldest == nil {
		return nil, false
	}
	p, ok := oldest.Value.(*peer)
	if !ok || p.conn == nil {
		return nil, false
	}
	l.end(p)
	return p.conn, true
}

func (l *Limiter) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(l.o.Trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// addressOf returns the address of a connection; the zero Addr if it has none.
func addressOf(a net.Addr) netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	from, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap().WithZone("")
}

// forwarded returns the address of the client behind trusted proxies; ok is false if the
// request did not come through one.
func (l *Limiter) forwarded(r *http.Request) (at netip.Addr, ok bool) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return at, false
	}
	at = from.Addr().Unmap().WithZone("")
	hops := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	for hops != "" && l.trusts(at) {
		i := strings.LastIndexByte(hops, ',')
		before, err := parseHop(strings.TrimSpace(hops[i+1:]))
		if err != nil {
			break
		}
		at, hops, ok = before, hops[:max(i, 0)], true
	}
	return at, ok
}

// parseHop reads an address with or without a port.
func parseHop(s string) (netip.Addr, error) {
	if p, err := netip.ParseAddrPort(s); err == nil {
		return p.Addr().Unmap().WithZone(""), nil
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return a.Unmap().WithZone(""), err
}
