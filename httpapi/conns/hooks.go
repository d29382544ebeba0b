package conns

import (
	"context"
	"net"
	"net/http"
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
		limited := &conn{Conn: c}
		limited.peer = peer{limiter: l.limiter, conn: limited, from: addressOf(c.RemoteAddr())}
		out, ok := l.limiter.enter(&limited.peer)
		if out != nil {
			_ = out.Conn.Close() // its client is told by the end of the connection
		}
		if ok {
			return limited, nil
		}
		_ = c.Close() // there is nobody to answer
	}
}

// A conn is a connection that counts until it is closed.
type conn struct {
	net.Conn

	peer peer
	idle atomic.Bool // it waits for its next request
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.peer.limiter.leave(&c.peer)
	return c.Conn.Close()
}

// SetReadDeadline implements net.Conn. An idle connection without a key has less time than the
// server gives it.
func (c *conn) SetReadDeadline(t time.Time) error {
	l := c.peer.limiter
	if c.idle.Load() && !l.knows(&c.peer) {
		if end := time.Now().Add(l.o.Idle); t.IsZero() || t.After(end) {
			t = end
		}
	}
	return c.Conn.SetReadDeadline(t)
}

func (l *Limiter) knows(p *peer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.known
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
	if limited := limitedConn(c); limited != nil {
		limited.idle.Store(s == http.StateIdle)
	}
}

// Handler limits the requests that come through trusted proxies, by the address that these
// name, and passes the others on.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	if len(l.o.Trusted) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, ok := l.forwarded(r)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		p := &peer{limiter: l, from: from}
		if _, ok := l.enter(p); !ok {
			w.Header().Set("Retry-After", "1")
			http.Error(w, ErrConnections.Error(), http.StatusTooManyRequests) //nolint:forbidigo // before the handler that writes problems
			return
		}
		defer l.leave(p)
		_ = Accept(r.Context()) // the proxy's connection is no client's
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, p)))
	})
}
