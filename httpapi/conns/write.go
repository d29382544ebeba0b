package conns

import (
	"net/http"
	"sync/atomic"
	"time"
)

// writeStep is how many bytes of an answer a client must accept within Options.Stall, or within
// Options.Idle if it has sent no key.
const writeStep = 64 << 10

// stall is how long the next bytes to a peer may take.
func (p *peer) stall() time.Duration {
	if p.nobodys.Load() {
		return p.limiter.o.Idle
	}
	return p.limiter.o.Stall
}

// Write implements net.Conn. What waits for a client that does not read ends. A connection on
// which nothing is written may be silent for as long as it likes.
func (c *conn) Write(b []byte) (n int, err error) {
	stall := c.peer.stall()
	for {
		c.armWrite(time.Now().Add(stall))
		m, err := c.Conn.Write(b[n:min(len(b), n+writeStep)])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// armWrite sets the deadline of the next write, which is not after the server's own.
func (c *conn) armWrite(end time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.writeBy.IsZero() && c.writeBy.Before(end) {
		end = c.writeBy
	}
	_ = c.Conn.SetWriteDeadline(end) // then the write fails, too
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy = t
	return c.Conn.SetWriteDeadline(t)
}

// A streamWriter writes the answer to a request of HTTP/2. A client can hold it back without
// holding back its connection, so it has deadlines of its own.
type streamWriter struct {
	http.ResponseWriter

	peer          *peer
	own           atomic.Bool // the handler has set a deadline
	reads, writes bool        // the stream has timers for deadlines, which stay
}

func newStreamWriter(w http.ResponseWriter, r *http.Request, p *peer) *streamWriter {
	s := &streamWriter{ResponseWriter: w, peer: p}
	if srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		s.reads, s.writes = srv.ReadTimeout > 0, srv.WriteTimeout > 0
	}
	return s
}

// none returns t, or for the zero Time an instant that does not come if the stream has a timer. A stream
// without one would get it by that instant, perhaps after its end.
func none(t time.Time, timer bool) time.Time {
	if t.IsZero() && timer {
		return Endless()
	}
	return t
}

// Unwrap is used by http.ResponseController.
func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetWriteDeadline is used by http.ResponseController.
func (w *streamWriter) SetWriteDeadline(t time.Time) error {
	w.own.Store(!t.IsZero())
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(none(t, w.writes))
}

// SetReadDeadline is used by http.ResponseController.
func (w *streamWriter) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(none(t, w.reads))
}

// arm sets the deadline of what is written now, unless the handler has one.
func (w *streamWriter) arm() (rest func()) {
	if w.own.Load() {
		return func() {}
	}
	rc := http.NewResponseController(w.ResponseWriter)
	_ = rc.SetWriteDeadline(time.Now().Add(w.peer.stall())) // every writer of HTTP/2 has deadlines
	return func() { _ = rc.SetWriteDeadline(none(time.Time{}, w.writes)) }
}

// Write implements http.ResponseWriter.
func (w *streamWriter) Write(b []byte) (n int, err error) {
	defer w.arm()()
	for {
		m, err := w.ResponseWriter.Write(b[n:min(len(b), n+writeStep)])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
		w.arm()
	}
}

// FlushError is used by http.ResponseController.
func (w *streamWriter) FlushError() error {
	defer w.arm()()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (w *streamWriter) Flush() { _ = w.FlushError() }

// end is called when the handler has ended: the server then writes the rest of the answer.
func (w *streamWriter) end() { w.arm() }
