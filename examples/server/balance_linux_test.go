package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
)

// exemptKey has no limit of requests at once.
const exemptKey = "an-exempt-key"

// startBalanced runs a server with the load-balancing endpoint "web" of at most max workers,
// which are processes of the test binary.
func startBalanced(t *testing.T, workers string, perWorker int) *instance {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startWeb(t, map[string]any{"command": []string{self}, "env": map[string]string{balanceWorkerEnv: "1"}}, workers, perWorker)
}

// startWeb runs a server with the load-balancing endpoint "web", whose workers are processes
// of an image.
func startWeb(t *testing.T, image map[string]any, workers string, perWorker int) *instance {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"images": map[string]any{"test/web": image}, "processes": map[string]any{"user": ownUser()},
		"endpoints": []any{map[string]any{
			"id": "web", "type": "LOAD_BALANCER", "image": "test/web", "cpu": []any{map[string]any{"id": "host", "vcpuCount": 2}},
			"workers": json.RawMessage(workers), "scaling": map[string]any{"type": "REQUEST_COUNT", "requestCount": perWorker},
		}},
		"keys":         []any{map[string]any{"key": exemptKey, "user": "tester", "scopes": []string{"endpoint:*:run"}, "exempt": true}},
		"loadBalancer": map[string]string{"domain": "lb.example.com"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return start(t, "-config", file(t, string(config)))
}

// web makes a request to the endpoint.
func (in *instance) balanced(method, path, body string) (status int, text string, worker string) {
	in.t.Helper()
	resp, err := http.DefaultClient.Do(in.request(method, "/lb/web"+path, body))
	if err != nil {
		in.t.Errorf("%s %s: %v", method, path, err)
		return 0, "", ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		in.t.Errorf("%s %s: read the answer: %v", method, path, err)
	}
	return resp.StatusCode, string(b), resp.Header.Get("X-Runpod-Worker-Id")
}

func TestABalancedEndpointAnswersFromZeroAndInWorkersThatAreThere(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := startBalanced(t, `{"max":1}`, 100)
	began := time.Now()
	status, id, worker := in.balanced("GET", "/who", "")
	took := time.Since(began)
	t.Logf("from zero to the first answer: %v", took)
	if status != 200 || id == "" || id != worker {
		t.Fatalf("the first answer is %d %q of worker %q", status, id, worker)
	}
	if took > suite.Within(time.Second) {
		t.Errorf("from zero to the first answer it took %v, want at most %v", took, suite.Within(time.Second))
	}
	if status, text, _ := in.balanced("POST", "/echo", strings.Repeat("x", 5<<20)); status != 200 || len(text) != 5<<20 {
		t.Errorf("a body of 5 MB comes back as %d with %d bytes", status, len(text))
	}
	if status, text, _ := in.balanced("GET", "/events", ""); status != 200 || text != "data: one\n\ndata: two\n\ndata: three\n\n" {
		t.Errorf("an event stream is %d %q", status, text)
	}
	r := in.request("GET", "/who", "")
	r.Host = "web.lb.example.com"
	if status, b, err := send(r); err != nil || status != 200 || string(b) != id {
		t.Errorf("on its own host: %d %s, %v", status, b, err)
	}
	r = in.request("GET", "/readyz", "")
	r.Host = "web.lb.example.com"
	if status, _, err := send(r); err != nil || status != 404 {
		t.Errorf("/readyz on its own host is %d, want that of the worker, 404", status)
	}
	if code, _ := in.do("GET", "/v2/web/health", ""); code != 400 {
		t.Errorf("the jobs API answers %d, want 400", code)
	}
	e := get[struct {
		Type        string
		RequestURLs map[string]string `json:"requestUrls"`
	}](in, "GET", "/v2/serverless/web", "", 200)
	if e.Type != "LOAD_BALANCER" || e.RequestURLs["base"] != in.url+"/lb/web" || e.RequestURLs["health"] != in.url+"/lb/web/ping" || len(e.RequestURLs) != 2 {
		t.Errorf("the endpoint is %+v", e)
	}
	list := get[struct {
		Workers []struct{ ID, Status string }
	}](in, "GET", "/v2/serverless/web/workers", "", 200)
	if len(list.Workers) != 1 || list.Workers[0].ID != id || list.Workers[0].Status != "IDLE" {
		t.Errorf("its workers are %+v", list)
	}
}

func TestAKilledWorkerCostsOnlyItsOwnRequests(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := startBalanced(t, `{"min":2,"max":2}`, 100)
	seen := map[string]bool{}
	eventually(t, "two workers answer", func() bool {
		_, _, id := in.balanced("GET", "/who", "")
		seen[id] = true
		return len(seen) == 2
	})
	var victim string
	for id := range seen {
		victim = id
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	of := map[string]map[int]int{}
	for range 20 {
		all.Go(func() {
			status, _, id := in.balanced("GET", "/slow?for=10s", "")
			mu.Lock()
			defer mu.Unlock()
			if of[id] == nil {
				of[id] = map[int]int{}
			}
			of[id][status]++
		})
	}
	at := map[string]int{} // about ten each: what looks at a worker is a request, too
	eventually(t, "all requests are at their workers", func() bool {
		came := 0
		for id := range seen {
			r := in.request("GET", "/lb/web/slow/count", "")
			r.Header.Set("X-Runpod-Worker-Id", "strict "+id)
			_, b, err := send(r)
			n, _ := strconv.Atoi(string(b))
			if at[id], came = n, came+n; err != nil {
				t.Fatal(err)
			}
		}
		return came == 20
	})
	r := in.request("POST", "/lb/web/exit", "")
	r.Header.Set("X-Runpod-Worker-Id", "strict "+victim)
	if status, b, err := send(r); err != nil || status != 502 {
		t.Errorf("the request that killed a worker = %d %s, %v", status, b, err)
	}
	for range 50 { // meanwhile all others are served
		if status, text, id := in.balanced("GET", "/who", ""); status != 200 || id == victim {
			t.Errorf("after the death of a worker: %d %s of %s", status, text, id)
		}
	}
	all.Wait()
	if len(of) != 2 || of[victim][502] != at[victim] || len(of[victim]) != 1 {
		t.Errorf("answers by worker and status: %v; killed was %s with %d requests", of, victim, at[victim])
	}
	for id, statuses := range of {
		if id != victim && (len(statuses) != 1 || statuses[200] != at[id]) {
			t.Errorf("the other worker, with %d requests, answered %v", at[id], statuses)
		}
	}
}

// memory is the resident memory of the server in bytes.
func (in *instance) memory() int {
	in.t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(in.cmd.Process.Pid), "status"))
	if err != nil {
		in.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n << 10
		}
	}
	in.t.Fatal("no VmRSS")
	return 0
}

func (in *instance) dial() net.Conn {
	in.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(in.url, "http://"))
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestHeldUploadsAreNotInMemory(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := startBalanced(t, `{"max":0}`, 1)
	before := in.memory()
	const uploads, most = 500, 64 << 20
	part := strings.Repeat("x", 256<<10)
	var last net.Conn
	for range uploads {
		c := in.dial()
		last = c
		_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
		fmt.Fprintf(c, "POST /lb/web/echo HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n", exemptKey, 30<<20)
		_ = c.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
		for range 30 << 20 / len(part) {
			if _, err := io.WriteString(c, part); err != nil {
				break // it is held
			}
		}
	}
	if grown := in.memory() - before; grown > most {
		t.Errorf("%d held uploads of 30 MB take %d MB of the server, want at most %d", uploads, grown>>20, most>>20)
	} else {
		t.Logf("%d held uploads take %d MB", uploads, grown>>20)
	}
	_ = last.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := last.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the last upload is not held: %d bytes, %v", n, err)
	}
	why := get[struct{ Decisions []struct{ Reason string } }](in, "GET", "/v2/serverless/web/decisions", "", 200)
	if len(why.Decisions) == 0 || !strings.Contains(why.Decisions[0].Reason, "maximum is 0 workers") {
		t.Errorf("the decisions are %+v", why)
	}
}

func TestWebSocketsEndWith1001WhenTheServerStops(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := startBalanced(t, `{"max":1}`, 1000)
	in.balanced("GET", "/who", "")
	const sockets = 200
	type socket struct {
		net.Conn
		r *bufio.Reader
	}
	var list []socket
	for range sockets {
		c := in.dial()
		fmt.Fprintf(c, "GET /lb/web/socket HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", in.key)
		r := bufio.NewReader(c)
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("upgrade: %v %v", res, err)
		}
		list = append(list, socket{c, r})
	}
	const frame = "\x81\x05hello"
	exchange := func() {
		for _, s := range list {
			_, _ = io.WriteString(s, frame)
		}
		for _, s := range list {
			b := make([]byte, len(frame))
			_ = s.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.ReadFull(s.r, b); err != nil || string(b) != frame {
				t.Fatalf("a frame comes back as %q, %v", b, err)
			}
		}
	}
	exchange()
	t.Logf("%d WebSockets are open, and the server has %d MB", sockets, in.memory()>>20)
	time.Sleep(12 * time.Second) // the worker would be idle for too long
	exchange()
	if err := in.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for i, s := range list {
		_ = s.SetReadDeadline(time.Now().Add(patience))
		if b, err := io.ReadAll(s.r); string(b) != "\x88\x02\x03\xe9" {
			t.Fatalf("WebSocket %d ends with %q, %v", i, b, err)
		}
	}
	select {
	case <-in.done: // the second signal, of the cleanup, would end it at once and leave its worker
	case <-time.After(patience):
		t.Fatal("the server did not end")
	}
}

func TestAStockFastAPITemplateIsBalanced(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	script, err := filepath.Abs("testdata/web.py")
	if err != nil {
		t.Fatal(err)
	}
	in := startWeb(t, map[string]any{"command": []string{interpreter, script}}, `{"max":1}`, 4)
	began := time.Now()
	status, text, _ := in.balanced("POST", "/generate", `{"prompt":"Hello","max_tokens":7}`)
	t.Logf("from zero to the first answer of uvicorn: %v", time.Since(began))
	if status != 200 || text != `{"generated_text":"Response to: Hello","max_tokens":7}` {
		t.Fatalf("POST /generate = %d %s", status, text)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if status, text, _ := in.balanced("POST", "/generate", `{"prompt":"x","max_tokens":1}`); status != 200 {
				t.Errorf("POST /generate = %d %s", status, text)
			}
		})
	}
	all.Wait()
	if status, text, _ := in.balanced("GET", "/stats", ""); status != 200 || text != `{"total_requests":21,"total_tokens":27}` {
		t.Errorf("GET /stats = %d %s", status, text)
	}
	if status, text, _ := in.balanced("POST", "/generate", `{}`); status != 422 || !strings.Contains(text, "prompt") {
		t.Errorf("its own refusal is %d %s", status, text)
	}
	if status, _, _ := in.balanced("GET", "/docs", ""); status != 200 {
		t.Errorf("GET /docs = %d", status)
	}
}
