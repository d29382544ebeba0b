package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
)

// A pipeNet is a net.Listener whose connections are pipes, for bubbles.
type pipeNet struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeNet) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeNet) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeNet) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

// A clientConn is the server's side of a client at a fixed address.
type clientConn struct{ net.Conn }

func (clientConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4711} }

func (l *pipeNet) dial(t testing.TB) net.Conn {
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	l.conns <- clientConn{server}
	return client
}

// A balancedAPI is a testAPI with the load-balancing endpoint "web", behind connections.
type balancedAPI struct {
	*testAPI
	net *pipeNet
}

// balanced runs f in a bubble. Each handler is a worker of "web": w1, w2 and so on.
func balanced(t *testing.T, set func(*httpapi.Options), f func(w *balancedAPI), handlers ...http.HandlerFunc) {
	t.Helper()
	bubbleWith(t, set, func(api *testAPI) {
		w := &balancedAPI{api, &pipeNet{conns: make(chan net.Conn), done: make(chan struct{})}}
		if err := w.jobs.EnsureBalanced(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: w.handler}
		go func() { _ = srv.Serve(w.net) }()
		for i, h := range handlers {
			w.join(fmt.Sprintf("w%d", i+1), h)
		}
		synctest.Wait()
		f(w)
		_ = srv.Close()
		time.Sleep(3 * time.Second) // idle connections to workers end
	})
}

// join adds a worker. The result ends it.
func (w *balancedAPI) join(id string, h http.HandlerFunc) (leave func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := httpapi.ServeHTTP(ctx, w.jobs, "web", h, &serverless.ServeOptions{ID: serverless.WorkerID(id), Drain: 10 * time.Second}); err != nil {
			w.t.Error(err)
		}
	}()
	leave = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(leave)
	return leave
}

// raw sends a request as it is and returns the answer. The body of the answer is read.
func (w *balancedAPI) raw(text string) answer {
	w.t.Helper()
	c := w.net.dial(w.t)
	defer c.Close()
	go func() { _, _ = io.WriteString(c, text) }()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.t.Fatalf("%.60q: %v", text, err)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		b = append(b, " broken off"...)
	}
	return answer{res.StatusCode, res.Header, string(b)}
}

// get sends a GET with alice's key.
func (w *balancedAPI) get(target string, headers ...string) answer {
	w.t.Helper()
	return w.raw(requestText("GET", target, "", headers...))
}

func requestText(method, target, body string, headers ...string) string {
	text := method + " " + target + " HTTP/1.1\r\nHost: podyard.test\r\nConnection: close\r\nAuthorization: Bearer " + aliceKey + "\r\n"
	for _, h := range headers {
		text += h + "\r\n"
	}
	if body != "" {
		text += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return text + "\r\n" + body
}

func (w *balancedAPI) wants(a answer, status int, part string) {
	w.t.Helper()
	if a.status != status || !strings.Contains(a.body, part) {
		w.t.Errorf("answer is %d %.200q, want %d with %q", a.status, a.body, status, part)
	}
}

// showURI answers with the request target as it was sent.
func showURI(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) }

func TestPathAndQueryReachTheWorkerByteForByte(t *testing.T) {
	balanced(t, nil, func(w *balancedAPI) {
		for sent, got := range map[string]string{
			"/lb/web/":                    "/",
			"/lb/web/a%2Fb%2f":            "/a%2Fb%2f",
			"/lb/web//x///y":              "//x///y",
			"/lb/web//":                   "//",
			"/lb/web/%41~%7E":             "/%41~%7E",
			"/lb/web/a|b\"{}^":            "/a|b\"{}^",
			"/lb/web/ping?":               "/ping?",
			"/lb/web/q?a=%zz;b&c=1&&=%2F": "/q?a=%zz;b&c=1&&=%2F",
			"/lb/web/...":                 "/...",
			"/lb/web/a/.b/c..":            "/a/.b/c..",
			"/lb/web//a%2Fb":              "//a%2Fb",
			"/lb/web/v2/pods?owner=bob":   "/v2/pods?owner=bob",
		} {
			if a := w.get(sent); a.status != 200 || a.body != got {
				t.Errorf("%s reaches the worker as %q (%d), want %q", sent, a.body, a.status, got)
			}
		}
		for _, sent := range []string{
			"/lb/web/.", "/lb/web/..", "/lb/web/a/../b", "/lb/web/%2e%2e/x", "/lb/web/..%2fx", "/lb/web/a%2F..", "/lb/web/./x",
			"/lb/../v2/pods", "/lb/", "/lb/web", "/lb//web", "/lb/we%62/x", "/lb/pods/x",
		} {
			w.wants(w.get(sent), 404, "The requested path was not found.")
		}
		w.wants(w.get("/lb/web//a|b"), 400, "a character that must be escaped")
		w.wants(w.get("/lb/nothere/x"), 404, "endpoint not found")
	}, showURI)
}

func TestEveryMethodReachesTheWorker(t *testing.T) {
	show := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Got", strings.TrimSpace(r.Method+" "+string(b)+" "+strings.Join(r.TransferEncoding, "")))
		w.WriteHeader(299)
	}
	balanced(t, nil, func(w *balancedAPI) {
		for _, m := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			if got := w.raw(requestText(m, "/lb/web/x", "", "Idempotency-Key: 1")).header.Get("Got"); got != m {
				t.Errorf("%s reaches the worker as %q", m, got)
			}
		}
		if got := w.raw(requestText("POST", "/lb/web/x", "body")).header.Get("Got"); got != "POST body" {
			t.Errorf("a body reaches the worker as %q", got)
		}
		a := w.raw(requestText("TRACE", "/lb/web/x", ""))
		w.wants(a, 405, "not allowed")
		if allow := a.header.Get("Allow"); allow != "HEAD, GET, POST, PUT, PATCH, DELETE, OPTIONS" {
			t.Errorf("Allow is %q", allow)
		}
	}, show)
}

func TestTheKeyAndClaimsAboutTheClientDoNotReachTheWorker(t *testing.T) {
	show := func(w http.ResponseWriter, r *http.Request) {
		r.Header.Write(w)
		fmt.Fprint(w, "host ", r.Host)
	}
	balanced(t, nil, func(w *balancedAPI) {
		for _, key := range []string{"Authorization: second", "Connection: Authorization", "Connection: close, authorization, x-forwarded-for", "X: y"} {
			a := w.get("/lb/web/x", key, "X-Forwarded-For: 6.6.6.6", "x-forwarded-proto: gopher", "X-Forwarded-Port: 1", "X_Forwarded_For: 6.6.6.6",
				"Forwarded: for=6.6.6.6", "Custom: stays", "Expect: 100-continue")
			if a.status == 100 {
				continue
			}
			for _, part := range []string{"Authorization", aliceKey, "6.6.6.6", "gopher", "Port", "Expect", "Connection"} {
				if strings.Contains(a.body, part) {
					t.Errorf("with %q the worker sees %s:\n%s", key, part, a.body)
				}
			}
			for _, part := range []string{"Custom: stays", "X-Forwarded-For: 192.0.2.7\r", "X-Forwarded-Proto: http\r", "X-Forwarded-Host: podyard.test", "X-Forwarded-Prefix: /lb/web\r", "host podyard.test"} {
				if !strings.Contains(a.body, part) {
					t.Errorf("with %q the worker does not see %q:\n%s", key, part, a.body)
				}
			}
		}
	}, show)
}

func TestOnlyWebSocketIsAnUpgrade(t *testing.T) {
	balanced(t, nil, func(w *balancedAPI) {
		for _, headers := range [][]string{
			{"Upgrade: h2c"}, {"Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"},
			{"Upgrade: websocket, h2c"}, {"Upgrade: websocket", "Upgrade: h2c"}, {"Upgrade: "},
		} {
			w.wants(w.get("/lb/web/x", headers...), 400, "websocket")
		}
	}, showURI)
}

func TestAnswersUnderTheSharedOriginAreSandboxed(t *testing.T) {
	h := func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "Alt-Svc"} {
			w.Header().Set(name, "x")
		}
		w.Header().Set("Content-Security-Policy", "img-src *")
		w.Header().Set("X-Runpod-Worker-Id", "a-lie")
		w.Header().Set("Link", "</a>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
	}
	set := func(o *httpapi.Options) { o.LoadBalancerDomain = "lb.example.com" }
	balanced(t, set, func(w *balancedAPI) {
		for _, a := range []answer{w.second("/lb/web/x", "podyard.test"), w.get("/lb/nothere/x"), w.get("/lb/web/../x")} {
			if p := a.header.Values("Content-Security-Policy"); len(p) == 0 || p[0] != "sandbox" {
				t.Errorf("the policy of %d is %q", a.status, p)
			}
			for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "Alt-Svc"} {
				if v := a.header.Get(name); v != "" {
					t.Errorf("%s passes: %q", name, v)
				}
			}
		}
		a := w.second("/lb/web/x", "podyard.test")
		if id := a.header.Values("X-Runpod-Worker-Id"); !slices.Equal(id, []string{"w1"}) {
			t.Errorf("the worker is %q", id)
		}
		a = w.second("/x", "web.lb.example.com")
		if a.header.Get("Set-Cookie") != "x" || a.header.Get("Content-Security-Policy") != "img-src *" {
			t.Errorf("on a host of its own the answer is changed: %v", a.header)
		}
	}, h)
}

// second is get on a host, for an answer that follows one of status 103.
func (w *balancedAPI) second(target, host string) answer {
	w.t.Helper()
	c := w.net.dial(w.t)
	defer c.Close()
	go func() {
		_, _ = io.WriteString(c, strings.Replace(requestText("GET", target, ""), "podyard.test", host, 1))
	}()
	r := bufio.NewReader(c)
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		if res.Header.Get("Set-Cookie") != "" && strings.HasPrefix(target, "/lb/") {
			w.t.Errorf("an answer of status %d sets a cookie", res.StatusCode)
		}
		if res.StatusCode >= 200 {
			b, _ := io.ReadAll(res.Body)
			return answer{res.StatusCode, res.Header, string(b)}
		}
	}
}

func TestAHostOfAnEndpointNeverServesTheInterface(t *testing.T) {
	set := func(o *httpapi.Options) { o.LoadBalancerDomain = "lb.example.com" }
	balanced(t, set, func(w *balancedAPI) {
		on := func(host, target string) answer {
			return w.raw(strings.Replace(requestText("GET", target, ""), "podyard.test", host, 1))
		}
		for _, target := range []string{"/", "/v2/pods", "/lb/web/x", "/v1/pods/x/reset", "/readyz"} {
			for _, host := range []string{"web.lb.example.com", "web.lb.example.com:8443"} {
				if a := on(host, target); a.status != 200 || a.body != target {
					t.Errorf("%s on %s = %d %s", target, host, a.status, a.body)
				}
			}
			for _, host := range []string{"WEB.lb.example.com", "web.LB.example.com", "web.lb.example.com.", "a.web.lb.example.com", ".lb.example.com", "-.lb.example.com"} {
				if a := on(host, target); a.status != 404 {
					t.Errorf("%s on %s = %d %s, want 404", target, host, a.status, a.body)
				}
			}
			if a := on("nothere.lb.example.com", target); a.status != 404 {
				t.Errorf("an unknown endpoint = %d", a.status)
			}
		}
		for _, host := range []string{"lb.example.com", "weblb.example.com", "podyard.test"} {
			if a := on(host, "/v2/pods"); a.status != 200 || !strings.Contains(a.body, `"pods"`) {
				t.Errorf("the interface on %s = %d %s", host, a.status, a.body)
			}
		}
	}, showURI)
}

func TestAQueueAndABalancedEndpointAreNotMixed(t *testing.T) {
	balanced(t, nil, func(w *balancedAPI) {
		for _, request := range []string{
			"POST /run", "POST /runsync", "GET /status/x", "GET /status-sync/x", "GET /stream/x", "POST /cancel/x", "POST /retry/x",
			"POST /purge-queue", "GET /health", "GET /requests", "GET /metrics", "POST /openai/v1/models",
		} {
			method, path, _ := strings.Cut(request, " ")
			a := w.want(400, method, "/v2/web"+path, `{"input":{}}`)
			if !strings.Contains(a.body, "LOAD_BALANCER") {
				t.Errorf("%s = %s", request, a.body)
			}
		}
		w.wants(w.get("/lb/echo/x"), 400, "the endpoint has a queue")
		if err := w.jobs.ServeRequests(t.Context(), "echo", nil, nil); err == nil {
			t.Error("an endpoint with a queue is served with requests")
		}
		if err := w.jobs.EnsureBalanced(t.Context(), "echo"); !errors.Is(err, serverless.ErrEndpointExists) {
			t.Errorf("EnsureBalanced of an endpoint with a queue = %v", err)
		}
	}, showURI)
}

func TestARequestWaitsTwoMinutesForAWorkerAndItsBodyIsNotRead(t *testing.T) {
	balanced(t, nil, func(w *balancedAPI) {
		begin, c := time.Now(), w.net.dial(t)
		body := strings.Repeat("x", 1<<20)
		sent := make(chan int, 1)
		go func() {
			_, _ = io.WriteString(c, requestText("POST", "/lb/web/x", "", "Content-Length: 1048576", "Connection: close"))
			n, _ := io.WriteString(c, body)
			sent <- n
		}()
		synctest.Wait()
		select {
		case n := <-sent:
			t.Fatalf("%d bytes of the body of a held request were read", n)
		default:
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		if took := time.Since(begin); res.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), `"error":"no workers available"`) || took != 2*time.Minute {
			t.Errorf("without a worker: %d %s after %v", res.StatusCode, b, took)
		}
		_ = c.Close()
		n := <-sent
		if n > 300<<10 {
			t.Errorf("%d bytes of the body were read", n)
		}

		held := make(chan answer)
		go func() { held <- w.raw(requestText("POST", "/lb/web/later", "body")) }()
		advance(time.Minute)
		w.join("late", showURI)
		w.wants(<-held, 200, "/later")
	})
}

func TestALargeRequestIsRefusedAndALargeAnswerBrokenOff(t *testing.T) {
	const most = 30 << 20
	block := strings.Repeat("x", 1<<20)
	write := func(w io.Writer, n int) {
		for ; n > 0; n -= min(n, len(block)) {
			if _, err := io.WriteString(w, block[:min(n, len(block))]); err != nil {
				return
			}
		}
	}
	h := func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		var size int
		_, _ = fmt.Sscan(r.URL.Query().Get("n"), &size)
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		w.Header().Set("Got", fmt.Sprint(n, err))
		write(w, size)
	}
	balanced(t, nil, func(w *balancedAPI) {
		w.wants(w.raw(requestText("POST", "/lb/web/x", "", fmt.Sprint("Content-Length: ", most+1), "Expect: 100-continue")), 413, "31457280 bytes (30 MB)")
		for _, n := range []int{most, most + 1} {
			c := w.net.dial(t)
			go func() {
				_, _ = io.WriteString(c, requestText("POST", "/lb/web/x", "", "Transfer-Encoding: chunked"))
				chunks := bufio.NewWriter(c)
				for left := n; left > 0; left -= min(left, len(block)) {
					fmt.Fprintf(chunks, "%x\r\n%s\r\n", min(left, len(block)), block[:min(left, len(block))])
				}
				_, _ = io.WriteString(chunks, "0\r\n\r\n")
				_ = chunks.Flush()
			}()
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[int]int{most: 200, most + 1: 413}[n]; res.StatusCode != want {
				t.Errorf("a chunked body of %d bytes = %d", n, res.StatusCode)
			}
			_ = c.Close()
		}
		for _, q := range []struct {
			n    int
			kind string
			want int
		}{{most, "text/plain", most}, {most + 1, "text/plain", -1}, {most + 1, "text/event-stream", most + 1}, {most + 1, "application/x-ndjson; charset=utf-8", most + 1}} {
			a := w.get(fmt.Sprintf("/lb/web/x?n=%d&type=%s", q.n, strings.NewReplacer(" ", "%20", ";", "%3B").Replace(q.kind)))
			broken := strings.HasSuffix(a.body, " broken off")
			if broken != (q.want < 0) || !broken && len(a.body) != q.want {
				t.Errorf("an answer of %d bytes of %s has %d bytes, broken off: %v", q.n, q.kind, len(a.body), broken)
			}
		}
	}, h)
}

// Without care a server of net/http reads what is left of a body, and throws it away, before it
// begins an answer.
func TestAWorkerMayAnswerWhileTheBodyStillComes(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := c.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		for b := make([]byte, 10); ; {
			n, err := r.Body.Read(b)
			_, _ = w.Write(b[:n])
			_ = c.Flush()
			if err != nil {
				return
			}
		}
	}
	balanced(t, nil, func(w *balancedAPI) {
		c := w.net.dial(t)
		defer c.Close()
		send := func(text string) {
			if _, err := io.WriteString(c, text); err != nil {
				t.Error(err)
			}
		}
		head := strings.TrimSuffix(requestText("POST", "/lb/web/", "20 bytes: .........."), "..........")
		head = strings.Replace(head, "Connection: close\r\n", "", 1) // net/http would not look at the rest then
		go send(head)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 10)
		if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "20 bytes: " {
			t.Fatalf("the first half comes back as %q, %v", first, err)
		}
		go send("and more..")
		if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != "and more.." {
			t.Errorf("the second half comes back as %q, %v", rest, err)
		}
	}, echo)
}

func TestAWorkerThatDoesNotAnswerIsCutOff(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		flush := func() { _ = http.NewResponseController(w).Flush() }
		switch r.URL.Path {
		case "/never":
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		case "/silent":
			w.Header().Set("Content-Type", "text/event-stream")
			for range 3 {
				_, _ = io.WriteString(w, "data: 1\n\n")
				flush()
				time.Sleep(5 * time.Minute)
			}
			_, _ = io.WriteString(w, "data: 2\n\n")
			flush()
			<-r.Context().Done()
		case "/breaks":
			panic(http.ErrAbortHandler)
		}
	}
	const limit = 5*time.Minute + 30*time.Second
	balanced(t, nil, func(w *balancedAPI) {
		for _, text := range []string{requestText("GET", "/lb/web/never", ""), requestText("POST", "/lb/web/never", "body")} {
			begin := time.Now()
			a := w.raw(text)
			w.wants(a, 524, `"status":524`)
			if took := time.Since(begin); took != limit || a.header.Get("X-Runpod-Worker-Id") != "w1" {
				t.Errorf("after %v, from worker %q", took, a.header.Get("X-Runpod-Worker-Id"))
			}
		}
		begin := time.Now()
		a := w.get("/lb/web/silent")
		if took := time.Since(begin); took != 15*time.Minute+limit || !strings.HasSuffix(a.body, "data: 2\n\n broken off") {
			t.Errorf("a silent stream ends after %v with %q", took, a.body)
		}
		a = w.get("/lb/web/breaks")
		w.wants(a, 502, "ended the connection without an answer")
		if a.header.Get("X-Runpod-Worker-Id") != "w1" {
			t.Error("a 502 does not name the worker")
		}
	}, h)
}

func TestNoRequestIsSentTwice(t *testing.T) {
	var mu sync.Mutex
	count := map[string]int{}
	h := func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		count[r.Method+r.URL.Path]++
		mu.Unlock()
		if r.URL.Path == "/ok" {
			return // its connection is used again
		}
		panic(http.ErrAbortHandler)
	}
	balanced(t, nil, func(w *balancedAPI) {
		for _, m := range []string{"GET", "HEAD", "OPTIONS", "POST", "DELETE"} {
			w.wants(w.get("/lb/web/ok"), 200, "")
			if a := w.raw(requestText(m, "/lb/web/break", "", "Idempotency-Key: 1")); a.status != 502 {
				t.Errorf("%s = %d", m, a.status)
			}
			if n := count[m+"/break"]; n != 1 {
				t.Errorf("a worker got %s %d times", m, n)
			}
		}
	}, h, h)
}

func TestTheWorkerWithTheFewestRequestsIsChosen(t *testing.T) {
	h := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(time.Minute)
		}
	}
	balanced(t, nil, func(w *balancedAPI) {
		worker := func(target string, headers ...string) string {
			return w.get(target, headers...).header.Get("X-Runpod-Worker-Id")
		}
		var turns []string
		for range 4 {
			turns = append(turns, worker("/lb/web/x"))
			synctest.Wait() // a worker has its request until after the answer was read
		}
		if !slices.Equal(turns, []string{"w1", "w2", "w3", "w1"}) {
			t.Errorf("requests one after another go to %v", turns)
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		got := map[string]int{}
		for range 6 {
			all.Go(func() {
				id := worker("/lb/web/slow")
				mu.Lock()
				defer mu.Unlock()
				got[id]++
			})
		}
		synctest.Wait()
		if n := w.jobs.RunningWorkers("web"); n != 3 {
			t.Errorf("%d workers run", n)
		}
		all.Wait()
		if len(got) != 3 || got["w1"] != 2 || got["w2"] != 2 {
			t.Errorf("requests at once go to %v", got)
		}
		for header, want := range map[string]string{"w2": "w2", "strict w3": "w3", "strict-resume w1": "w1"} {
			for range 3 {
				if id := worker("/lb/web/x", "X-Runpod-Worker-Id: "+header); id != want {
					t.Errorf("%q goes to %s", header, id)
				}
			}
		}
		if id := worker("/lb/web/x", "X-Runpod-Worker-Id: gone"); id == "" {
			t.Error("a preference for a worker that is gone gets none")
		}
		w.wants(w.get("/lb/web/x", "X-Runpod-Worker-Id: strict gone"), 400, "no workers available")
	}, h, h, h)
}

func TestKeysScopesAndRatesOfABalancedEndpoint(t *testing.T) {
	balanced(t, nil, func(w *balancedAPI) {
		with := func(key string) answer {
			return w.raw(strings.Replace(requestText("GET", "/lb/web/x", ""), "Bearer "+aliceKey, key, 1))
		}
		w.wants(with(aliceKey), 200, "/x") // without a scheme
		w.wants(with("Bearer nobody"), 401, "invalid or expired token")
		w.wants(w.raw("GET /lb/web/x HTTP/1.1\r\nHost: podyard.test\r\nConnection: close\r\n\r\n"), 401, "missing")
		refused := 0
		for range 1100 {
			if a := with("Bearer " + bobKey); a.status == 429 {
				refused++
				if a.header.Get("RateLimit-Policy") == "" {
					t.Fatal("a 429 has no policy")
				}
			}
		}
		if refused == 0 {
			t.Error("the rate of run does not apply")
		}
		w.wants(with("Bearer "+bobFree), 200, "/x")
	}, showURI)
}
