package httpapi

import (
	"context"
	"encoding/hex"
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

// newWorkerTransport returns the transport for requests to workers, which are reached with dial, or
// over TCP if it is nil. It never follows the program's proxy settings.
func newWorkerTransport(dial func(ctx context.Context, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext: workerDialer(dial), DisableCompression: true,
		MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTime, MaxResponseHeaderBytes: maxAnswerHead,
	}
}

// hostOf returns the host of a target in URLs. It is not the same for two targets.
func hostOf(t balance.Target) string {
	if t.Dial == nil {
		return t.Address
	}
	return hex.EncodeToString([]byte(t.Worker.ID)) + "." + hex.EncodeToString([]byte(t.Worker.Endpoint)) + ".local:80"
}

// workerDialer connects to the target in ctx, or with dial to an address.
func workerDialer(dial func(ctx context.Context, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	return func(ctx context.Context, _, address string) (c net.Conn, err error) {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		if t, ok := ctx.Value(targetKey{}).(balance.Target); ok && t.Dial != nil {
			c, err = t.Dial(ctx)
		} else {
			c, err = dial(ctx, address)
		}
		if err != nil {
			return nil, err
		}
		return &workerConn{Conn: c}, nil
	}
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
	t := newWorkerTransport(nil)
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
