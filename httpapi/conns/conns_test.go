package conns_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/conns"
)

// A limited is a server on loopback that accepts the key "good".
type limited struct {
	t     *testing.T
	limit *conns.Limiter
	addr  string
}

func serve(t *testing.T, o conns.Options) *limited {
	t.Helper()
	s := &limited{t: t, limit: conns.New(&o)}
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = inner.Addr().String()
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		ConnContext: s.limit.ConnContext, ConnState: s.limit.ConnState,
		Handler: s.limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "good" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if err := conns.Accept(r.Context()); err != nil {
				w.WriteHeader(http.StatusTooManyRequests)
			}
			if r.URL.Path == "/wait" {
				<-r.Context().Done()
			}
		})),
	}
	go func() { _ = srv.Serve(s.limit.Listener(inner)) }()
	t.Cleanup(func() { _ = srv.Close() })
	return s
}

// dial connects from an address of loopback.
func (s *limited) dial(from string) net.Conn {
	s.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Skipf("this system has no address %s: %v", from, err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// ask sends a request and returns the status; 0: the connection has ended.
func (s *limited) ask(c net.Conn, key string) int {
	s.t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: "+key+"\r\n\r\n"); err != nil {
		return 0
	}
	b := make([]byte, 512)
	n, err := c.Read(b)
	if err != nil || n < 12 {
		return 0
	}
	return map[string]int{"200": 200, "401": 401, "429": 429}[string(b[9:12])]
}

// settles waits until the limiter counts these.
func (s *limited) settles(want conns.Stats) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); s.limit.Stats() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%+v, want %+v", s.limit.Stats(), want)
		}
	}
}

func TestAConnectionWithoutAKeyMakesWayForTheNextOneOfItsAddress(t *testing.T) {
	s := serve(t, conns.Options{WithoutKey: 2})
	keyed := s.dial("127.0.0.1")
	if got := s.ask(keyed, "good"); got != 200 {
		t.Fatalf("a good key = %d", got)
	}
	oldest, other := s.dial("127.0.0.1"), s.dial("127.0.0.2")
	s.settles(conns.Stats{Connections: 3, WithoutKey: 2, Addresses: 2})
	second, third := s.dial("127.0.0.1"), s.dial("127.0.0.1")
	s.settles(conns.Stats{Connections: 4, WithoutKey: 3, Addresses: 2})
	for name, row := range map[string]struct {
		c    net.Conn
		want int
	}{"the oldest": {oldest, 0}, "the second": {second, 401}, "the newest": {third, 401}, "another address": {other, 401}, "the one with a key": {keyed, 200}} {
		if got := s.ask(row.c, map[int]string{200: "good"}[row.want]); got != row.want {
			t.Errorf("%s = %d, want %d", name, got, row.want)
		}
	}
}

func TestAnAddressHasALimitedNumberOfConnectionsWithAKey(t *testing.T) {
	s := serve(t, conns.Options{PerAddress: 2})
	for i, want := range []int{200, 200, 429} {
		if got := s.ask(s.dial("127.0.0.1"), "good"); got != want {
			t.Errorf("connection %d = %d, want %d", i, got, want)
		}
	}
	if got := s.ask(s.dial("127.0.0.2"), "good"); got != 200 {
		t.Errorf("another address = %d", got)
	}
}

func TestConnectionsWithoutAKeyLockNobodyOut(t *testing.T) {
	s := serve(t, conns.Options{Total: 8})
	first := s.dial("127.0.0.1")
	s.ask(first, "good")
	for range 40 {
		s.dial("127.0.0.3")
	}
	s.settles(conns.Stats{Connections: 8, WithoutKey: 7, Addresses: 2})
	for range 7 {
		if got := s.ask(s.dial("127.0.0.1"), "good"); got != 200 {
			t.Errorf("somebody with a key gets %d", got)
		}
	}
	s.settles(conns.Stats{Connections: 8, Addresses: 1})
	if got := s.ask(s.dial("127.0.0.1"), "good"); got != 0 {
		t.Errorf("one more = %d, when all have a key", got)
	}
	if got := s.ask(first, "good"); got != 200 {
		t.Errorf("the first one = %d", got)
	}
}

func TestAnIdleConnectionWithoutAKeyEndsSoonAndOneWithAKeyStays(t *testing.T) {
	s := serve(t, conns.Options{Idle: 50 * time.Millisecond})
	keyed, other := s.dial("127.0.0.1"), s.dial("127.0.0.1")
	s.ask(keyed, "good")
	s.ask(other, "bad")
	s.settles(conns.Stats{Connections: 1, Addresses: 1})
	if got := s.ask(keyed, "good"); got != 200 {
		t.Errorf("the one with a key = %d", got)
	}
}

func TestRequestsThroughATrustedProxyCountForTheAddressThatItNames(t *testing.T) {
	l := conns.New(&conns.Options{PerAddress: 1, WithoutKey: 1, Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	ctx, cancel := context.WithCancel(t.Context())
	begun, ended := make(chan bool), make(chan bool)
	h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			begun <- true
			<-r.Context().Done()
			return
		}
		if err := conns.Accept(r.Context()); err != nil {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	ask := func(path, from, forwarded string) int {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		r.RemoteAddr = from + ":1"
		r.Header.Set("X-Forwarded-For", forwarded)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	go func() { ask("/wait", "10.1.1.1", "1.2.3.4, 10.2.2.2"); ended <- true }()
	<-begun
	for row, want := range map[string]int{"10.1.1.1 1.2.3.4": 429, "10.1.1.1 1.2.3.5": 200, "11.1.1.1 1.2.3.4": 200} {
		from, forwarded, _ := strings.Cut(row, " ")
		if got := ask("/", from, forwarded); got != want {
			t.Errorf("%s = %d, want %d", row, got, want)
		}
	}
	cancel()
	<-ended
	if s := l.Stats(); s != (conns.Stats{}) {
		t.Errorf("%+v stay counted", s)
	}
}

func TestAContextWithoutALimitedConnectionIsAccepted(t *testing.T) {
	if err := conns.Accept(t.Context()); err != nil || errors.Is(err, conns.ErrConnections) {
		t.Error(err)
	}
}
