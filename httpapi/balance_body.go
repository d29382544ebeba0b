package httpapi

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

var errBodySize = errors.New("httpapi: the body is too large")

// An upload is the body of a request on its way to a worker.
type upload struct {
	body  io.Reader
	done  func()      // called at the end of the body
	begun atomic.Bool // something was read
	size  int64

	mu  sync.Mutex
	err error // what is wrong with the body
}

// Read implements io.Reader. It reads at most maxProxied bytes.
func (u *upload) Read(b []byte) (int, error) {
	u.begun.Store(true)
	n, err := u.body.Read(b)
	u.size += int64(n)
	switch {
	case u.size > maxProxied:
		n, err = 0, errBodySize
	case errors.Is(err, io.EOF):
		u.done()
		return n, err
	}
	if err != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.err = err
	}
	return n, err
}

// Close does nothing: net/http closes the body of a request.
func (u *upload) Close() error { return nil }

// failed returns what is wrong with the body, or nil.
func (u *upload) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// A download is the body of an answer.
type download struct {
	io.ReadCloser

	silent *time.Timer // cancels the request; reset by each read that returns something
	left   int64       // bytes that may follow; negative: any number
	ended  func()      // called when the trailers are known
}

// Read implements io.Reader.
func (d *download) Read(b []byte) (int, error) {
	if d.left >= 0 && int64(len(b)) > d.left+1 {
		b = b[:d.left+1]
	}
	n, err := d.ReadCloser.Read(b)
	if n > 0 {
		d.silent.Reset(answerTime)
	}
	if d.left >= 0 {
		if int64(n) > d.left {
			return int(d.left), errAnswerEnd
		}
		d.left -= int64(n)
	}
	return n, err
}

// Close implements io.Closer.
func (d *download) Close() error {
	err := d.ReadCloser.Close()
	d.ended()
	return err
}
