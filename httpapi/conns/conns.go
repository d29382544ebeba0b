// Package conns limits the connections of a server (docs/decisions.md 37): in all, of each owner
// of keys, and of each address that has sent no key yet.
//
//	limit := conns.New(&conns.Options{})
//	l = limit.Listener(l)
//	srv := &http.Server{Handler: limit.Handler(h), ConnContext: limit.ConnContext, ConnState: limit.ConnState}
//
// server.Options.Connections does all but the first two lines. The handlers of httpapi call
// Accept for every key that they accept. With TLS the listener inside tls.NewListener is the
// one to limit. The server should have a ReadHeaderTimeout. Its IdleTimeout should be negative,
// because a Limiter ends idle connections itself (Options.KeepAlive): net/http starts that timer again
// when a connection of HTTP/2 ends, which stays in memory until then. It should have a ReadTimeout and a
// WriteTimeout, however long: only then a stream of HTTP/2 has timers, which net/http stops at its
// end. For a handler behind a Limiter a deadline of zero, of one stream, means none as always, and keeps
// the timer.
//
// A new connection has no key yet, so it counts for its address. Its first request with a valid
// key makes it one of the owner of that key. When there is no room, a connection makes way: one
// without a key, or an idle one of the owner who has most. The owners of ordinary keys never get
// the last twentieth of all connections. So there is always room to say who one is, and
// operators always get in.
//
// A connection with several requests at once, which HTTP/2 allows, counts as so many connections,
// and without a key as eight at least.
package conns

import (
	"cmp"
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
	DefaultPerOwner   = 2048
	DefaultWithoutKey = 256
	DefaultIdle       = 10 * time.Second
	DefaultStall      = time.Minute
	DefaultKeepAlive  = 2 * time.Minute
)

// noLimit is a time that never passes.
const noLimit = 100 * 365 * 24 * time.Hour

// Endless returns an instant that does not come. As the deadline of a stream of HTTP/2 it is better than
// zero: net/http gives up the timer of the stream then, and makes one for the next deadline that nobody
// stops when the stream has ended meanwhile.
func Endless() time.Time { return time.Now().Add(noLimit) }

// Options configures a Limiter. A zero field has its default; a negative number is no limit.
type Options struct {
	Total int // connections
	// PerOwner is the number of connections of an Owner who is no operator. Default: DefaultPerOwner,
	// and at most a fifth of Total, so that one user alone never has them all.
	PerOwner int
	// PerAddress is the number of connections of an address with keys that are no operator's.
	// Default: no limit, because the users of one machine or of one proxy share their address.
	PerAddress int
	WithoutKey int // connections of an address without a key
	// Idle is how long a connection without a key may wait for its next request, and may take to
	// read each 64 KB of an answer.
	Idle time.Duration
	// Stall is how long a connection with a key may take to read each 64 KB of an answer.
	Stall time.Duration
	// KeepAlive is how long a connection with a key may wait for its next request.
	KeepAlive time.Duration
	// Trusted are the networks of proxies. Their connections count in Total only. Instead of
	// them, the requests in flight are limited: of each owner, and without a key of each address
	// in X-Forwarded-For.
	Trusted []netip.Prefix
}

// An Owner is who connections with a key count for. The connections of a user, of the user's
// operator keys, of the workers of the user's endpoints, and of the visitors of the user's pods
// count apart, because a worker runs code that need not be the user's own, and anybody may visit.
type Owner struct {
	User     string
	Worker   bool // a worker with its own key, of an endpoint of User
	Visitor  bool // who visits an HTTP port of a pod of User
	Operator bool // an operator's key, or another server of the same store: it has no limit but Total
}

// A Limiter limits the connections of one or more listeners together. It is safe for
// concurrent use.
type Limiter struct {
	o Options

	mu     sync.Mutex
	groups map[group]*members
	// What follows counts connections, and requests beyond the first of a connection.
	total   int
	nobodys int                // without a key
	ofUsers int                // with a key that is no operator's
	known   map[netip.Addr]int // of users, by address
	// Who has connections that can make way, largest first.
	strangers, users largest
}

// New returns a Limiter. o may be nil.
func New(o *Options) *Limiter {
	l := &Limiter{groups: map[group]*members{}, known: map[netip.Addr]int{}}
	if o != nil {
		l.o = *o
	}
	l.o.Total = cmp.Or(l.o.Total, DefaultTotal)
	if l.o.PerOwner == 0 {
		l.o.PerOwner = DefaultPerOwner
		if l.o.Total > 0 {
			l.o.PerOwner = min(DefaultPerOwner, max(1, l.o.Total/5))
		}
	}
	l.o.WithoutKey = cmp.Or(l.o.WithoutKey, DefaultWithoutKey)
	l.o.Idle = cmp.Or(l.o.Idle, DefaultIdle)
	l.o.Stall = cmp.Or(l.o.Stall, DefaultStall)
	l.o.KeepAlive = cmp.Or(l.o.KeepAlive, DefaultKeepAlive)
	for _, d := range []*time.Duration{&l.o.Idle, &l.o.Stall, &l.o.KeepAlive} {
		if *d < 0 {
			*d = noLimit
		}
	}
	return l
}

// Apart returns a Limiter with counts of its own and half of Options.Total. It is for
// listeners that must not take room from those of l, such as one for workers. The hooks of l serve
// its connections, too.
func (l *Limiter) Apart() *Limiter {
	o := l.o
	if o.Total > 0 {
		o.Total = (o.Total + 1) / 2
	}
	return New(&o)
}

// Stats are what a Limiter counts.
type Stats struct {
	Connections int // all, and requests beyond the first of a connection
	WithoutKey  int // of Connections
	Groups      int // owners, addresses without a key, and trusted proxies
}

// Stats returns the present counts.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{l.total, l.nobodys, len(l.groups)}
}

// Errors of Accept.
var (
	ErrConnections = problem.New(problem.TooManyRequests, "too many connections of this user: use fewer at once")
	ErrAddress     = problem.New(problem.TooManyRequests, "too many connections of this address: use fewer at once")
	ErrFull        = problem.New(problem.Unavailable, "the server has too many connections")
)

type peerKey struct{}

// Accept records that the request of ctx has a valid key of an owner. It returns an error if
// there are too many connections already; the connection should then end. It returns nil for a
// connection that is not limited.
func Accept(ctx context.Context, o Owner) error {
	p, ok := ctx.Value(peerKey{}).(*peer)
	if !ok {
		return nil
	}
	var out evicted
	defer out.close()
	return p.limiter.accept(p, group{owner: o, keyed: true}, &out)
}

func (l *Limiter) accept(p *peer, g group, out *evicted) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.isRequest && p.conn != nil { // the connection is as its last request is
		if err := l.join(&p.conn.peer, g, out); err != nil {
			return err
		}
	}
	return l.join(p, g, out)
}

// join makes p one of g, if there is room.
func (l *Limiter) join(p *peer, g group, out *evicted) error {
	switch {
	case p.in == nil || p.in.group == g || p.in.group.proxy:
		return nil
	case g.owner.Operator:
		l.move(p, g)
		return nil
	case l.o.PerAddress > 0 && !p.in.group.isUsers() && l.known[p.from] >= l.o.PerAddress:
		return ErrAddress
	}
	if err := l.makeRoomOfUser(p, g, out); err != nil {
		return err
	}
	l.move(p, g)
	return nil
}

// makeRoomOfUser ends idle connections of users until p may be one of g, the group of a user.
func (l *Limiter) makeRoomOfUser(p *peer, g group, out *evicted) error {
	if !l.makeRoom(g, l.o.PerOwner, out) {
		return ErrConnections
	}
	if l.o.Total < 0 || p.conn == nil || p.in != nil && p.in.group.isUsers() {
		return nil
	}
	for l.ofUsers >= l.o.Total-l.reserve() {
		if len(l.users) == 0 {
			return ErrFull
		}
		l.evict(l.users[0], out)
	}
	return nil
}

// makeRoom ends connections of a group that can make way, until it has fewer than most. It
// returns false if there are not enough of them.
func (l *Limiter) makeRoom(g group, most int, out *evicted) bool {
	for m := l.groups[g]; most > 0 && m != nil && m.count >= most; {
		if !l.evict(m, out) && !l.endRequest(m, out) {
			return false
		}
	}
	return true
}

// reserve is how many of all connections users do not get.
func (l *Limiter) reserve() int { return min(max(1, l.o.Total/20), l.o.Total-1) }

// enter adds a peer, and ends connections that must make way for it. It returns an error if there
// is no room.
func (l *Limiter) enter(p *peer) error {
	var out evicted
	defer out.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	g := group{from: p.from}
	switch {
	case p.isRequest && p.conn != nil && p.conn.peer.in != nil:
		g = p.conn.peer.in.group // until its own key says otherwise
	case !p.isRequest && l.trusts(p.address):
		g.proxy = true
	}
	if g.isNobodys() && !l.makeRoom(g, l.o.WithoutKey, &out) {
		return ErrAddress
	}
	if g.isUsers() {
		if err := l.makeRoomOfUser(p, g, &out); err != nil {
			return err
		}
	}
	for p.conn != nil && l.o.Total > 0 && l.total >= l.o.Total {
		m := l.richest()
		if m == nil {
			return ErrFull
		}
		l.evict(m, &out)
	}
	l.add(p, g)
	return nil
}

// richest returns who must give up a connection when there are too many in all; nil: nobody can.
// Those without a key come first if they have a quarter of all, or if an address of theirs has as
// many as any user.
func (l *Limiter) richest() *members {
	switch {
	case len(l.strangers) > 0 && (len(l.users) == 0 || 4*l.nobodys >= l.o.Total || l.strangers[0].count >= l.users[0].count):
		return l.strangers[0]
	case len(l.users) > 0:
		return l.users[0]
	}
	return nil
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

// network returns what counts as one address: of IPv6 the first 64 bits, because one machine
// has all that follow.
func network(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	p, _ := a.Prefix(64) // every address of IPv6 has 64 bits
	return p.Addr()
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
