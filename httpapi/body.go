package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
)

// Sizes of request bodies in bytes (docs/interface.md 8.2; docs/decisions.md 10).
const (
	maxControlBody = 1 << 20
	maxPodBody     = 102_400  // of a new pod, as the public API has it
	maxSmallBody   = 64 << 10 // of the control API for records whose size no budget counts
	maxRunBody     = 10 << 20
	maxSyncBody    = 20 << 20
)

// drainTimeout limits how long the server continues to read a body that is too large. If it
// closed at once, the client would get a broken pipe instead of the answer.
const drainTimeout = 2 * time.Second

// minBodyRate is how many bytes of a body must arrive in a second.
const minBodyRate = 64 << 10

// limitBody sets the deadline for the body of r. It applies to all requests, also if their
// body is ignored: before net/http answers, it reads the rest of the body without its own
// time limit.
func (a *api) limitBody(w http.ResponseWriter, r *http.Request) { a.limitBodyTo(w, r, maxSyncBody) }

// limitBodyTo is limitBody for bodies of at most most bytes.
func (a *api) limitBodyTo(w http.ResponseWriter, r *http.Request, most int64) {
	n := r.ContentLength
	if n == 0 || a.bodyTimeout < 0 {
		return
	}
	if n < 0 || n > most {
		n = most
	}
	d := a.bodyTimeout + time.Duration(n)*time.Second/minBodyRate
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(d)) // not every writer has deadlines
}

// clearBodyDeadline removes the deadline of limitBody, so that the connection can wait for
// the next request and notice a disconnect.
func (c *call) clearBodyDeadline() {
	if c.r.ContentLength != 0 && c.bodyTimeout >= 0 {
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
	}
}

// jsonBody is body for the control API, which checks the media type.
func (c *call) jsonBody() ([]byte, error) {
	if t := c.r.Header.Get("Content-Type"); t != "" {
		mt, _, err := mime.ParseMediaType(t)
		if err != nil || mt != "application/json" && !(strings.HasPrefix(mt, "application/") && strings.HasSuffix(mt, "+json")) {
			return nil, problem.Newf(problem.UnsupportedMediaType, "the body must be application/json")
		}
	}
	if c.op.largest > 0 {
		return c.body(c.op.largest)
	}
	if c.op.Area == AreaRegistries || c.op.Area == AreaVolumes {
		return c.body(maxSmallBody)
	}
	return c.body(maxControlBody)
}

// decode reads a body of the control API into r, whose Violations get its faults.
func decode[R any](c *call, r *R, faults *problem.Violations, read func(*object, *R)) error {
	body, err := c.jsonBody()
	if err != nil {
		return err
	}
	return decodeBody(body, r, faults, read)
}

func decodeBody[R any](body []byte, r *R, faults *problem.Violations, read func(*object, *R)) error {
	o, err := parse(body, strictThroughout, faults)
	if err == nil {
		read(o, r)
	}
	return err
}

// optionalObject is jsonObject for operations that need no body; nil if there is none.
func (c *call) optionalObject(faults *problem.Violations) (*object, error) {
	if c.r.ContentLength == 0 {
		return nil, nil
	}
	return c.jsonObject(faults)
}

// jsonObject reads a body of the control API as an object, for handlers that decode it
// themselves.
func (c *call) jsonObject(faults *problem.Violations) (*object, error) {
	body, err := c.jsonBody()
	if err != nil {
		return nil, err
	}
	return parse(body, strictThroughout, faults)
}

// body reads the whole body, at most limit bytes of it.
func (c *call) body(limit int64) ([]byte, error) {
	if c.r.ContentLength > limit {
		// A client that waits for permission has sent nothing, and sends nothing after a refusal.
		if !strings.EqualFold(c.r.Header.Get("Expect"), "100-continue") {
			c.drain(limit)
		}
		return nil, c.tooLarge(limit)
	}
	b, err := c.readBody(limit)
	full := errRoom{}
	switch {
	case int64(len(b)) > limit:
		c.drain(limit)
		return nil, c.tooLarge(limit)
	case errors.As(err, &full):
		c.drain(limit)
		c.w.Header().Set("Connection", "close")
		return nil, full.error
	case errors.Is(err, os.ErrDeadlineExceeded):
		// The deadline stays: net/http would wait for the rest of the body.
		c.w.Header().Set("Connection", "close")
		return nil, problem.Newf(problem.RequestTimeout, "the body did not arrive in time")
	case err != nil:
		return nil, problem.Newf(problem.BadRequest, "the body ended early")
	}
	c.clearBodyDeadline()
	return b, c.readKey(b)
}

// readBody reads a body whose announced length is at most limit, or one of unknown length up to
// one byte beyond limit.
func (c *call) readBody(limit int64) ([]byte, error) {
	r := bodyReader{r: c.r.Body, size: c.r.ContentLength, room: c.roomFor}
	if r.size < 0 {
		r.most = limit + 1
	}
	return r.read()
}

// tooLarge returns the refusal of a body, and closes the connection after the answer.
func (c *call) tooLarge(limit int64) error {
	c.w.Header().Set("Connection", "close")
	size, unit := limit>>20, "MB"
	if size == 0 {
		size, unit = limit>>10, "KB"
	}
	return problem.Newf(problem.TooLarge, "the body is larger than %d bytes (%d %s)", limit, size, unit)
}

// drain reads on so that the client can read the answer. The deadline stays, because the
// connection ends.
func (c *call) drain(limit int64) {
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(drainTimeout)) // not every writer has deadlines; limit bounds it too
	_, _ = io.CopyN(io.Discard, c.r.Body, 2*limit)
}
