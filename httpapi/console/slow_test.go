package console_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/httpapi/conns"
	"github.com/podyard/podyard/httpapi/console"
)

// A pipeListener hands out the server ends of pipes: they have deadlines, and no buffer that a client
// which does not read would fill.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// listen serves the console over pipes. What it returns asks for a path, as the browser of the session
// does, and does not read the answer.
func (w *world) listen() func(path string) net.Conn {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	return w.listenAt(l, l, &http.Server{Handler: w.console})
}

// listenAt is listen with a server of the test. at is l or a listener around it.
func (w *world) listenAt(l *pipeListener, at net.Listener, s *http.Server) func(path string) net.Conn {
	done := make(chan error)
	go func() { done <- s.Serve(at) }()
	w.t.Cleanup(func() { _ = s.Close(); <-done })
	return func(path string) net.Conn {
		server, client := net.Pipe()
		w.t.Cleanup(func() { _ = client.Close() })
		l.conns <- server
		ask := fmt.Sprintf("GET /console/%s HTTP/1.1\r\nHost: podyard.test\r\nSec-Fetch-Site: same-origin\r\n", path)
		if w.cookie != nil {
			ask += "Cookie: " + w.cookie.Name + "=" + w.cookie.Value + "\r\n"
		}
		if _, err := io.WriteString(client, ask+"\r\n"); err != nil {
			w.t.Fatal(err)
		}
		return client
	}
}

// late reads what is left of an answer. It reports whether that is a whole one.
func late(c net.Conn) (status int, whole bool) {
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, false
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err == nil
}

// heap is how many bytes are in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers have kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (w *world) held(user string) int64 {
	of, _, _ := w.flight.Responses.InUse(user)
	return of
}

// 60 clients that ask for an output of 9 MB and do not read it took 60 times as much for ever. Now a few
// at once have it, which counts, and all are refused or cut off; others notice nothing.
func TestClientsThatDoNotReadADownloadHoldLittleAndAreCutOff(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.background(w.jobs.Run)
		w.serve()
		job := w.submit(`{"input":{"s":"` + strings.Repeat("x", 9<<20) + `"}}`)
		synctest.Wait()
		w.signIn(aliceKey)
		ask, before := w.listen(), heap()
		var all []net.Conn
		for range 60 {
			all = append(all, ask("data/job/echo/"+job+"/output?download=1"))
		}
		synctest.Wait()
		if n := w.held("alice"); n < 9<<20 || n > 64<<20 {
			w.t.Errorf("60 downloads that nobody reads count %d bytes, want those of the few in turn", n)
		}
		if grew := heap() - before; grew > 100<<20 {
			w.t.Errorf("60 downloads that nobody reads take %d MB, want what a few take", grew>>20)
		}
		began := time.Now()
		w.signIn(bobKey)
		w.want(http.StatusOK, "GET", "/console/data/overview", "")
		if took := time.Since(began); took > time.Second {
			w.t.Errorf("another user waits %v meanwhile", took)
		}
		time.Sleep(3 * time.Minute)
		if n := w.held("alice"); n != 0 {
			w.t.Errorf("after 3 minutes %d bytes still count", n)
		}
		for _, c := range all {
			if status, whole := late(c); whole && status != http.StatusTooManyRequests {
				w.t.Errorf("a client that did not read for 3 minutes gets %d as a whole", status)
			}
		}
		w.signIn(aliceKey)
		if n := len(w.want(200, "GET", "/console/data/job/echo/"+job+"/output?download=1", "")); n < 9<<20 {
			w.t.Errorf("who reads gets %d bytes", n)
		}
	})
}

// The first page shows the name and the state of a pod. It held the environments of all of them.
func TestTheOverviewHoldsNoEnvironments(t *testing.T) {
	bubble(t, nil, func(w *world) {
		for i := range 8 {
			made := httptest.NewRecorder()
			w.api.ServeHTTP(made, w.asAlice("POST", "/v2/pods", fmt.Sprintf(`{"name":"p%d","image":"i","cpu":{"id":"cpu3c","vcpuCount":2}}`, i)))
			var p struct{ ID string }
			unmarshal(w.t, made.Body.Bytes(), &p)
			w.api.ServeHTTP(discard{}, w.asAlice("PATCH", "/v2/pods/"+p.ID, fmt.Sprintf(`{"env":{"A":"%s"}}`, strings.Repeat("<", 900<<10))))
		}
		w.signIn(aliceKey)
		ask, before := w.listen(), heap()
		for range 4 {
			ask("data/overview")
		}
		synctest.Wait()
		if grew := heap() - before; grew > 40<<20 {
			w.t.Errorf("4 overviews that nobody reads take %d MB", grew>>20)
		}
		w.signIn(bobKey)
		w.want(http.StatusOK, "GET", "/console/data/overview", "")
		time.Sleep(3 * time.Minute)
		w.signIn(aliceKey)
		body := w.want(http.StatusOK, "GET", "/console/data/overview", "")
		var o struct {
			Pods struct {
				Pods []struct{ Name, Status string }
				More bool
			}
		}
		unmarshal(w.t, body, &o)
		if len(body) > 64<<10 || len(o.Pods.Pods) != 8 || o.Pods.More || o.Pods.Pods[7].Name == "" || o.Pods.Pods[7].Status == "" {
			w.t.Errorf("the overview has %d bytes and %+v", len(body), o.Pods)
		}
		if n := w.held("alice"); n != 0 {
			w.t.Errorf("%d bytes still count", n)
		}
	})
}

// Whatever the console answers, a client that does not read it is cut off: also the pages themselves,
// which need no key, and streams.
func TestEveryAnswerOfTheConsoleCutsOffWhoDoesNotRead(t *testing.T) {
	bubble(t, func(o *console.Options) { o.InFlight = nil }, func(w *world) { // without limits, too
		job := w.submit(`{"input":{}}`)
		w.signIn(aliceKey)
		asset := string(w.want(200, "GET", "/console/", ""))
		asset = asset[strings.Index(asset, "/console/a/")+len("/console/"):]
		asset = asset[:strings.IndexByte(asset, '"')]
		ask := w.listen()
		paths := []string{
			"", asset, "favicon.svg", "session", "nothing.css", "data/overview", "data/waiting/echo", "data/workers/echo", "data/history/echo", "data/jobs/echo?limit=10",
			"data/job/echo/" + job, "data/job/echo/" + job + "/input", "data/job/echo/" + job + "/input?download=1", "data/webhooks", "data/live", "data/live?endpoint=echo",
			"data/tail/echo/" + job, "api/v2/pods", "api/v2/echo/events", "api/v2/echo/requests",
		}
		var all []net.Conn
		for _, path := range paths {
			all = append(all, ask(path))
		}
		time.Sleep(5 * time.Minute)
		for i, c := range all {
			if status, whole := late(c); whole {
				w.t.Errorf("GET %s that nobody reads for 5 minutes = %d, and all of it comes later", paths[i], status)
			}
		}
	})
}

// A request without room for its answer is refused in words that a page shows, and it says when to try
// again.
// A live page asks the API for nothing, and its connection counts for its user all the same. Otherwise
// connections without a key from the same address, such as that of a proxy, would end it.
func TestALivePageMakesNoWayForConnectionsWithoutAKey(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.signIn(aliceKey)
		limit := conns.New(&conns.Options{WithoutKey: 2})
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		get := w.listenAt(l, limit.Listener(l), &http.Server{Handler: limit.Handler(w.console), ConnContext: limit.ConnContext, ConnState: limit.ConnState})
		go func() { _, _ = io.Copy(io.Discard, get("data/live")) }()
		synctest.Wait()
		if got, want := limit.Stats(), (conns.Stats{Connections: 1, Groups: 1}); got != want {
			t.Errorf("with a live page there are %+v, want %+v", got, want)
		}
	})
}

func TestWithoutRoomThePagesSayWhenToAskAgain(t *testing.T) {
	bubble(t, nil, func(w *world) {
		job := w.submit(`{"input":{"s":"` + strings.Repeat("x", 300<<10) + `"}}`)
		w.signIn(aliceKey)
		full := w.flight.Responses.Hold("alice")
		full.Force(64 << 20)
		a := w.request("GET", "/console/data/job/echo/"+job+"/input", "")
		var doc struct{ Detail string }
		unmarshal(w.t, a.Body.Bytes(), &doc)
		if a.Code != http.StatusTooManyRequests || a.Header().Get("Retry-After") == "" || !strings.Contains(doc.Detail, "responseBytes is full") {
			w.t.Errorf("without room = %d, Retry-After %q, %s", a.Code, a.Header().Get("Retry-After"), a.Body)
		}
		w.want(http.StatusOK, "GET", "/console/data/overview", "") // small answers go on
		full.Release()
		w.want(http.StatusOK, "GET", "/console/data/job/echo/"+job+"/input", "")
	})
}

// An answer of the API that is too large for the console is refused, and does not count any more.
func TestAPartThatIsTooLargeIsRefused(t *testing.T) {
	bubble(t, func(o *console.Options) { o.HidePayloads = true }, func(w *world) {
		w.background(w.jobs.Run)
		w.serve()
		var ids []string
		for range 5 {
			ids = append(ids, w.submit(`{"input":{"s":"`+strings.Repeat("x", 9<<20)+`"}}`))
			synctest.Wait()
		}
		w.signIn(aliceKey)
		w.want(http.StatusOK, "GET", "/console/api/v2/echo/status/"+ids[0], "")
		w.want(http.StatusRequestEntityTooLarge, "GET", "/console/api/v2/echo/requests?full=true", "")
		if n := w.held("alice"); n != 0 {
			w.t.Errorf("%d bytes still count", n)
		}
		if strings.Contains(w.seen.String(), "xxxx") {
			w.t.Error("a payload is shown")
		}
	})
}

// discard is the writer of an answer that no test needs.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// asAlice returns a request of alice to the API.
func (w *world) asAlice(method, path, body string) *http.Request {
	r, err := http.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
	check(w.t, err)
	r.Header.Set("Authorization", "Bearer "+aliceKey)
	return r
}
