package sshfront

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/pkg/sftp"
)

// orderWait is how long a part of a file waits for the one before it. Clients send many at once, and package
// sftp hands them to several goroutines. One that comes from elsewhere in the file begins anew there: a wait
// that is too short costs time and breaks nothing.
const orderWait = 50 * time.Millisecond

// A stream is a program in the pod that reads or writes a file from an offset on.
type stream struct {
	tree   *tree
	name   string
	script string // of the program

	mu    sync.Mutex
	turns sync.Cond
	busy  bool      // a part is read or written
	at    int64     // the offset that comes next
	moved time.Time // when it changed
	shut  bool
	run   *program // nil: none runs
	over  bool     // the file ends at at
}

// A program is one run for a stream.
type program struct {
	cancel context.CancelFunc
	out    *io.PipeReader
	in     *io.PipeWriter
	ended  chan struct{}
	err    error // after ended
}

func (t *tree) open(name, script string) (*stream, error) {
	if t.files.Add(1) > maxFiles {
		t.files.Add(-1)
		return nil, errTooMany
	}
	s := &stream{tree: t, name: name, script: script}
	s.turns.L = &s.mu
	return s, nil
}

// turn waits until a part at an offset may be read or written.
func (s *stream) turn(offset int64) error {
	if offset < 0 {
		return sftp.ErrSSHFxBadMessage
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	since := time.Now()
	for !s.shut && (s.busy || s.at != offset) {
		if s.moved.After(since) {
			since = s.moved
		}
		left := orderWait - time.Since(since)
		if !s.busy && left <= 0 {
			break
		}
		wake := time.AfterFunc(max(left, time.Millisecond), s.wake)
		s.turns.Wait()
		wake.Stop()
	}
	if s.shut {
		return errClosed
	}
	s.busy = true
	return nil
}

var errClosed = errors.New("the file is closed")

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns.Broadcast()
}

// done ends a turn after n bytes.
func (s *stream) done(offset int64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.at, s.moved = false, offset+int64(n), time.Now()
	s.turns.Broadcast()
}

// begin has a program at an offset, in the caller's turn.
func (s *stream) begin(offset int64) error {
	if s.run != nil && s.at == offset {
		return nil
	}
	if err := s.end(); err != nil {
		return err
	}
	s.over = false
	ctx, cancel := context.WithCancel(s.tree.ctx)
	p := &program{cancel: cancel, ended: make(chan struct{})}
	theirs, ours := io.Pipe()
	var in io.Reader
	out := io.Discard
	if s.script == readScript {
		p.out, out = theirs, ours
	} else {
		p.in, in = ours, theirs
	}
	go func() {
		defer close(p.ended)
		p.err = s.tree.exec(ctx, s.script, []string{s.name, strconv.FormatInt(offset, 10)}, in, out)
		if p.out != nil {
			_ = ours.CloseWithError(p.err) // io.EOF for nil
			return
		}
		_ = theirs.CloseWithError(cmp.Or(p.err, io.ErrClosedPipe)) // ends a write
	}()
	s.run = p
	return nil
}

// end ends the program, and returns the error of one that writes.
func (s *stream) end() error {
	p := s.run
	if s.run = nil; p == nil {
		return nil
	}
	if p.in != nil {
		_ = p.in.Close() // the program sees the end
		<-p.ended
		p.cancel()
		return p.err
	}
	p.cancel()
	_ = p.out.Close()
	<-p.ended
	return nil
}

// close is called when the client closes the file.
func (s *stream) close() (err error) {
	defer s.tree.recovered(&err)
	s.mu.Lock()
	for s.busy {
		s.turns.Wait()
	}
	if s.shut {
		s.mu.Unlock()
		return nil
	}
	s.shut = true
	s.turns.Broadcast()
	s.mu.Unlock()
	s.tree.files.Add(-1)
	return s.end()
}

// A reading is a file that is open for reading.
type reading struct{ *stream }

// ReadAt implements io.ReaderAt.
func (f reading) ReadAt(b []byte, offset int64) (n int, err error) {
	defer f.tree.recovered(&err)
	if err := f.turn(offset); err != nil {
		return 0, err
	}
	defer func() { f.done(offset, n) }()
	if f.over && f.at <= offset {
		return 0, io.EOF
	}
	if err := f.begin(offset); err != nil {
		return 0, err
	}
	n, err = io.ReadFull(f.run.out, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		f.over, err = true, io.EOF
	}
	return n, err
}

// Close implements io.Closer.
func (f reading) Close() error { return f.close() }

// A writing is a file that is open for writing.
type writing struct{ *stream }

// WriteAt implements io.WriterAt.
func (f writing) WriteAt(b []byte, offset int64) (n int, err error) {
	defer f.tree.recovered(&err)
	if err := f.turn(offset); err != nil {
		return 0, err
	}
	defer func() { f.done(offset, n) }()
	if err := f.begin(offset); err != nil {
		return 0, err
	}
	return f.run.in.Write(b)
}

// Close implements io.Closer. It returns when all is written.
func (f writing) Close() error { return f.close() }
