package httpapi

import (
	"fmt"
	"io"
	"mime"
	"net/http"
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
	if err != nil {
		return nil, problem.Newf(problem.Malformed, "the body ended early")
	}
	return b, nil
}

func tooLarge(limit int64) error {
	return problem.Newf(problem.TooLarge, "the body is larger than %d bytes (%s)", limit, megabytes(limit))
}

func megabytes(n int64) string { return fmt.Sprintf("%d MB", n>>20) }

// drain reads on so that the client gets to read the answer.
func (c *call) drain(limit int64) {
	rc := http.NewResponseController(c.w)
	_ = rc.SetReadDeadline(time.Now().Add(linger)) // not every writer has deadlines; limit bounds it too
	_, _ = io.CopyN(io.Discard, c.r.Body, 2*limit)
	_ = rc.SetReadDeadline(time.Time{})
}
