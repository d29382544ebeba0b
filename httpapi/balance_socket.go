package httpapi

import (
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// Times of the end of a WebSocket.
const (
	frameTime  = time.Second            // for the worker to finish a frame
	socketTime = 500 * time.Millisecond // for the client to close after the last frame
)

// goingAway is a frame that closes a WebSocket with the status 1001.
var goingAway = []byte{0x88, 2, 1001 >> 8, 1001 & 0xff}

var errGoneAway = errors.New("httpapi: the WebSocket was closed")

// A socket is the worker's side of a WebSocket. Frames pass unchanged. After goAway the client
// gets a frame with the status 1001 after the present frame, and nothing else.
type socket struct {
	worker io.ReadWriteCloser
	conn   *workerConn // under worker
	frames frames      // from the worker
	away   atomic.Bool
	waited bool // Read has given the worker time to finish a frame
	closed bool // the last frame was sent
}

func newSocket(worker io.ReadWriteCloser, conn *workerConn) *socket {
	return &socket{worker: worker, conn: conn}
}

// goAway ends the WebSocket. It does not block.
func (s *socket) goAway() {
	s.away.Store(true)
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // wakes Read; an error means that it has ended
}

// Close is called by httputil.ReverseProxy when the request ends for any reason.
func (s *socket) Close() error {
	s.goAway()
	return nil
}

// release closes the connection of the worker.
func (s *socket) release() { _ = s.worker.Close() }

// Read returns what the worker sends.
func (s *socket) Read(b []byte) (int, error) {
	for {
		if s.away.Load() && s.frames.complete() {
			return s.last(b)
		}
		n, err := s.worker.Read(s.frames.rest(b, s.away.Load()))
		s.frames.pass(b[:n])
		switch {
		case n > 0:
			return n, nil
		case err != nil && s.away.Load() && s.frames.complete():
		case err != nil && s.away.Load() && !s.waited:
			s.waited = true
			_ = s.conn.SetReadDeadline(time.Now().Add(frameTime))
		case err != nil:
			return 0, err
		}
	}
}

// last returns the last frame, and then an error after the client had time to read it.
func (s *socket) last(b []byte) (int, error) {
	if !s.closed {
		s.closed = true
		return copy(b, goingAway), nil
	}
	time.Sleep(socketTime)
	return 0, errGoneAway
}

// Write sends what the client sends. After goAway it is dropped.
func (s *socket) Write(b []byte) (int, error) {
	if s.away.Load() {
		return len(b), nil
	}
	n, err := s.worker.Write(b)
	if err != nil && s.away.Load() {
		return len(b), nil
	}
	return n, err
}

// frames follows the frames of a WebSocket (RFC 6455, 5.2) in one direction.
type frames struct {
	header [14]byte
	have   int    // bytes of header
	left   uint64 // bytes of the payload that follow
}

// complete reports whether the next byte begins a frame.
func (f *frames) complete() bool { return f.have == 0 && f.left == 0 }

// rest returns b, cut so that a read does not go beyond the present frame if only is set.
func (f *frames) rest(b []byte, only bool) []byte {
	switch {
	case !only:
		return b
	case f.left > 0:
		return b[:min(uint64(len(b)), f.left)]
	}
	return b[:1] // of a header, whose length is not known yet
}

// pass takes bytes of the direction.
func (f *frames) pass(b []byte) {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(uint64(len(b)), f.left)
			f.left -= n
			b = b[n:]
			continue
		}
		f.header[f.have] = b[0]
		f.have++
		b = b[1:]
		if f.have >= 2 && f.have == f.headerSize() {
			f.left, f.have = f.payload(), 0
		}
	}
}

func (f *frames) headerSize() int {
	n := 2
	switch f.header[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.header[1]&0x80 != 0 {
		n += 4
	}
	return n
}

func (f *frames) payload() uint64 {
	switch n := f.header[1] & 0x7f; n {
	case 126:
		return uint64(binary.BigEndian.Uint16(f.header[2:]))
	case 127:
		return binary.BigEndian.Uint64(f.header[2:])
	default:
		return uint64(n)
	}
}
