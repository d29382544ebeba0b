package httpapi

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/serverless/balance"
)

const (
	dialTime = 10 * time.Second // to connect to a worker
	// idleTime is how long a connection to a worker is kept for the next request. It is shorter
	// than what servers use: a request on a connection that the worker closes at that moment
	// would fail.
	idleTime  = time.Second
	idleConns = 1024     // kept for each worker
	probeBody = 64 << 10 // bytes of an answer to a health check that are read
	copySize  = 32 << 10 // of the buffers for answers
)

// targetKey is the key of a balance.Target in the context of a request to a worker.
type targetKey struct{}

// newWorkerTransport returns the transport for requests to workers. It never follows the
// program's proxy settings.
func newWorkerTransport() *http.Transport {
	return &http.Transport{
		DialContext: dialWorker, DisableCompression: true,
		MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTime,
	}
}

// hostOf returns the host of a target in URLs. It is not the same for two targets.
func hostOf(t balance.Target) string {
	if t.Dial == nil {
		return t.Address
	}
	return hex.EncodeToString([]byte(t.Worker.ID)) + "." + hex.EncodeToString([]byte(t.Worker.Endpoint)) + ".local:80"
}

// dialWorker connects to the target in ctx, or to an address.
func dialWorker(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	dial := func() (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, address) }
	if t, ok := ctx.Value(targetKey{}).(balance.Target); ok && t.Dial != nil {
		dial = func() (net.Conn, error) { return t.Dial(ctx) }
	}
	c, err := dial()
	if err != nil {
		return nil, err
	}
	return &workerConn{Conn: c}, nil
}

// A workerConn is a connection to a worker. It counts what was sent.
type workerConn struct {
	net.Conn

	sent atomic.Int64
}

// Write implements net.Conn.
func (c *workerConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// A bufferPool is a httputil.BufferPool.
type bufferPool struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[copySize]byte); ok {
		return b[:]
	}
	return make([]byte, copySize)
}

// Put implements httputil.BufferPool.
func (p *bufferPool) Put(b []byte) { p.pool.Put((*[copySize]byte)(b)) }

// NewProber returns a balance.Prober over HTTP, for serverless.Options.Prober.
func NewProber() balance.Prober {
	t := newWorkerTransport()
	t.DisableKeepAlives = true
	return prober{t}
}

type prober struct{ transport *http.Transport }

// Probe implements balance.Prober. It does not follow redirects.
func (p prober) Probe(ctx context.Context, address, path string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("User-Agent", "podyard-health")
	res, err := p.transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	_, _ = io.CopyN(io.Discard, res.Body, probeBody) // the status is what counts
	return res.StatusCode, res.Body.Close()
}

var errNoListener = errors.New("httpapi: the handler is not served any more")

// A pipeListener is a net.Listener whose connections are pipes in memory.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Dial is a balance.Dialer.
func (l *pipeListener) Dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, errNoListener
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
