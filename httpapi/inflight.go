package httpapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
)

const (
	// roomWait is how long a request waits for room before it is refused (docs/decisions.md
	// 37).
	roomWait = 30 * time.Second
	// largeAnswer is the size in bytes from which answers count.
	largeAnswer = 64 << 10
	// writeStep is how many bytes of a large answer a client must accept within slowReader.
	writeStep = 512 << 10
	// bodyStep is the size of the first buffer for a body.
	bodyStep = 64 << 10
)

// An answer is the writer of a request whose user has limits. What is large counts until the
// request ends, and a client that does not read it is cut off.
type answer struct {
	http.ResponseWriter

	hold    budget.Hold
	rolling bool // every write has a deadline
}

// Unwrap is used by http.ResponseController.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *answer) Write(b []byte) (int, error) {
	if len(b) <= largeAnswer && !w.rolling {
		return w.ResponseWriter.Write(b)
	}
	if len(b) > largeAnswer && w.hold.Size() < int64(len(b)) { // unless there is room for it already
		w.hold.Force(int64(len(b)) - w.hold.Size())
	}
	return writeSteps(w.ResponseWriter, b)
}

// FlushError is used by http.ResponseController.
func (w *answer) FlushError() error {
	rc := http.NewResponseController(w.ResponseWriter)
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }() // not every writer has deadlines
	_ = rc.SetWriteDeadline(time.Now().Add(slowReader))
	return rc.Flush()
}

// writeSteps writes b in steps, each with a deadline.
func writeSteps(w http.ResponseWriter, b []byte) (n int, err error) {
	rc := http.NewResponseController(w)
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }() // not every writer has deadlines
	for len(b) > 0 && err == nil {
		_ = rc.SetWriteDeadline(time.Now().Add(slowReader))
		var m int
		m, err = w.Write(b[:min(len(b), writeStep)])
		n, b = n+m, b[m:]
	}
	return n, err
}

// hold begins to count what the request holds, if its user has limits.
func (c *call) hold() {
	f, user := c.inFlight, cmp.Or(c.id.User, c.employer)
	if c.id.Exempt || f.Of(user) == nil {
		return
	}
	c.in, c.open, c.turn = f.Requests.Hold(user), f.Open[c.op.stays].Hold(user), c.op.turns(f).Hold(user)
	c.out = answer{ResponseWriter: c.w, hold: f.Responses.Hold(user), rolling: c.op.stays == budget.Streams || c.op.stays == budget.ProxiedRequests}
	c.limited = true
	if w, ok := c.w.(*statusWriter); ok {
		c.out.ResponseWriter, w.ResponseWriter = w.ResponseWriter, &c.out
		return
	}
	c.w = &c.out
}

// turns are where an operation takes its turn; nil: it needs none.
func (o *operation) turns(f *budget.InFlight) *budget.Pool {
	switch o.turn {
	case turnOfLists:
		return f.Lists
	case turnOfRecords:
		return f.Records
	}
	return nil
}

// release gives back what the request holds.
func (c *call) release() {
	c.in.Release()
	c.out.hold.Release()
	c.open.Release()
	c.turn.Release()
}

// roomFor waits until the body may have n more bytes.
func (c *call) roomFor(n int64) error {
	if !c.limited || c.in.Try(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), roomWait)
	defer cancel()
	if c.in.Grow(ctx, n) == nil {
		c.limitBody(c.w, c.r) // its time begins now
		return nil
	}
	return c.inFlight.Full(budget.RequestBytes, &c.in, n)
}

// tryRoom reports whether an answer of n bytes in all may be written now, and takes the room for it. One
// that is larger than all room needs that only.
func (c *call) tryRoom(n int64) bool {
	if !c.limited || n <= largeAnswer {
		return true
	}
	n = c.out.hold.Most(n) - c.out.hold.Size()
	return n <= 0 || c.out.hold.Try(n)
}

// roomForAnswer waits until an answer of n bytes in all may be written, as tryRoom says. Nothing of it
// should be in memory meanwhile.
func (c *call) roomForAnswer(n int64) error {
	if c.tryRoom(n) {
		return nil
	}
	n = c.out.hold.Most(n) - c.out.hold.Size()
	ctx, cancel := context.WithTimeout(c.r.Context(), roomWait)
	defer cancel()
	if c.out.hold.Grow(ctx, n) == nil {
		return nil
	}
	return c.inFlight.Full(budget.ResponseBytes, &c.out.hold, n)
}

// waitTurn counts a request that may stay open, and makes one whose answer may be large wait for its
// turn.
func (c *call) waitTurn() error {
	if !c.limited {
		return nil
	}
	if !c.open.Try(1) {
		return c.inFlight.Full(c.op.stays, &c.open, 1)
	}
	if c.hasTurn() || c.turn.Try(1) {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), roomWait)
	defer cancel()
	if c.turn.Grow(ctx, 1) == nil {
		return nil
	}
	return c.inFlight.Full(budget.ResponseBytes, &c.turn, 1)
}

// A bodyReader reads a body into a buffer that grows as it arrives.
type bodyReader struct {
	r    io.Reader
	size int64               // announced; negative: unknown
	most int64               // bytes, if size is unknown
	room func(n int64) error // called before the buffer grows by n
}

// errRoom is an error of bodyReader.room.
type errRoom struct{ error }

// read returns the body, and an error if it has fewer bytes than announced.
func (r *bodyReader) read() (b []byte, err error) {
	most := int(max(r.size, r.most))
	for err == nil && len(b) < most {
		if len(b) == cap(b) {
			next := min(max(2*len(b), bodyStep), most)
			if err := r.room(int64(next - len(b))); err != nil {
				return nil, errRoom{err}
			}
			b = append(make([]byte, 0, next), b...)
		}
		var n int
		n, err = r.r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
	}
	if len(b) == most || r.size < 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}
