package postgres

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Times of the system's TCP. A database that was cut off without a word sends nothing more, so its
// connections are over when it has not acknowledged anything for silentTime. Connections that are
// not in use notice it by keepalives.
const (
	silentTime        = 20 * time.Second
	keepaliveIdle     = 10 * time.Second
	keepaliveInterval = 5 * time.Second
)

// links are the open connections of a Store, so that they can be closed whatever pgx does with them.
// An acknowledgement of TCP does not prove that anybody answers: a pooler that stands still, or a
// machine that is suspended behind a proxy, accepts what is sent and is silent for ever.
type links struct {
	timeout time.Duration // to connect
	now     func() time.Time
	foreign pgconn.DialFunc // of the program's own pool; nil: there is none

	mu     sync.Mutex
	open   map[*link]bool
	done   chan struct{} // closed by close
	closed bool

	// age counts how often connections were found to be lost. Those of one age are likely to be lost
	// together, for example all that were open when the primary of a cluster changed.
	age atomic.Int64
}

func newLinks(timeout time.Duration, now func() time.Time) *links {
	return &links{timeout: timeout, now: now, open: map[*link]bool{}, done: make(chan struct{})}
}

// A link is a connection below TLS.
type link struct {
	net.Conn

	of   *links
	age  int64
	used atomic.Int64 // when a call used it last, in nanoseconds since 1970
}

// Close closes the connection at once: TLS, which would send a last message, is above it.
func (l *link) Close() error {
	l.of.mu.Lock()
	delete(l.of.open, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

// abandon closes a connection that does not answer. What was sent and not acknowledged is dropped: else the
// system would go on sending it, and the database would get a commit long after the call has failed.
func (l *link) abandon() {
	if c, ok := l.Conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // it is closed already, or will be
	}
	_ = l.Close() // who uses it sees the error
}

// dial is the DialFunc of all connections.
func (l *links) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	age := l.age.Load()
	c, err := l.connect(ctx, network, address)
	if err != nil {
		select {
		case <-l.done:
			err = ErrClosed
		default:
		}
		return nil, err
	}
	made := &link{Conn: c, of: l, age: age}
	made.used.Store(l.now().UnixNano())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close() // nothing was sent
		return nil, ErrClosed
	}
	l.open[made] = true
	return made, nil
}

// connect opens a connection that notices silence. One that the program makes its own way need not be
// TCP, and the times of TCP are then those of the program.
func (l *links) connect(ctx context.Context, network, address string) (net.Conn, error) {
	keepalive := net.KeepAliveConfig{Enable: true, Idle: keepaliveIdle, Interval: keepaliveInterval, Count: int((silentTime - keepaliveIdle) / keepaliveInterval)}
	if l.foreign == nil {
		d := net.Dialer{Timeout: l.timeout, KeepAliveConfig: keepalive, ControlContext: limitSilence}
		return d.DialContext(ctx, network, address)
	}
	c, err := l.foreign(ctx, network, address)
	if t, ok := c.(*net.TCPConn); err == nil && ok {
		_ = t.SetKeepAliveConfig(keepalive) // without them the connection works as well
		if raw, err := t.SyscallConn(); err == nil {
			_ = limitSilence(ctx, network, address, raw)
		}
	}
	return c, err
}

// close closes all connections, and has no more of them.
func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	close(l.done)
	for c := range l.open {
		_ = c.Conn.Close() // who uses it sees the error
	}
	clear(l.open)
}

// lost reports whether a connection that is lost is the first of its age.
func (l *links) lost(c *link) bool { return l.age.CompareAndSwap(c.age, c.age+1) }

// linkOf returns the link of a connection.
func linkOf(c *pgxpool.Conn) *link {
	n := c.Conn().PgConn().Conn()
	if t, ok := n.(*tls.Conn); ok {
		n = t.NetConn()
	}
	return n.(*link)
}
