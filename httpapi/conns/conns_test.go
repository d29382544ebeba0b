package conns_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/conns"
	"github.com/podyard/podyard/problem"
)

// owners are the keys that a limited accepts.
var owners = map[string]conns.Owner{
	"good": {User: "good"}, "bob": {User: "bob"}, "work": {User: "bob", Worker: true}, "operator": {User: "bob", Operator: true},
}

// A limited is a server on loopback.
type limited struct {
	t     *testing.T
	limit *conns.Limiter
	addr  string
	idle  atomic.Int64

	mu     sync.Mutex
	states map[net.Conn]http.ConnState
}

// note counts idle connections.
func (s *limited) note(c net.Conn, state http.ConnState) {
	s.limit.ConnState(c, state)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states[c] == http.StateIdle {
		s.idle.Add(-1)
	}
	if s.states[c] = state; state == http.StateIdle {
		s.idle.Add(1)
	}
}

func serve(t *testing.T, o conns.Options) *limited {
	t.Helper()
	s := &limited{t: t, limit: conns.New(&o), states: map[net.Conn]http.ConnState{}}
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = inner.Addr().String()
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: -1,
		ConnContext: s.limit.ConnContext, ConnState: s.note,
		Handler: s.limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who, ok := owners[r.Header.Get("Authorization")]
			if !ok {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if err := conns.Accept(r.Context(), who); err != nil {
				w.Header().Set("Connection", "close")
				w.WriteHeader(map[problem.Kind]int{problem.TooManyRequests: 429, problem.Unavailable: 503}[problem.KindOf(err)])
				return
			}
			if r.URL.Path == "/wait" {
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
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
func (s *limited) ask(c net.Conn, key string) int { return s.get(c, "/", key) }

// get is ask for a path. The answer to /wait comes at once and never ends.
func (s *limited) get(c net.Conn, path, key string) int {
	s.t.Helper()
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\nAuthorization: "+key+"\r\n\r\n"); err != nil {
		return 0
	}
	b := make([]byte, 512)
	n, err := c.Read(b)
	if err != nil || n < 12 {
		return 0
	}
	return map[string]int{"200": 200, "401": 401, "429": 429, "503": 503}[string(b[9:12])]
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

// idles waits until n connections have no request. Their server learns it after their clients.
func (s *limited) idles(n int) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); s.idle.Load() != int64(n); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%d connections are idle, want %d", s.idle.Load(), n)
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
	s.settles(conns.Stats{Connections: 3, WithoutKey: 2, Groups: 3})
	second, third := s.dial("127.0.0.1"), s.dial("127.0.0.1")
	s.settles(conns.Stats{Connections: 4, WithoutKey: 3, Groups: 3})
	for name, row := range map[string]struct {
		c    net.Conn
		want int
	}{"the oldest": {oldest, 0}, "the second": {second, 401}, "the newest": {third, 401}, "another address": {other, 401}, "the one with a key": {keyed, 200}} {
		if got := s.ask(row.c, map[int]string{200: "good"}[row.want]); got != row.want {
			t.Errorf("%s = %d, want %d", name, got, row.want)
		}
	}
}

func TestANegativeNumberIsNoLimit(t *testing.T) {
	s := serve(t, conns.Options{Total: -1, PerOwner: -1, PerAddress: -1, WithoutKey: -1, Idle: -1, Stall: -1})
	for key, want := range map[string]int{"": 401, "good": 200} {
		c := s.dial("127.0.0.1")
		for range 2 {
			if got := s.ask(c, key); got != want {
				t.Errorf("a request with the key %q = %d, want %d", key, got, want)
			}
		}
	}
}

func TestAnAddressMayHaveALimitWhichIsNoneForOperators(t *testing.T) {
	s := serve(t, conns.Options{PerAddress: 2})
	for _, row := range []struct {
		from, key string
		want      int
	}{
		{"127.0.0.1", "good", 200}, {"127.0.0.1", "bob", 200}, {"127.0.0.1", "bob", 429}, {"127.0.0.1", "good", 429},
		{"127.0.0.1", "operator", 200}, {"127.0.0.2", "good", 200},
	} {
		if got := s.ask(s.dial(row.from), row.key); got != row.want {
			t.Errorf("%s from %s = %d, want %d", row.key, row.from, got, row.want)
		}
	}
}

func TestAnOwnerWithTooManyConnectionsIsRefusedAndNobodyElseOfTheAddress(t *testing.T) {
	s := serve(t, conns.Options{PerOwner: 2})
	for range 2 {
		if got := s.get(s.dial("127.0.0.1"), "/wait", "work"); got != 200 {
			t.Fatalf("a worker's connection = %d", got)
		}
	}
	for _, row := range []struct {
		key  string
		want int
	}{{"work", 429}, {"work", 429}, {"good", 200}, {"bob", 200}, {"operator", 200}} {
		if got := s.ask(s.dial("127.0.0.1"), row.key); got != row.want {
			t.Errorf("%s = %d while the workers of bob have as many as they may, want %d", row.key, got, row.want)
		}
	}
}

// A server with few descriptors has a small total, which one user could have alone.
func TestOneUserNeverHasMoreThanAFifthOfAllConnections(t *testing.T) {
	s := serve(t, conns.Options{Total: 20})
	for i, want := range []int{200, 200, 200, 200, 429, 429} { // none of them is idle
		if got := s.get(s.dial("127.0.0.1"), "/wait", "good"); got != want {
			t.Errorf("connection %d of good = %d, want %d", i+1, got, want)
		}
	}
	if got := s.ask(s.dial("127.0.0.1"), "bob"); got != 200 {
		t.Errorf("another user = %d, want 200", got)
	}
}

// What is kept for operators would be all that there is.
func TestOneConnectionInAllIsForUsersToo(t *testing.T) {
	s := serve(t, conns.Options{Total: 1})
	if got := s.ask(s.dial("127.0.0.1"), "good"); got != 200 {
		t.Errorf("a user = %d, want 200", got)
	}
}

func TestAnIdleConnectionMakesWayForTheNextOneOfItsOwner(t *testing.T) {
	s := serve(t, conns.Options{PerOwner: 2})
	idle, busy := s.dial("127.0.0.1"), s.dial("127.0.0.2")
	if a, b := s.ask(idle, "good"), s.get(busy, "/wait", "good"); a != 200 || b != 200 {
		t.Fatal(a, b)
	}
	s.idles(1)
	if got := s.ask(s.dial("127.0.0.3"), "good"); got != 200 {
		t.Errorf("the third of two = %d, though one was idle", got)
	}
	if got := s.ask(idle, "good"); got != 0 {
		t.Errorf("the idle one = %d, want its end", got)
	}
}

// A connection that a proxy shares among users counts for the one who used it last.
func TestAConnectionCountsForTheOwnerOfItsLastRequest(t *testing.T) {
	s := serve(t, conns.Options{PerOwner: 1})
	shared := s.dial("127.0.0.1")
	for _, key := range []string{"good", "bob", "good", "bob"} {
		if got := s.ask(shared, key); got != 200 {
			t.Errorf("%s = %d", key, got)
		}
	}
	if got := s.get(s.dial("127.0.0.1"), "/wait", "good"); got != 200 {
		t.Errorf("good has no connection any more, and gets %d", got)
	}
}

func TestWhenAllIsFullAnIdleConnectionOfTheUserWithMostMakesWay(t *testing.T) {
	s := serve(t, conns.Options{Total: 20, PerOwner: -1})
	mine := s.dial("127.0.0.9")
	if got := s.ask(mine, "bob"); got != 200 {
		t.Fatal(got)
	}
	for i := range 60 { // of one key, from several addresses
		if got := s.ask(s.dial("127.0.0."+strconv.Itoa(1+i%4)), "good"); got != 200 {
			t.Fatalf("connection %d of good = %d, though its own idle ones make way", i, got)
		}
		s.idles(min(i+2, 19))
	}
	for i := range 5 {
		if got := s.get(s.dial("127.0.0.5"), "/wait", "bob"); got != 200 {
			t.Errorf("connection %d of bob = %d", i, got)
		}
	}
	if got := s.ask(mine, "bob"); got != 200 {
		t.Errorf("the idle connection of the user with fewer = %d, want 200", got)
	}
}

func TestOperatorsAndTheirProbesGetInWhenAllIsFull(t *testing.T) {
	s := serve(t, conns.Options{Total: 40, PerOwner: -1})
	for i := range 38 { // none of them is idle
		if got := s.get(s.dial("127.0.0."+strconv.Itoa(1+i%5)), "/wait", "good"); got != 200 {
			t.Fatalf("connection %d = %d", i, got)
		}
	}
	for range 30 { // and strangers wait where they are
		s.dial("127.0.0.6")
	}
	for range 3 {
		if got := s.ask(s.dial("127.0.0.7"), "bob"); got != 503 {
			t.Errorf("a user who finds no room = %d, want 503", got)
		}
	}
	if got := s.ask(s.dial("127.0.0.7"), "nobody"); got != 401 {
		t.Errorf("a probe without a key = %d, want an answer", got)
	}
	for range 2 {
		if got := s.get(s.dial("127.0.0.1"), "/wait", "operator"); got != 200 {
			t.Errorf("an operator = %d", got)
		}
	}
}

func TestListenersApartTakeNoRoomFromOthers(t *testing.T) {
	l := conns.New(&conns.Options{Total: 8, PerOwner: -1})
	a, b := &fakeListener{}, &fakeListener{}
	main, apart := l.Listener(a), l.Apart().Listener(b)
	for range 20 {
		b.next = append(b.next, &fakeConn{from: "10.0.0.1"})
		if _, err := apart.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	a.next = append(a.next, &fakeConn{from: "10.0.0.1"})
	if _, err := main.Accept(); err != nil {
		t.Fatal(err)
	}
	if got, want := l.Stats(), (conns.Stats{Connections: 1, WithoutKey: 1, Groups: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// One machine has all addresses of its network.
func TestAddressesOfIPv6CountByTheir64Bits(t *testing.T) {
	for _, row := range []struct {
		name   string
		from   func(i int) string
		closed int
	}{
		{"one network of IPv6", func(i int) string { return "2001:db8:0:1:" + strconv.Itoa(i) + "::1" }, 5},
		{"networks of IPv6", func(i int) string { return "2001:db8:0:" + strconv.Itoa(i) + "::1" }, 0},
		{"addresses of IPv4", func(i int) string { return "10.0.0." + strconv.Itoa(i) }, 0},
		{"one address of IPv4, mapped", func(int) string { return "::ffff:10.0.0.1" }, 5},
	} {
		inner := &fakeListener{}
		for i := range 8 {
			inner.next = append(inner.next, &fakeConn{from: row.from(i + 1)})
		}
		all := inner.next
		l := conns.New(&conns.Options{WithoutKey: 3}).Listener(inner)
		for range all {
			if _, err := l.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		closed := 0
		for _, c := range all {
			if c.closed {
				closed++
			}
		}
		if closed != row.closed {
			t.Errorf("%s: %d of 8 connections made way, want %d", row.name, closed, row.closed)
		}
	}
}

// A fakeListener accepts connections that go nowhere.
type fakeListener struct {
	net.Listener

	next []*fakeConn
}

func (l *fakeListener) Accept() (net.Conn, error) {
	c := l.next[0]
	l.next = l.next[1:]
	return c, nil
}

type fakeConn struct {
	net.Conn

	from   string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 1))
}

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

func TestConnectionsWithoutAKeyLockNobodyOut(t *testing.T) {
	s := serve(t, conns.Options{Total: 8, PerOwner: -1})
	first := s.dial("127.0.0.1")
	s.ask(first, "good")
	for range 40 {
		s.dial("127.0.0.3")
	}
	s.settles(conns.Stats{Connections: 8, WithoutKey: 7, Groups: 2})
	for range 6 {
		if got := s.get(s.dial("127.0.0.1"), "/wait", "good"); got != 200 {
			t.Errorf("somebody with a key gets %d", got)
		}
	}
	s.settles(conns.Stats{Connections: 8, WithoutKey: 1, Groups: 2})
	if got := s.ask(first, "good"); got != 200 {
		t.Errorf("the first one = %d", got)
	}
}

func TestAnIdleConnectionWithoutAKeyEndsSoonAndOneWithAKeyStays(t *testing.T) {
	s := serve(t, conns.Options{Idle: 50 * time.Millisecond})
	keyed, other := s.dial("127.0.0.1"), s.dial("127.0.0.1")
	s.ask(keyed, "good")
	s.ask(other, "bad")
	s.settles(conns.Stats{Connections: 1, Groups: 1})
	if got := s.ask(keyed, "good"); got != 200 {
		t.Errorf("the one with a key = %d", got)
	}
}

func TestRequestsThroughATrustedProxyCountForTheAddressThatItNames(t *testing.T) {
	l := conns.New(&conns.Options{PerAddress: 1, WithoutKey: 1, Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	ctx, cancel := context.WithCancel(t.Context())
	begun, ended := make(chan bool), make(chan bool)
	h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/wait" {
			if err := conns.Accept(r.Context(), owners["good"]); err != nil {
				w.WriteHeader(http.StatusConflict)
			}
		}
		if r.URL.Path != "/" {
			begun <- true
			<-r.Context().Done()
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
	for _, row := range []string{"10.1.1.1 1.2.3.5", "11.1.1.1 1.2.3.4"} {
		from, forwarded, _ := strings.Cut(row, " ")
		if got := ask("/", from, forwarded); got != 200 {
			t.Errorf("%s = %d, want 200", row, got)
		}
	}
	select {
	case <-ended:
		t.Error("requests of other addresses have ended the one that waits")
	default:
	}
	// Without a key a request makes way for the next one of its address: it locks nobody out.
	if got := ask("/", "10.1.1.1", "1.2.3.4"); got != 200 {
		t.Errorf("a request with a key beside one that waits without = %d, want 200", got)
	}
	<-ended
	go func() { ask("/keyed", "10.1.1.1", "1.2.3.4"); ended <- true }()
	<-begun
	if got := ask("/", "10.1.1.1", "1.2.3.4"); got != 409 {
		t.Errorf("a request with a key beside one with a key = %d, want that there are too many", got)
	}
	cancel()
	<-ended
	if s := l.Stats(); s != (conns.Stats{}) {
		t.Errorf("%+v stay counted", s)
	}
}

func TestAContextWithoutALimitedConnectionIsAccepted(t *testing.T) {
	if err := conns.Accept(t.Context(), owners["good"]); err != nil || errors.Is(err, conns.ErrConnections) {
		t.Error(err)
	}
}
