package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// A command inside a pod of another server is a connection that is no HTTP after its head: frames of a
// type, a length and data, in both directions (docs/servers.md). The first one is the command.
const execProtocol = "podyard-exec"

// Types of frames.
const (
	frameCommand byte = iota + 1 // to the host: a pods.Command
	frameInput
	frameInputEnd
	frameEvent  // a pods.ExecEvent
	frameOutput // from the host
	frameErrors
	frameTaken // how many bytes of input were taken
	frameEnd   // an execEnd
	frameBeat  // a sign of life
)

const (
	execFrame  = 64 << 10  // bytes of a frame of input or output
	execHead   = 256 << 10 // bytes of any other
	execWindow = 256 << 10 // bytes of input that were sent and not taken
	execBeat   = time.Second
)

// An execStart is the first frame.
type execStart struct {
	Command pods.Command
	Stdin   bool
}

// An execEnd is how a command ended.
type execEnd struct {
	Code   int
	Kind   problem.Kind `json:",omitempty"` // of an error that a user may read
	Detail string       `json:",omitempty"`
	Failed bool         `json:",omitempty"` // for a reason that is not told
}

// frames are the frames of a connection. Writes may come from several goroutines.
type frames struct {
	in *bufio.Reader

	mu  sync.Mutex
	out io.Writer
}

var errFrame = errors.New("server: a frame of a command is too large")

func (f *frames) read() (kind byte, data []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > execHead {
		return 0, nil, errFrame
	}
	data = make([]byte, n)
	_, err = io.ReadFull(f.in, data)
	return head[0], data, err
}

func (f *frames) write(kind byte, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(data))), data...)
	_, err := f.out.Write(b)
	return err
}

func (f *frames) writeJSON(kind byte, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.write(kind, data)
}

// A frameWriter writes an output as frames.
type frameWriter struct {
	f    *frames
	kind byte
}

func (w frameWriter) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		part := b[n:min(len(b), n+execFrame)]
		if err = w.f.write(w.kind, part); err == nil {
			n += len(part)
		}
	}
	return n, err
}

// beat sends signs of life until ctx ends. lost is called when the other side does not take them.
func (f *frames) beat(ctx context.Context, lost func()) {
	t := time.NewTicker(execBeat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if f.write(frameBeat, nil) != nil {
				lost()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// serveExec runs a command inside a pod of a host here.
func serveExec(s *pods.Service, w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Upgrade") != execProtocol {
		return problem.New(problem.BadRequest, "this path is for commands of servers")
	}
	rc := http.NewResponseController(w)
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", execProtocol)
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buffered, err := rc.Hijack()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := errors.Join(conn.SetDeadline(time.Time{}), buffered.Flush()); err != nil {
		return nil // the other server has gone
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	f := &frames{in: buffered.Reader, out: conn}
	kind, data, err := f.read()
	var start execStart
	if err != nil || kind != frameCommand || json.Unmarshal(data, &start) != nil {
		return nil // the answer has begun
	}
	in := newInput(f)
	events := make(chan pods.ExecEvent, 16)
	var work sync.WaitGroup
	work.Go(func() { defer cancel(); in.receive(ctx, events) })
	work.Go(func() { f.beat(ctx, func() { cancel(); _ = conn.Close() }) })
	streams := pods.Streams{Stdout: frameWriter{f, frameOutput}, Stderr: frameWriter{f, frameErrors}, Events: events}
	if start.Stdin {
		streams.Stdin = in
	}
	stop := context.AfterFunc(ctx, func() { in.close(context.Cause(ctx)); _ = conn.Close() })
	code, err := s.HostExec(ctx, r.PathValue("id"), start.Command, streams)
	if ctx.Err() == nil && f.writeJSON(frameEnd, endOf(code, err)) == nil {
		<-ctx.Done() // the other side closes when it has read all: closing now would drop what is on its way
	}
	stop()
	cancel()
	in.close(io.ErrClosedPipe)
	_ = conn.Close()
	work.Wait()
	return nil
}

func endOf(code int, err error) execEnd {
	if err == nil {
		return execEnd{Code: code}
	}
	if problem.KindOf(err) == problem.Internal {
		return execEnd{Failed: true}
	}
	return execEnd{Kind: problem.KindOf(err), Detail: problem.Of(err).Detail}
}

// result is what Exec returns at the other server.
func (e execEnd) result(server string) (int, error) {
	switch {
	case e.Failed:
		return 0, fmt.Errorf("server: %q could not run the command", server)
	case e.Kind == problem.Conflict:
		return 0, pods.ErrNotRunning
	case e.Detail != "":
		return 0, problem.New(e.Kind, e.Detail)
	}
	return e.Code, nil
}

// An input is what a command reads, as it arrives. The other side sends no more than execWindow that was
// not taken.
type input struct {
	f *frames

	mu    sync.Mutex
	have  []byte
	err   error         // after have
	grown chan struct{} // has a value when something has changed
}

func newInput(f *frames) *input { return &input{f: f, grown: make(chan struct{}, 1)} }

func (p *input) wake() {
	select {
	case p.grown <- struct{}{}:
	default:
	}
}

func (p *input) close(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.wake()
}

// Read implements io.Reader. Only one goroutine reads.
func (p *input) Read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		n, err := copy(b, p.have), p.err
		p.have = p.have[n:]
		p.mu.Unlock()
		if n > 0 {
			return n, p.f.write(frameTaken, binary.BigEndian.AppendUint32(nil, uint32(n)))
		}
		if err != nil {
			return 0, err
		}
		<-p.grown
	}
}

// receive reads frames until the connection ends.
func (p *input) receive(ctx context.Context, events chan<- pods.ExecEvent) {
	for {
		kind, data, err := p.f.read()
		if err != nil {
			return
		}
		switch kind {
		case frameInput:
			if !p.add(data) {
				return
			}
		case frameInputEnd:
			p.close(io.EOF)
		case frameEvent:
			var e pods.ExecEvent
			if json.Unmarshal(data, &e) != nil {
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (p *input) add(data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.have)+len(data) > execWindow {
		return false
	}
	p.have = append(p.have, data...)
	p.wake()
	return true
}

// Exec implements pods.Executor.
func (p peer) Exec(whole context.Context, podID string, c pods.Command, s pods.Streams) (int, error) {
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	resp, err := p.upgrade(ctx, p.name, p.address, "pods/"+url.PathEscape(podID)+"/exec")
	if err != nil {
		return 0, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return 0, p.awayError(ctx, p.name, errors.Join(errors.New("it did not change the protocol"), resp.Body.Close()))
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	f := &frames{in: bufio.NewReader(conn), out: conn}
	if err := f.writeJSON(frameCommand, execStart{c, s.Stdin != nil}); err != nil {
		return 0, p.awayError(ctx, p.name, err)
	}
	room := &window{left: execWindow, grown: make(chan struct{}, 1), over: ctx.Done()}
	if s.Stdin != nil {
		go f.send(s.Stdin, room) // the caller ends it: see pods.Streams
	}
	var work sync.WaitGroup
	work.Go(func() { f.sendEvents(ctx, s.Events) })
	work.Go(func() { f.beat(ctx, cancel) })
	end, err := f.result(s, room, time.AfterFunc(peerSilence, cancel))
	cancel()
	work.Wait()
	switch {
	case whole.Err() != nil:
		return 0, whole.Err()
	case err != nil:
		return 0, err
	}
	return end.result(p.name)
}

var errOutput = errors.New("server: output of a command")

// send sends the input of a command.
func (f *frames) send(from io.Reader, room *window) {
	buf := make([]byte, execFrame)
	for {
		n, err := from.Read(buf)
		if n > 0 && (!room.take(n) || f.write(frameInput, buf[:n]) != nil) {
			return
		}
		if err != nil {
			_ = f.write(frameInputEnd, nil) // the command has ended
			return
		}
	}
}

func (f *frames) sendEvents(ctx context.Context, events <-chan pods.ExecEvent) {
	for {
		select {
		case e, ok := <-events:
			if !ok || f.writeJSON(frameEvent, e) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// result passes on the output until the command has ended.
func (f *frames) result(s pods.Streams, room *window, silent *time.Timer) (end execEnd, err error) {
	defer silent.Stop()
	for {
		kind, data, err := f.read()
		if err != nil {
			return end, fmt.Errorf("server: the command's host has gone: %w", err)
		}
		silent.Stop() // a slow reader of the output is not its silence
		switch kind {
		case frameOutput:
			_, err = s.Stdout.Write(data)
		case frameErrors:
			_, err = s.Stderr.Write(data)
		case frameTaken:
			if len(data) == 4 {
				room.give(int(binary.BigEndian.Uint32(data)))
			}
		case frameEnd:
			return end, json.Unmarshal(data, &end)
		}
		if err != nil {
			return end, fmt.Errorf("%w: %w", errOutput, err)
		}
		silent.Reset(peerSilence)
	}
}

// A window is how many bytes of input may be sent.
type window struct {
	mu    sync.Mutex
	left  int
	grown chan struct{}
	over  <-chan struct{}
}

func (w *window) give(n int) {
	w.mu.Lock()
	w.left += n
	w.mu.Unlock()
	select {
	case w.grown <- struct{}{}:
	default:
	}
}

func (w *window) take(n int) bool {
	for {
		w.mu.Lock()
		ok := w.left >= n
		if ok {
			w.left -= n
		}
		w.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-w.grown:
		case <-w.over:
			return false
		}
	}
}
