package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"
)

// A PodCommand is a command for a pod that runs (docs/interface.md 2.26).
type PodCommand struct {
	Command []string      // a program and its arguments
	Stdin   string        // at most 1 MB
	Timeout time.Duration // from 1 s to 10 minutes; 0: one minute
}

// A PodCommandResult is how a command has ended.
type PodCommandResult struct {
	ExitCode  int    `json:"exitCode"` // 127: the image has no such program
	Stdout    string `json:"stdout"`   // at most 1 MB
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated"` // there was more of either
}

// Exec runs a command inside a pod, as the user of its container, and waits for its end. It is not
// repeated after an error that leaves open whether the command has run. It is an addition.
func (p *Pods) Exec(ctx context.Context, id string, c PodCommand) (res PodCommandResult, err error) {
	body := struct {
		Command []string `json:"command"`
		Stdin   string   `json:"stdin,omitempty"`
		Timeout int64    `json:"timeout,omitempty"`
	}{c.Command, c.Stdin, c.Timeout.Milliseconds()}
	r, err := to(p.c.control, http.MethodPost, join("/v2/pods", id, "exec"), nil).with(body)
	if err != nil {
		return res, err
	}
	_, err = p.c.do(ctx, r, &res)
	return res, err
}

// ReadFiles returns a file of a pod, or a directory with what is below it, as a tar archive whose names
// begin with the last element of path. path is absolute. The caller closes the archive. One that breaks off is
// an error of Read. It is an addition.
func (p *Pods) ReadFiles(ctx context.Context, id, path string) (io.ReadCloser, error) {
	r := to(p.c.control, http.MethodGet, join("/v2/pods", id, "files"), url.Values{"path": {path}})
	r.accept = "application/x-tar"
	res, err := p.c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// WriteFiles extracts a tar archive into a directory of a pod. It must exist, and path is absolute. Entries
// that lead elsewhere are refused; those before them were written. It is made once: the archive cannot be
// read again. It is an addition.
func (p *Pods) WriteFiles(ctx context.Context, id, path string, archive io.Reader) error {
	r := to(p.c.control, http.MethodPut, join("/v2/pods", id, "files"), url.Values{"path": {path}})
	if r.wrong != nil {
		return r.wrong
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), io.NopCloser(archive))
	if err != nil {
		return r.failed(err)
	}
	req.Header.Set("Content-Type", "application/x-tar")
	req.Header.Set("User-Agent", p.c.agent)
	p.c.authorize(req.Header)
	res, err := p.c.http.Do(req)
	if err != nil {
		return r.failed(err)
	}
	defer closeBody(res)
	if res.StatusCode >= http.StatusBadRequest {
		return errorOf(res)
	}
	return nil
}

// A TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Columns uint16 `json:"columns"`
	Rows    uint16 `json:"rows"`
}

// A PodTerminal is a terminal inside a pod. Stdin and Stdout are those of the terminal; what the command
// writes to standard error is in Stdout, too.
type PodTerminal struct {
	Command []string            // empty: a login shell
	Size    TerminalSize        // zero: 80 x 24
	Sizes   <-chan TerminalSize // new sizes; nil: none come
	Stdin   io.Reader
	Stdout  io.Writer
}

// Terminal runs a command in a terminal inside a pod, and returns its exit code. A read of Stdin that is going
// on at the end of the command is not waited for. It is an addition.
func (p *Pods) Terminal(ctx context.Context, id string, t PodTerminal) (exitCode int, err error) {
	q := url.Values{"command": t.Command}
	if t.Size != (TerminalSize{}) {
		q.Set("columns", strconv.Itoa(int(t.Size.Columns)))
		q.Set("rows", strconv.Itoa(int(t.Size.Rows)))
	}
	r := to(p.c.control, http.MethodGet, join("/v2/pods", id, "terminal"), q)
	if r.wrong != nil {
		return 0, r.wrong
	}
	h := http.Header{"User-Agent": {p.c.agent}}
	p.c.authorize(h)
	ws, res, err := websocket.Dial(ctx, r.url.String(), &websocket.DialOptions{HTTPClient: p.c.http, HTTPHeader: h}) //nolint:bodyclose // the package closes it, or it is its beginning
	if err != nil {
		if res != nil && res.StatusCode >= http.StatusBadRequest {
			return 0, errorOf(res)
		}
		return 0, r.failed(err)
	}
	defer func() { _ = ws.CloseNow() }() // it may be closed already
	ws.SetReadLimit(terminalFrame)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go t.send(ctx, ws)
	exitCode, err = t.receive(ctx, ws)
	return exitCode, r.failed(err)
}

// terminalFrame bounds a message of the server.
const terminalFrame = 1 << 20

// send passes on what is typed, and sizes. The end of Stdin is an end of file as it is typed.
func (t *PodTerminal) send(ctx context.Context, ws *websocket.Conn) {
	typed := make(chan []byte)
	if t.Stdin != nil {
		go func() {
			defer close(typed)
			for {
				b := make([]byte, 4096)
				n, err := t.Stdin.Read(b)
				if n > 0 {
					select {
					case typed <- b[:n]:
					case <-ctx.Done():
						return
					}
				}
				if err != nil {
					return
				}
			}
		}()
	}
	for {
		var err error
		select {
		case b, ok := <-typed:
			if !ok {
				typed, b = nil, []byte{endOfFile}
			}
			err = ws.Write(ctx, websocket.MessageBinary, b)
		case size := <-t.Sizes:
			var b []byte
			if b, err = json.Marshal(size); err == nil {
				err = ws.Write(ctx, websocket.MessageText, b)
			}
		case <-ctx.Done():
			return
		}
		if err != nil {
			return // receive knows it, too
		}
	}
}

// endOfFile is Ctrl-D.
const endOfFile = 4

// receive copies what the command writes until it has ended.
func (t *PodTerminal) receive(ctx context.Context, ws *websocket.Conn) (exitCode int, err error) {
	for {
		kind, b, err := ws.Read(ctx)
		if err != nil {
			return 0, fmt.Errorf("the connection ended before the command: %w", err)
		}
		if kind == websocket.MessageBinary {
			if _, err := t.Stdout.Write(b); err != nil {
				return 0, err
			}
			continue
		}
		var last struct {
			ExitCode int
			Error    string
		}
		if err := json.Unmarshal(b, &last); err != nil {
			return 0, err
		}
		if last.Error != "" {
			return 0, errors.New(last.Error)
		}
		_ = ws.Close(websocket.StatusNormalClosure, "") // the server closes it, too
		return last.ExitCode, nil
	}
}
