// Package balancer passes each request on to the next of several servers that are ready.
package balancer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a Balancer. The zero value works.
type Options struct {
	// Every is how often each server is asked whether it is ready. It must be much less than
	// the -drain-wait of the servers. Default 250 ms.
	Every time.Duration
	// Logger logs when a server becomes ready, or is not any more. Default: nothing is logged.
	Logger *slog.Logger
}

// A Balancer is a handler of requests for several servers. It is safe for concurrent use.
type Balancer struct {
	every time.Duration
	log   *slog.Logger
	ask   *http.Client
	pass  *httputil.ReverseProxy

	mu      sync.Mutex
	servers []*server
	last    int // the server that got the request before
}

type server struct {
	url   *url.URL
	ready bool
	asked atomic.Bool // Run waits for its answer
}

// New returns a Balancer without servers.
func New(o *Options) *Balancer {
	if o == nil {
		o = &Options{}
	}
	b := &Balancer{every: o.Every, log: o.Logger}
	if b.every <= 0 {
		b.every = 250 * time.Millisecond
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.ask = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{MaxResponseHeaderBytes: 64 << 10}}
	to := &next{b: b, send: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10}}
	b.pass = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetXForwarded(); r.Out.Host = r.In.Host },
		Transport:     to,
		FlushInterval: -1, // logs and events are passed on line by line
		ErrorHandler:  refuse,
		ErrorLog:      slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}
	return b
}

// ServeHTTP implements http.Handler.
func (b *Balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.pass.ServeHTTP(w, r) }

// refuse answers when a server has not. It may have done what it was asked: clients repeat with
// the same Idempotency-Key.
func refuse(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, errNone) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusBadGateway)
}

// Set replaces the servers. It returns when those that are new were asked whether they are ready.
func (b *Balancer) Set(ctx context.Context, urls ...*url.URL) {
	b.mu.Lock()
	known := b.servers
	b.mu.Unlock()
	var list, added []*server
	for _, u := range urls {
		i := slices.IndexFunc(known, func(s *server) bool { return *s.url == *u })
		if i < 0 {
			added = append(added, &server{url: u})
			list = append(list, added[len(added)-1])
			continue
		}
		list = append(list, known[i])
	}
	var all sync.WaitGroup
	for _, s := range added {
		all.Go(func() { b.mark(s, b.isReady(ctx, s.url)) })
	}
	all.Wait()
	b.mu.Lock()
	b.servers = list
	b.mu.Unlock()
}

// Run asks the servers whether they are ready until ctx ends. A server that does not answer holds up
// no other.
func (b *Balancer) Run(ctx context.Context) {
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	for ctx.Err() == nil {
		b.mu.Lock()
		list := b.servers
		b.mu.Unlock()
		for _, s := range list {
			if s.asked.CompareAndSwap(false, true) {
				asking.Go(func() {
					defer s.asked.Store(false)
					b.mark(s, b.isReady(ctx, s.url))
				})
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (b *Balancer) isReady(ctx context.Context, u *url.URL) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("readyz").String(), nil)
	if err != nil {
		return false
	}
	resp, err := b.ask.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}

func (b *Balancer) mark(s *server, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case ready && !s.ready:
		b.log.Info("server is ready", "addr", s.url.Host)
	case !ready && s.ready:
		b.log.Info("server is not ready", "addr", s.url.Host)
	}
	s.ready = ready
}

// next returns the next server that is ready; nil: there is none.
func (b *Balancer) next() *server {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.servers {
		b.last = (b.last + 1) % len(b.servers)
		if s := b.servers[b.last]; s.ready {
			return s
		}
	}
	return nil
}

var errNone = errors.New("balancer: no server is ready")

// A next sends a request to the next server, and to another one if that cannot be reached.
type next struct {
	b    *Balancer
	send http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (n *next) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body = io.NopCloser(r.Body) // a server that cannot be reached must not end it; ReverseProxy does
	}
	for {
		s := n.b.next()
		if s == nil {
			return nil, errNone
		}
		r.URL.Scheme, r.URL.Host = s.url.Scheme, s.url.Host
		resp, err := n.send.RoundTrip(r)
		if dial := (*net.OpError)(nil); !errors.As(err, &dial) || dial.Op != "dial" || r.Context().Err() != nil {
			return resp, err
		}
		n.b.mark(s, false) // nothing was sent
	}
}
