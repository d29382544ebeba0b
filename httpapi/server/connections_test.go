package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/conns"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
)

// A served is a server with limits of connections, whose keys are "good" of ann and "bob".
type served struct {
	t     *testing.T
	addr  string
	limit *conns.Limiter
	jobs  *serverless.Service
}

func serveLimited(t *testing.T, o conns.Options, secure bool) *served {
	t.Helper()
	keys, err := httpapi.NewKeys([]httpapi.Key{
		{Secret: "good", User: "ann", Scopes: []string{"*"}, Exempt: true}, {Secret: "bob", User: "bob", Scopes: []string{"*"}},
		{Secret: "operator", User: "ann", Scopes: []string{"*", "operator"}},
	}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{t: t, limit: conns.New(&o)}
	srv, err := server.New(t.Context(), &server.Options{
		Stores: memoryStores(t), API: httpapi.Options{Auth: keys, BodyTimeout: 2 * time.Second}, Workers: sleeper, Connections: s.limit, Drain: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.jobs = srv.Services().Jobs
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = inner.Addr().String()
	l := s.limit.Listener(inner)
	if secure {
		with := httptest.NewTLSServer(nil)
		with.Close()
		l = tls.NewListener(l, &tls.Config{Certificates: with.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := later(func() error { return srv.Run(ctx, server.On(l, srv.Handler())) })
	t.Cleanup(func() {
		cancel()
		if err := within(t, "the end of the server", ended); err != nil {
			t.Error(err)
		}
		s.counts("after the end nothing is counted", conns.Stats{})
	})
	return s
}

// get makes a request on a connection of its own, which stays open, and returns the status.
func (s *served) get(path, key string) int {
	s.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(s.send(path, key)), nil)
	if err != nil {
		return 0
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.StatusCode
}

// send sends a request on a connection of its own.
func (s *served) send(path, key string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	head := ""
	if key != "" {
		head = "Authorization: Bearer " + key + "\r\n"
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n", path, head)
	return c
}

// A rawHTTP2 is a connection of HTTP/2 whose client reads no answer: it gives the server no window.
type rawHTTP2 struct {
	t     *testing.T
	c     net.Conn
	last  uint32
	ended chan bool
	reset chan uint32 // streams that the server has reset
}

func (s *served) http2() *rawHTTP2 {
	s.t.Helper()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	c, err := d.DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	h := &rawHTTP2{t: s.t, c: c, last: 1, ended: make(chan bool), reset: make(chan uint32, 1000)}
	go h.read()
	settings := []byte{0, 4, 0, 0, 0, 0} // the initial window is 0
	h.send(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, settings)...))
	return h
}

// read reads frames until the connection ends.
func (h *rawHTTP2) read() {
	defer close(h.ended)
	for {
		var head [9]byte
		if _, err := io.ReadFull(h.c, head[:]); err != nil {
			return
		}
		size := int64(binary.BigEndian.Uint32(head[:4]) >> 8)
		if _, err := io.CopyN(io.Discard, h.c, size); err != nil {
			return
		}
		if head[3] == 3 {
			h.reset <- binary.BigEndian.Uint32(head[5:])
		}
	}
}

// resets waits until the server has reset n streams.
func (h *rawHTTP2) resets(n int) <-chan bool {
	return later(func() bool {
		for range n {
			<-h.reset
		}
		return true
	})
}

func (h *rawHTTP2) send(b []byte) { _, _ = h.c.Write(b) } // the server may have ended the connection

// frame returns a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	b = append(b, flags)
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// get opens n streams for a path, with as many short headers more and an Authorization if key is
// not empty.
func (h *rawHTTP2) get(n, headers int, path, key string) {
	var block bytes.Buffer
	field := func(name, value string) { fmt.Fprintf(&block, "\x00%c%s%c%s", len(name), name, len(value), value) }
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", path}, {":authority", "a"}} {
		field(f[0], f[1])
	}
	if key != "" {
		field("authorization", "Bearer "+key)
	}
	for i := range headers {
		field("h"+strconv.FormatInt(int64(i), 36), "")
	}
	var all []byte
	for range n {
		all = append(all, frame(1, 4|1, h.last, block.Bytes())...)
		h.last += 2
	}
	h.send(all)
}

// heap returns the bytes of the heap that are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// holds returns the most that the heap grows while n clients begin, and shortly after.
func holds(n int, begin func(i int)) (most int64) {
	before := heap()
	for i := range n {
		begin(i)
		if i%32 == 31 {
			most = max(most, heap()-before)
		}
	}
	for range 5 {
		time.Sleep(50 * time.Millisecond) // the server reads what was sent
		most = max(most, heap()-before)
	}
	return most
}

func TestClientsOfHTTP2WithoutAKeyHoldLittleAndAreCutOff(t *testing.T) {
	for i, row := range []struct {
		name, path string
		headers    int
	}{
		{"large answers that are not read", "/v2/openapi.json", 50},
		{"short answers that are not read", "/healthz", 90},
		{"more headers than are allowed", "/healthz", 400},
		{"more headers than net/http takes", "/healthz", 1700},
	} {
		t.Run(row.name, func(t *testing.T) {
			if i > 0 {
				suite.SkipUnlessLong(t) // it waits until the limits of net/http are over
			}
			s := serveLimited(t, conns.Options{Idle: 2 * time.Second}, true)
			all := make([]*rawHTTP2, 100)
			most := holds(len(all), func(i int) {
				all[i] = s.http2()
				all[i].get(32, row.headers, row.path, "")
			})
			if t.Logf("they hold %d KB", most>>10); most > 150<<20 {
				t.Errorf("100 connections hold %d MB, want at most 150", most>>20)
			}
			for i, h := range all {
				within(t, fmt.Sprintf("the end of connection %d", i), h.ended)
			}
		})
	}
}

func TestClientsOfHTTP1WithoutAKeyHoldLittleAndAreCutOff(t *testing.T) {
	many := strings.Builder{}
	for i := range 9000 {
		many.WriteString("h" + strconv.FormatInt(int64(i), 36) + ":\n")
	}
	for i, row := range []struct{ name, text string }{
		{"answers that are not read", strings.Repeat("GET /v2/openapi.json HTTP/1.1\nHost: a\n\n", 100)},
		{"9000 headers and a slow body", "POST /healthz HTTP/1.1\nHost: a\nContent-Length: 1000\n" + many.String() + "\n{"},
		{"headers that do not end", "GET /healthz HTTP/1.1\nHost: a\n" + many.String()[:19000]},
		{"a slow body", "POST /v2/pods HTTP/1.1\nHost: a\nContent-Length: 1000\n\n{"},
		{"a body that nobody reads", "GET /healthz HTTP/1.1\nHost: a\nContent-Length: 1000\n\n{"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if i > 0 {
				suite.SkipUnlessLong(t)
			}
			s := serveLimited(t, conns.Options{Idle: 2 * time.Second}, false)
			all := make([]net.Conn, 256)
			most := holds(len(all), func(i int) {
				c, err := net.Dial("tcp", s.addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				all[i] = c
				_ = c.SetDeadline(time.Now().Add(2 * patience))
				_, _ = io.WriteString(c, row.text) // the server may have ended the connection
			})
			if t.Logf("they hold %d KB", most>>10); most > 200<<20 {
				t.Errorf("256 connections hold %d MB, want at most 200", most>>20)
			}
			end := time.Now().Add(2 * patience)
			for s.limit.Stats().Connections > 0 && time.Now().Before(end) {
				time.Sleep(10 * time.Millisecond)
			}
			if n := s.limit.Stats().Connections; n > 0 {
				t.Errorf("%d are not cut off", n)
			}
		})
	}
}

func TestOperatorsAndProbesGetInWhenUsersHaveAllConnections(t *testing.T) {
	for _, path := range []string{"/v2/pods", "/v2/sleep/events"} { // after it a connection is idle, or never
		t.Run(path, func(t *testing.T) {
			s := serveLimited(t, conns.Options{Total: 40, PerOwner: -1}, false)
			for range 38 {
				if got := s.get(path, "good"); got != http.StatusOK {
					t.Fatalf("a connection of a user = %d", got)
				}
			}
			if got := s.get("/v2/sleep/events", "bob"); got != http.StatusOK && (path == "/v2/pods" || got != http.StatusServiceUnavailable) {
				t.Errorf("another user = %d: an idle connection makes way, and without one it is 503", got)
			}
			for _, row := range []struct {
				path, key string
				want      int
			}{{"/healthz", "", 200}, {"/v2/pods", "operator", 200}, {"/readyz", "", 200}, {"/v2/pods", "operator", 200}} {
				if got := s.get(row.path, row.key); got != row.want {
					t.Errorf("%s with the key %q = %d, want %d", row.path, row.key, got, row.want)
				}
			}
		})
	}
}

// A worker runs the code of a stranger, on the machine of everybody.
func TestConnectionsOfAWorkerLockOutNobodyButWorkersOfItsUser(t *testing.T) {
	s := serveLimited(t, conns.Options{PerOwner: 3}, false)
	if err := s.jobs.EnsureEndpoint(t.Context(), "far"); err != nil {
		t.Fatal(err)
	}
	key := s.jobs.WorkerKey("far", "w")
	for range 3 {
		s.send("/v2/far/job-take/w", key)
	}
	s.counts("three polls of a worker", conns.Stats{Connections: 3, Groups: 1})
	for _, row := range []struct {
		path, key string
		want      int
	}{{"/v2/far/job-take/w", key, 429}, {"/v2/pods", "good", 200}, {"/v2/pods", "bob", 200}, {"/v2/pods", "operator", 200}} {
		if got := s.get(row.path, row.key); got != row.want {
			t.Errorf("%s = %d while a worker has as many connections as it may, want %d", row.path, got, row.want)
		}
	}
}

func TestRequestsOfOneConnectionCountLikeConnections(t *testing.T) {
	for _, row := range []struct {
		why  string
		o    conns.Options
		most int // of one user
	}{
		{"the limit of a user", conns.Options{PerOwner: 50}, 50},
		{"all but the last twentieth", conns.Options{Total: 40, PerOwner: -1}, 38},
	} {
		s := serveLimited(t, row.o, true)
		for range 3 {
			s.http2().get(25, 0, "/v2/sleep/events", "good")
		}
		s.eventually(row.why, func() bool {
			n := s.limit.Stats()
			return n.Connections-n.WithoutKey == row.most
		})
	}
	s := serveLimited(t, conns.Options{WithoutKey: 45}, true)
	mine := s.http2()
	mine.get(30, 0, "/v2/openapi.json", "")
	s.counts("30 requests without a key", conns.Stats{Connections: 37, WithoutKey: 37, Groups: 1})
	more := s.http2()
	more.get(30, 0, "/v2/openapi.json", "")
	within(t, "the end of the oldest connection without a key", mine.ended)
}

// counts waits until the limiter counts these.
func (s *served) counts(what string, want conns.Stats) {
	s.t.Helper()
	s.eventually(what, func() bool { return s.limit.Stats() == want })
}

func (s *served) eventually(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s: not within %v, and %+v are counted", what, patience, s.limit.Stats())
		}
	}
}

// A silent answer is one that nothing is written to.
func TestASilentAnswerIsNotCutOff(t *testing.T) {
	for _, secure := range []bool{true, false} {
		t.Run(fmt.Sprintf("with TLS %v", secure), func(t *testing.T) {
			s := serveLimited(t, conns.Options{Stall: 200 * time.Millisecond, Idle: 200 * time.Millisecond}, secure)
			url, tr := "http://"+s.addr, &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			defer tr.CloseIdleConnections()
			if secure {
				url = "https://" + s.addr
			}
			ask := func(method, path, body string) *http.Response {
				req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer good")
				resp, err := tr.RoundTrip(req)
				if err != nil || resp.StatusCode != http.StatusOK || (resp.ProtoMajor == 2) != secure {
					t.Fatalf("%s %s: %+v, %v", method, path, resp, err)
				}
				t.Cleanup(func() { _ = resp.Body.Close() })
				return resp
			}
			stream := ask("GET", "/v2/sleep/events", "")
			long := ask("POST", "/v2/sleep/runsync", `{"input":{"ms":1500}}`)
			b, err := io.ReadAll(long.Body)
			if err != nil || !strings.Contains(string(b), "slept") {
				t.Errorf("a request that is answered after 1.5 s: %s, %v", b, err)
			}
			ask("POST", "/v2/sleep/run", `{"input":{"ms":1}}`)
			if _, err := io.ReadFull(stream.Body, make([]byte, 100)); err != nil {
				t.Errorf("a stream that was silent: %v", err)
			}
		})
	}
}

// What a client with a key does not read ends as well: here the answer is short, and waits after
// its handler has ended.
func TestAnAnswerToAKeyIsCutOffWhenItIsNotRead(t *testing.T) {
	s := serveLimited(t, conns.Options{Stall: 500 * time.Millisecond}, true)
	h := s.http2()
	h.get(32, 0, "/v2/pods", "good")
	s.eventually("the connection has a key", func() bool { return s.limit.Stats() == conns.Stats{Connections: 1, Groups: 1} })
	h.get(32, 0, "/v2/pods", "good") // refused while there are 32
	within(t, "resets of all streams", h.resets(64))
}
