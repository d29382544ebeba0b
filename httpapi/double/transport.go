package double

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// BaseURL is a URL for clients of Transport. Any other works too.
const BaseURL = "http://podyard.test"

// Transport answers requests in the process, for any host, without a listener or sockets. In a
// testing/synctest bubble it does not stop the time of the bubble. An answer is kept in memory
// until it is read.
func (s *Server) Transport() http.RoundTripper { return transport{s.Handler()} }

// Client returns a client on Transport, which adds the key of the server to requests without
// one.
func (s *Server) Client() *http.Client {
	return &http.Client{Transport: keyed{s.Transport(), s.o.Key}}
}

type transport struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in := r.Clone(ctx)
	in.RequestURI, in.RemoteAddr, in.Host = r.URL.RequestURI(), "192.0.2.1:1", r.URL.Host
	if r.Host != "" {
		in.Host = r.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	p := &pipe{quiet: r.Method == http.MethodHead, header: http.Header{}, begun: make(chan struct{}), cancel: cancel}
	p.more = sync.NewCond(&p.mu)
	go func() {
		defer cancel()
		defer in.Body.Close() //nolint:errcheck // the request's own
		defer p.finish()
		t.handler.ServeHTTP(p, in)
	}()
	select {
	case <-p.begun:
	case <-r.Context().Done():
		cancel()
		return nil, context.Cause(r.Context())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status == 0 {
		cancel()
		return nil, p.err
	}
	return &http.Response{
		Status: http.StatusText(p.status), StatusCode: p.status, Header: p.sent, Body: p, ContentLength: -1,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
	}, nil
}

// A pipe is an answer that the handler writes and the client reads.
type pipe struct {
	quiet  bool // HEAD: there is no body
	header http.Header
	begun  chan struct{} // closed when there is a status, or there will be none
	cancel context.CancelFunc

	mu     sync.Mutex
	more   *sync.Cond
	status int
	sent   http.Header
	body   []byte
	err    error // returned after body; nil: there may be more
	closed bool
}

func (p *pipe) Header() http.Header { return p.header }

func (p *pipe) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status == 0 && p.err == nil {
		p.status, p.sent = status, p.header.Clone()
		close(p.begun)
	}
}

func (p *pipe) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.err != nil {
		return 0, io.ErrClosedPipe
	}
	if !p.quiet {
		p.body = append(p.body, b...)
		p.more.Broadcast()
	}
	return len(b), nil
}

// Flush implements http.Flusher.
func (p *pipe) Flush() { p.WriteHeader(http.StatusOK) }

// finish is the end of the handler, also of one that aborts.
func (p *pipe) finish() {
	aborted := recover()
	if aborted != nil && aborted != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
		panic(aborted)
	}
	if aborted != nil {
		p.cut(io.ErrUnexpectedEOF)
	}
	p.WriteHeader(http.StatusOK)
	p.cut(io.EOF)
}

// cut ends the answer.
func (p *pipe) cut(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.err = err
	if p.status == 0 {
		close(p.begun)
	}
	p.more.Broadcast()
}

// Read implements io.Reader.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.body) == 0 && p.err == nil && !p.closed {
		p.more.Wait()
	}
	switch {
	case p.closed:
		return 0, http.ErrBodyReadAfterClose
	case len(p.body) > 0:
		n := copy(b, p.body)
		p.body = p.body[n:]
		return n, nil
	}
	return 0, p.err
}

// Close ends the request, like a client that disconnects.
func (p *pipe) Close() error {
	p.mu.Lock()
	p.closed = true
	p.more.Broadcast()
	p.mu.Unlock()
	p.cancel()
	return nil
}

// keyed adds a key.
type keyed struct {
	http.RoundTripper
	key string
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+k.key)
	}
	return k.RoundTripper.RoundTrip(r)
}
