package httpapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
)

// Sizes of request bodies in bytes (section 8.2; decisions, row 10).
const (
	maxControlBody = 1 << 20
	maxRunBody     = 10 << 20
	maxSyncBody    = 20 << 20
)

// linger bounds how long a body that is too large is read on: a server that closes
// early makes the client see a broken pipe instead of the answer.
const linger = 2 * time.Second

// slowest is how many bytes of a body have to arrive in a second.
const slowest = 64 << 10

// limitBody sets when the body of r must have arrived. It is for all requests and not
// only for those whose body matters: net/http reads on in a body before the answer to any
// of them, without end.
func (a *api) limitBody(w http.ResponseWriter, r *http.Request) {
	n := r.ContentLength
	if n == 0 || a.late < 0 {
		return
	}
	if n < 0 || n > maxSyncBody {
		n = maxSyncBody
	}
	d := a.late + time.Duration(n)*time.Second/slowest
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(d)) // not every writer has deadlines
}

// arrived lets the connection wait for the next request, and see that the client is gone.
func (c *call) arrived() {
	if c.r.ContentLength != 0 && c.late >= 0 {
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
	}
}

// jsonBody is body for the control API, which looks at the media type.
func (c *call) jsonBody() ([]byte, error) {
	if t := c.r.Header.Get("Content-Type"); t != "" {
		mt, _, err := mime.ParseMediaType(t)
		if err != nil || mt != "application/json" && !(strings.HasPrefix(mt, "application/") && strings.HasSuffix(mt, "+json")) {
			return nil, problem.Newf(problem.MediaType, "the body must be application/json")
		}
	}
	return c.body(maxControlBody)
}

// body reads the whole body, at most limit bytes of it.
func (c *call) body(limit int64) ([]byte, error) {
	n := c.r.ContentLength
	if n > limit {
		// A client that asks first has sent nothing, and will not when it reads the answer.
		if !strings.EqualFold(c.r.Header.Get("Expect"), "100-continue") {
			c.drain(limit)
		}
		c.w.Header().Set("Connection", "close")
		return nil, tooLarge(limit)
	}
	var b []byte
	var err error
	if n >= 0 {
		b = make([]byte, n)
		_, err = io.ReadFull(c.r.Body, b)
	} else {
		b, err = io.ReadAll(io.LimitReader(c.r.Body, limit+1))
		if int64(len(b)) > limit {
			c.drain(limit)
			c.w.Header().Set("Connection", "close")
			return nil, tooLarge(limit)
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		// The deadline stays: net/http would wait for the rest of the body.
		c.w.Header().Set("Connection", "close")
		return nil, problem.Newf(problem.Late, "the body did not arrive in time")
	case err != nil:
		return nil, problem.Newf(problem.Malformed, "the body ended early")
	}
	c.arrived()
	return b, nil
}

func tooLarge(limit int64) error {
	return problem.Newf(problem.TooLarge, "the body is larger than %d bytes (%s)", limit, megabytes(limit))
}

func megabytes(n int64) string { return fmt.Sprintf("%d MB", n>>20) }

// drain reads on so that the client gets to read the answer. The deadline stays: the
// connection ends.
func (c *call) drain(limit int64) {
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(linger)) // not every writer has deadlines; limit bounds it too
	_, _ = io.CopyN(io.Discard, c.r.Body, 2*limit)
}
