package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Listener limits the connections of l. Those that find no room are closed at once.
func (l *Limiter) Listener(inner net.Listener) net.Listener { return listener{inner, l} }

type listener struct {
	net.Listener

	limiter *Limiter
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		limitUnsent(c)
		limited := &conn{Conn: c}
		at := addressOf(c.RemoteAddr())
		limited.peer = peer{limiter: l.limiter, conn: limited, address: at, from: network(at)}
		if l.limiter.enter(&limited.peer) == nil {
			return limited, nil
		}
		_ = c.Close() // there is nobody to answer
	}
}

// A conn is a connection that counts until it is closed.
type conn struct {
	net.Conn

	peer     peer
	idle     atomic.Bool  // it waits for its next request
	requests atomic.Int64 // that are answered now, of HTTP/2

	mu      sync.Mutex // guards what follows, and the deadlines of Conn
	writeBy time.Time  // that the server has set
	readBy  time.Time  // that the server has set
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.peer.limiter.leave(&c.peer)
	return c.Conn.Close()
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn. An idle connection may have less time than the server gives it.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = t
	if c.idle.Load() {
		if end := time.Now().Add(c.peer.rest()); t.IsZero() || t.After(end) {
			t = end
		}
	}
	return c.Conn.SetReadDeadline(t)
}

// rest is how long a connection may wait for its next request.
func (p *peer) rest() time.Duration {
	if p.nobodys.Load() {
		return p.limiter.o.Idle
	}
	return p.limiter.o.KeepAlive
}

// setIdle sets the deadline of a connection that has ended its last request, or takes it off one that has
// begun the next. After the end of a request of HTTP/1 the server sets a deadline itself, and calls
// SetReadDeadline. It has done so before the next request begins, too.
func (c *conn) setIdle(idle, http2 bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle.Store(idle)
	switch {
	case idle && http2:
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.peer.rest())) // it may be closed
	case http2:
		_ = c.Conn.SetReadDeadline(time.Time{})
	case !idle:
		_ = c.Conn.SetReadDeadline(c.readBy)
	}
}

// limitedConn returns the connection of a Listener, also below TLS; nil if there is none.
func limitedConn(c net.Conn) *conn {
	for {
		if limited, ok := c.(*conn); ok {
			return limited
		}
		below, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = below.NetConn()
	}
}

// ConnContext is a hook of http.Server, by which Accept knows the connection.
func (l *Limiter) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if limited := limitedConn(c); limited != nil {
		return context.WithValue(ctx, peerKey{}, &limited.peer)
	}
	return ctx
}

// ConnState is a hook of http.Server, by which an idle connection is known.
func (l *Limiter) ConnState(c net.Conn, s http.ConnState) {
	limited := limitedConn(c)
	if limited == nil || s != http.StateIdle && s != http.StateActive {
		return
	}
	idle, http2 := s == http.StateIdle, speaksHTTP2(c)
	limited.peer.limiter.setIdle(&limited.peer, idle, http2)
	limited.setIdle(idle, http2)
}

func speaksHTTP2(c net.Conn) bool {
	secure, ok := c.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

// Handler counts requests that are no connections of their own: those beyond the first of an
// HTTP/2 connection, and those that come through trusted proxies, for the address that these
// name. It passes all on, and ends answers that their clients do not read.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := r.Context().Value(peerKey{}).(*peer)
		if p == nil {
			p = &peer{limiter: l}
		}
		if from, ok := l.forwarded(r); ok {
			// The proxy's connection is no client's, and was not counted as one.
			p = &peer{limiter: p.limiter, isRequest: true, address: from, from: network(from)}
			ctx, answered := endable(r.Context(), p, http.NewResponseController(w))
			defer answered()
			r = r.WithContext(ctx)
		} else if c := p.conn; c != nil && r.ProtoMajor > 1 {
			defer c.requests.Add(-1)
			if c.requests.Add(1) > 1 && !l.trusts(p.address) {
				p = &peer{limiter: p.limiter, isRequest: true, conn: c, address: p.address, from: p.from}
			}
		}
		if p.isRequest {
			if err := p.limiter.enter(p); err != nil {
				refuse(w, err)
				return
			}
			defer p.limiter.leave(p)
			r = r.WithContext(context.WithValue(r.Context(), peerKey{}, p))
		}
		if r.ProtoMajor > 1 {
			s := newStreamWriter(w, r, p)
			defer s.end()
			w = s
		}
		next.ServeHTTP(w, r)
	})
}

// endable gives p a way to end its request, whether that waits, reads its body or writes its answer.
// After answered it does nothing: the connection then belongs to the next request of the proxy.
func endable(ctx context.Context, p *peer, rc *http.ResponseController) (_ context.Context, answered func()) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	over := false
	p.end = func() {
		mu.Lock()
		defer mu.Unlock()
		if cancel(); over {
			return
		}
		now := time.Now()
		_ = errors.Join(rc.SetReadDeadline(now), rc.SetWriteDeadline(now.Add(time.Second))) // not all writers have deadlines
	}
	return ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		cancel()
	}
}

// refuse answers a request for which there is no room. The answer has no body, because that
// would wait for a client that does not read.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusTooManyRequests
	if errors.Is(err, ErrFull) {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(status)
}
