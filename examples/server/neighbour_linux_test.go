package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/internal/suite"
)

// Bounds of what a user may notice of another one (docs/security.md).
const (
	neighbourMemory = 600 << 20              // resident bytes of the server
	neighbourP99    = 20 * time.Millisecond  // or five times that of the control, if that is more
	neighbourAfter  = 10 * time.Second       // until all is as before
	neighbourShort  = 400 * time.Millisecond // of each abuse, where only counts are checked
)

// A tenant is a user of the server with an address of loopback.
type tenant struct {
	t         *testing.T
	in        *instance
	key, from string
	client    *http.Client
	endpoint  string // of the user
	balanced  string // a load-balancing one
	pod       string
	ssh       sshTarget
	cookie    string       // of a session of the console
	refusals  atomic.Int64 // answers 429 and 503
	requests  atomic.Int64
	bitten    chan struct{} // closed when an abuse does harm
	bite      sync.Once
}

func newTenant(t *testing.T, in *instance, user, from string) *tenant {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &tenant{t: t, in: in, key: "key-of-" + user, from: from, bitten: make(chan struct{}), client: &http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: 512, DisableCompression: true, TLSClientConfig: in.tls(),
	}}}
}

// bites says that an abuse does its harm from now on.
func (n *tenant) bites() { n.bite.Do(func() { close(n.bitten) }) }

// owns makes an endpoint of each type and a pod.
func (n *tenant) owns() {
	n.t.Helper()
	create := func(path, body string) string {
		status, b := n.do(n.t.Context(), "POST", path, body)
		var made struct{ ID string }
		if err := json.Unmarshal(b, &made); err != nil || status != http.StatusCreated {
			n.t.Fatalf("POST %s: %d %s", path, status, b)
		}
		return made.ID
	}
	const cpu = `"cpu":[{"id":"host","vcpuCount":2}],"workers":{"min":0,"max":0},"scaling":{"type":"REQUEST_COUNT","requestCount":1}`
	n.endpoint = create("/v2/serverless", `{"name":"mine","type":"QUEUE","image":"`+demo.HelloImage+`",`+cpu+`}`)
	n.balanced = create("/v2/serverless", `{"name":"web","type":"LOAD_BALANCER","image":"`+demo.WebImage+`",`+cpu+`}`)
	n.pod = create("/v2/pods", `{"name":"web","image":"`+demo.WebImage+`","cpu":{"id":"host","vcpuCount":2},"ports":["8000/http"]}`)
}

// do makes a request and returns the status, 0 if there was no answer, and the body.
func (n *tenant) do(ctx context.Context, method, path, body string, headers ...string) (int, []byte) {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, n.in.url+path, r)
	if err != nil {
		return 0, nil
	}
	req.Header.Set("Authorization", "Bearer "+n.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := n.client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	n.requests.Add(1)
	if res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable {
		n.refusals.Add(1)
	}
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, b
}

// head begins a request.
func (n *tenant) head(method, path string, headers ...string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + n.key + "\r\n" + strings.Join(append(headers, ""), "\r\n") + "\r\n"
}

// dial opens a connection and writes to it; nil if it was refused.
func (n *tenant) dial(ctx context.Context, text string) net.Conn {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(n.from)}, Timeout: time.Second}
	_, address, _ := strings.Cut(n.in.url, "://")
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4 << 10) // a slow reader has little room
	}
	if o := n.in.tls(); o != nil {
		o.NextProtos = []string{"http/1.1"}
		if strings.HasPrefix(text, "PRI * HTTP/2.0") { // the preface of HTTP/2
			o.NextProtos = []string{"h2"}
		}
		c = tls.Client(c, o)
	}
	_ = c.SetWriteDeadline(time.Now().Add(patience)) // what nobody reads is not sent for ever
	if _, err := io.WriteString(c, text); err != nil {
		_ = c.Close()
		return nil
	}
	return c
}

// everywhere runs f in a number of goroutines, again and again until ctx ends.
func everywhere(ctx context.Context, workers int, f func(i int)) {
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; ctx.Err() == nil; i += workers {
				f(i)
			}
		})
	}
	all.Wait()
}

// tls is how clients trust the server, or nil without a certificate.
func (in *instance) tls() *tls.Config {
	if in.trusted == nil {
		return nil
	}
	return &tls.Config{RootCAs: in.trusted, ServerName: "127.0.0.1"}
}

// times calls f so many times in all, in a number of goroutines.
func times(count, workers int, f func()) {
	var all sync.WaitGroup
	var begun atomic.Int64
	for range workers {
		all.Go(func() {
			for begun.Add(1) <= int64(count) {
				f()
			}
		})
	}
	all.Wait()
}

// silent keeps connections open that have sent text, and reads what is answered to none.
func (n *tenant) silent(ctx context.Context, count int, text func(i int) string) {
	for i := range count {
		if ctx.Err() != nil {
			return
		}
		if c := n.dial(ctx, text(i)); c != nil {
			defer c.Close()
		}
	}
	n.bites()
	<-ctx.Done()
}

// A victim uses the server as an ordinary user does.
type victim struct {
	*tenant
	fresh    *tenant // the same user, with a connection for each request, as a command has
	hook     *httptest.Server
	sent     atomic.Int64 // webhooks that were asked for
	received atomic.Int64

	uses int

	mu    sync.Mutex
	times []time.Duration
	bad   []string
}

func newVictim(t *testing.T, in *instance) *victim {
	v := &victim{tenant: newTenant(t, in, "victim", "127.0.0.1")}
	v.fresh = newTenant(t, in, "victim", "127.0.0.1")
	v.fresh.client.Transport.(*http.Transport).DisableKeepAlives = true
	v.hook = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { v.received.Add(1) }))
	t.Cleanup(v.hook.Close)
	v.owns()
	return v
}

// use makes every kind of request once, and notes how long each takes.
func (v *victim) use(ctx context.Context) {
	as := v.tenant
	timed := func(want int, method, path, body string) []byte {
		began := time.Now()
		status, b := as.do(ctx, method, path, body)
		if ctx.Err() != nil {
			return nil
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.times = append(v.times, time.Since(began))
		if status != want {
			v.bad = append(v.bad, fmt.Sprintf("%s %s = %d %.200s", method, path, status, b))
		}
		return b
	}
	timed(200, "POST", "/v2/echo/runsync", `{"input":{"a":1}}`)
	var job struct{ ID string }
	if json.Unmarshal(timed(200, "POST", "/v2/echo/run", `{"input":{"chunks":2},"webhook":"`+v.hook.URL+`"}`), &job) == nil && job.ID != "" {
		v.sent.Add(1)
		timed(200, "GET", "/v2/echo/status/"+job.ID, "")
		timed(200, "GET", "/v2/echo/stream/"+job.ID, "")
	}
	as = v.fresh
	timed(200, "GET", "/v2/echo/health", "")
	if v.uses++; v.uses%4 == 0 { // the quota of the control API is 600 requests a minute
		v.readLog(ctx)
	}
}

// readLog reads the first bytes of the pod's log.
func (v *victim) readLog(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.in.url+"/v2/pods/"+v.pod+"/logs?tail=1", nil)
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+v.key)
	res, err := v.client.Do(req)
	if err != nil {
		return
	}
	_, _ = bufio.NewReader(res.Body).ReadString('\n')
	_ = res.Body.Close()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.times = append(v.times, time.Since(began)); res.StatusCode != http.StatusOK {
		v.bad = append(v.bad, fmt.Sprintf("the log of a pod = %d", res.StatusCode))
	}
}

// measure uses the server for d, and returns the 99th percentile and what went wrong.
func (v *victim) measure(ctx context.Context, d time.Duration) (p99 time.Duration, bad []string) {
	v.mu.Lock()
	v.times, v.bad = nil, nil
	v.mu.Unlock()
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		v.use(ctx)
		time.Sleep(30 * time.Millisecond) // an ordinary user
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	slices.Sort(v.times)
	if len(v.times) == 0 {
		return 0, append(v.bad, "no request was answered")
	}
	return v.times[len(v.times)*99/100], v.bad
}

// resident returns the resident bytes of the server.
func (in *instance) resident() int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(in.cmd.Process.Pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

// peak looks at the memory of the server until the function that it returns is called. Far over the
// bound it calls enough, because the machine is for others, too.
func (in *instance) peak(enough func()) (most func() int64) {
	var top atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		look := time.NewTicker(20 * time.Millisecond)
		defer look.Stop()
		for {
			select {
			case <-stop:
				return
			case <-look.C:
				if top.Store(max(top.Load(), in.resident())); top.Load() > 3*neighbourMemory {
					enough()
				}
			}
		}
	}()
	return func() int64 { close(stop); <-done; return top.Load() }
}

// settingsOf is a configuration. An abuse may add to it.
type settingsOf struct {
	Keys        []map[string]any          `json:"keys"`
	Images      map[string]map[string]any `json:"images,omitempty"`
	Endpoints   []map[string]any          `json:"endpoints,omitempty"`
	Connections map[string]int            `json:"connections,omitempty"`
	// Not of the configuration.
	trusted *x509.CertPool
}

// neighbours starts a server on its defaults, but for what an abuse needs, with a user for each name.
func (a *abuse) neighbours(t *testing.T, users ...string) *instance {
	t.Helper()
	s := neighbourSettings(users...)
	args := []string{"-runtime", "process"}
	if a.server != nil {
		args = append(args, a.server(t, s)...)
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	in := start(t, append(args, "-config", file(t, string(b)))...)
	if in.trusted = s.trusted; in.resident() == 0 {
		t.Skip("this system does not say how much memory a process has")
	}
	return in
}

// neighbourSettings have a key for each user.
func neighbourSettings(users ...string) *settingsOf {
	s := &settingsOf{Images: map[string]map[string]any{}, Connections: map[string]int{}}
	for _, user := range users {
		s.Keys = append(s.Keys, map[string]any{"key": "key-of-" + user, "user": user, "scopes": []string{"pods:write", "registries:write", "endpoints:write", "endpoint:*:run"}})
	}
	return s
}

// neighbourConfig is the file of neighbourSettings.
func neighbourConfig(users ...string) string {
	b, _ := json.Marshal(neighbourSettings(users...)) // it has nothing that could fail
	return string(b)
}

// TestARudeNeighbourIsNotNoticed runs each abuse beside a user of the same server. With
// PODYARD_LONG the latency of that user is compared with what it is beside a polite user. In
// the short form each abuse is short, and only what is counted is checked: nothing of the
// user's is refused, and the memory of the server is bounded.
func TestARudeNeighbourIsNotNoticed(t *testing.T) {
	suite.SkipUnlessLong(t)
	for i, a := range abuses {
		t.Run(a.name, func(t *testing.T) {
			if os.Getenv("PODYARD_LONG") == "" {
				t.Parallel() // no time is compared
			}
			users := []string{"victim", "abuser", "polite"}
			in := a.neighbours(t, users...)
			v := newVictim(t, in)
			rude := newTenant(t, in, "abuser", "127.0.1."+strconv.Itoa(i+2))
			rude.owns()
			polite := newTenant(t, in, "polite", "127.0.2.2")
			v.beside(a, rude, polite)
		})
	}
}

// beside runs an abuse beside the victim.
func (v *victim) beside(a abuse, rude, polite *tenant) {
	v.t.Helper()
	d, rounds := neighbourShort, 1
	seconds, err := strconv.Atoi(os.Getenv("PODYARD_LONG"))
	measured := err == nil
	if measured {
		d, rounds = time.Duration(seconds)*time.Second, 3
	}
	if a.prepare != nil {
		a.prepare(rude)
	}
	var texts []string
	for range rounds {
		control := time.Duration(0)
		if measured {
			control = v.control(polite, d)
		}
		ctx, cancel := context.WithCancel(v.t.Context())
		most := v.in.peak(cancel)
		var abusing sync.WaitGroup
		abusing.Go(func() { a.do(ctx, rude) })
		if a.slow {
			select {
			case <-rude.bitten:
				time.Sleep(neighbourShort) // what was sent is answered
			case <-time.After(5 * patience): // many abuses run at once, and some send gigabytes
				v.t.Error("the abuse has not begun")
			}
		}
		p99, bad := v.measure(v.t.Context(), d)
		for end := time.Now().Add(patience); a.refused && rude.refusals.Load() == 0 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		abusing.Wait()
		memory := most()
		if a.fills {
			bad = slices.DeleteFunc(bad, func(s string) bool { return strings.Contains(s, " = 503 ") })
		}
		if len(bad) > 0 {
			v.t.Errorf("%d requests of another user failed: %s", len(bad), bad[0])
		}
		if memory > neighbourMemory {
			v.t.Errorf("the server has %d MB, want at most %d", memory>>20, neighbourMemory>>20)
		}
		texts = append(texts, fmt.Sprintf("p99 %v, control %v, %d MB", p99, control, memory>>20))
		if !measured || p99 <= max(neighbourP99, 5*control) {
			v.t.Logf("%s; %d requests of the neighbour, %d refused", texts[len(texts)-1], rude.requests.Load(), rude.refusals.Load())
			if a.after != nil {
				a.after(rude)
			}
			v.recovers(rude)
			if strings.Contains(v.in.stderr.String(), "panic") {
				v.t.Error("the log has a panic")
			}
			if a.refused && rude.refusals.Load() == 0 {
				v.t.Error("nothing was refused")
			}
			return
		}
	}
	v.t.Errorf("in three rounds: %s", strings.Join(texts, "; "))
}

// control is the latency beside a polite user.
func (v *victim) control(polite *tenant, d time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(v.t.Context(), d)
	defer cancel()
	go everywhere(ctx, 4, func(int) {
		polite.do(ctx, "POST", "/v2/echo/runsync", `{"input":{}}`)
		time.Sleep(10 * time.Millisecond)
	})
	p99, _ := v.measure(ctx, d)
	return p99
}

// recovers waits until the server answers at once, and has sent all webhooks.
func (v *victim) recovers(rude *tenant) {
	v.t.Helper()
	rude.client.CloseIdleConnections()
	end := time.Now().Add(suite.Within(neighbourAfter))
	for v.received.Load() < v.sent.Load() {
		if time.Now().After(end) {
			v.t.Fatalf("%d of %d webhooks came", v.received.Load(), v.sent.Load())
		}
		time.Sleep(10 * time.Millisecond)
	}
	for {
		p99, bad := v.measure(v.t.Context(), 100*time.Millisecond)
		if len(bad) == 0 && p99 < 20*neighbourP99 {
			return
		}
		if time.Now().After(end) {
			v.t.Fatalf("%v after the end: p99 %v, %v", suite.Within(neighbourAfter), p99, bad)
		}
	}
}
