package server

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/podyard/podyard/httpapi/conns"
)

// Limits of what a request may cost before a handler knows whose it is.
const (
	// maxHeaderBytes is the size of the first line and the headers of a request. HTTP/2 counts 32
	// bytes more for each header, so that there are at most 500.
	maxHeaderBytes = 16 << 10
	// maxHeaders is the number of headers of a request. Each costs about 150 bytes of memory,
	// however short it is. Browsers behind proxies send about 40.
	maxHeaders = 100
	// maxStreams is how many requests a connection of HTTP/2 may have at once.
	maxStreams = 32
	// headTime is the time for TLS and headers to arrive. Answers of net/http itself, such as one
	// to headers that are too large, must be read in that time, too.
	headTime = 10 * time.Second
	// uploadBuffer is how much of the bodies on a connection of HTTP/2 arrives before a handler
	// reads it.
	uploadBuffer = 256 << 10
)

// newHTTPServer returns a server whose clients can make it hold little: see limitRequests and
// conns.Limiter for the rest. limit may be nil.
func newHTTPServer(h http.Handler, limit *conns.Limiter, body time.Duration) *http.Server {
	limited := limit
	if limit == nil {
		limited = conns.New(&conns.Options{Total: -1, PerOwner: -1, WithoutKey: -1, Idle: -1, Stall: -1, KeepAlive: -1})
	}
	srv := &http.Server{
		Handler: limitRequests(limited.Handler(h), body), ReadHeaderTimeout: headTime, WriteTimeout: headTime, IdleTimeout: conns.DefaultKeepAlive, MaxHeaderBytes: maxHeaderBytes,
		// limitRequests has the time for bodies. But a stream of HTTP/2 has a timer only because of this.
		ReadTimeout: time.Until(conns.Endless()),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 16 << 10,
			MaxReceiveBufferPerConnection: uploadBuffer, MaxReceiveBufferPerStream: uploadBuffer,
			// A connection on which nothing can be written ends. There are no pings: behind what a slow
			// client still has to read an honest one is answered late, and the kernel finds clients that
			// are gone, as it does for HTTP/1.
			WriteByteTimeout: 30 * time.Second,
		},
	}
	if limit != nil {
		srv.ConnContext, srv.ConnState = limit.ConnContext, limit.ConnState
		srv.IdleTimeout = -1 // limit ends idle connections
	}
	return srv
}

// bodyTime is the default of httpapi.Options.BodyTimeout.
const bodyTime = 30 * time.Second

// limitRequests is what each request of a listener comes to first. It refuses one with too many
// headers. It replaces headTime, which is for answers that no handler makes: answers may take
// long, such as streams of events, and conns.Limiter ends those that are not read. The body must
// arrive in the time of httpapi.Options.BodyTimeout, unless a handler gives it more for its size:
// without this a body that no handler reads would hold the request for ever.
func limitRequests(next http.Handler, body time.Duration) http.Handler {
	body = cmp.Or(body, bodyTime)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if countHeaders(r.Header) > maxHeaders {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge) // a body would wait for clients that do not read
			return
		}
		rc := http.NewResponseController(w)
		_ = rc.SetWriteDeadline(conns.Endless()) // the writers of net/http have deadlines
		if r.ContentLength != 0 && body > 0 {
			_ = rc.SetReadDeadline(time.Now().Add(body))
		}
		next.ServeHTTP(w, r)
	})
}

func countHeaders(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// A netLog gets what net/http says of connections. Whoever can connect causes failed handshakes of
// TLS, as many as they like, so these are for debugging only.
type netLog struct{ log *slog.Logger }

func (l netLog) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, string(bytes.TrimSpace(line))) //nolint:forbidigo // net/http passes none
	return len(line), nil
}
