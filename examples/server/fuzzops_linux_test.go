package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/internal/suite"
)

// fuzzWorkers is how many requests are made at once. Each worker has a generator of its own, so that a
// seed makes the same choices again; ids and the order of answers are of each run.
const fuzzWorkers = 16

// faults5xx are the answers of the kind 5xx that are right, by operation and status. All others are
// faults of the server, and 500 is one wherever it is not named. An entry is for answers with the text.
var faults5xx = []struct {
	op     string // "*": any
	status int
	text   string
	why    string
}{
	{"*", 503, "draining", "a drained server takes no new work"},
	{"*", 503, "cordoned", "a cordoned endpoint takes no new work"},
	{"proxy", 502, "", "the worker answered with what is no HTTP"},
	{"proxy", 503, "", "there is no worker in time"},
	{"proxy", 504, "", "the worker did not answer in time"},
	{"openai", 500, "why", "the worker failed with an error of its own: the input asked for it"},
	{"openai", 500, "the worker gave no answer", "the job was ended without an output, or with one that is no value of an answer"},
}

func right5xx(op string, status int, body []byte) bool {
	for _, f := range faults5xx {
		if (f.op == "*" || f.op == op) && f.status == status && strings.Contains(string(body), f.text) {
			return true
		}
	}
	return false
}

// What a server holds.
type holds struct{ goroutines, descriptors, heap int64 }

// A fuzzed is a server with users whose requests are made up.
type fuzzed struct {
	t       *testing.T
	in      *instance
	metrics string
	doc     map[string]any
	known   *known
	client  *http.Client
	cookie  map[string]string

	mu       sync.Mutex
	statuses map[string]int
	asked    map[string]int // by operation
	bad      []string
}

// TestEveryOperationIsFuzzed makes requests to every operation with typed ids, by users with different
// keys, to load-balancing endpoints, and through the console, while an operator drains and cordons. No
// answer is a 500, no 5xx is one that faults5xx does not name, nothing panics, and at the end the server
// holds what it held before. PODYARD_LONG is for how many seconds, 10 without it; PODYARD_SEED repeats
// the choices of a run.
func TestEveryOperationIsFuzzed(t *testing.T) {
	suite.SkipUnlessLong(t)
	seed, d := uint64(1), 10*time.Second
	if n, err := strconv.ParseUint(os.Getenv("PODYARD_SEED"), 10, 64); err == nil {
		seed = n
	} else if os.Getenv("PODYARD_LONG") != "" {
		seed = rand.Uint64()
	}
	if n, err := strconv.Atoi(os.Getenv("PODYARD_LONG")); err == nil {
		d = time.Duration(n) * time.Second
	}
	t.Logf("PODYARD_SEED=%d", seed)
	f := newFuzzed(t)
	f.run(seed+1, time.Second) // what is made once, such as connections and caches
	f.clean()
	before := f.look()
	f.run(seed, d)
	f.clean()
	f.report()
	f.settles(before)
	if log := f.in.stderr.String(); strings.Contains(log, "panic") {
		t.Error("the log has a panic")
	}
}

func newFuzzed(t *testing.T) *fuzzed {
	t.Helper()
	s := neighbourSettings("alice", "bob")
	s.Keys = append(s.Keys,
		map[string]any{"key": "lesser", "user": "alice", "scopes": []string{"endpoint:echo:run"}},
		map[string]any{"key": "free", "user": "alice", "scopes": []string{"*"}, "exempt": true},
		map[string]any{"key": "free-of-bob", "user": "bob", "scopes": []string{"*"}, "exempt": true},
		map[string]any{"key": "operator", "user": "ops", "scopes": []string{"*", "operator"}, "exempt": true},
		map[string]any{"key": "work", "user": "ops", "scopes": []string{"endpoint:hello:work"}, "exempt": true},
	)
	args := withRudeWorkers(t, s)
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	in := start(t, append(args, "-runtime", "sim", "-metrics", "127.0.0.1:0", "-config", file(t, string(b)))...)
	n := newTenant(t, in, "alice", "127.0.0.1")
	f := &fuzzed{
		t: t, in: in, metrics: n.metricsURL(), known: &known{ids: map[httpapi.Area][]map[string]string{}}, cookie: map[string]string{},
		client:   &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		statuses: map[string]int{}, asked: map[string]int{},
	}
	for _, key := range []string{"free", "operator"} {
		n.key = key
		n.signIn()
		f.cookie[key] = n.cookie
	}
	if _, b := in.do("GET", "/v2/openapi.json", ""); json.Unmarshal(b, &f.doc) != nil {
		t.Fatalf("the description is %.200s", b)
	}
	return f
}

// run makes requests for d.
func (f *fuzzed) run(seed uint64, d time.Duration) {
	ctx, cancel := context.WithTimeout(f.t.Context(), d)
	defer cancel()
	var all sync.WaitGroup
	for w := range fuzzWorkers {
		g := &fuzzer{
			random: rand.New(rand.NewPCG(seed, uint64(w))), table: httpapi.Operations(), doc: f.doc, known: f.known, cookie: f.cookie,
			keys: []string{"free", "free", "free", "free", "free", "free", "free-of-bob", "operator", "operator", "operator", "key-of-alice", "lesser", "work", "", "wrong"},
		}
		all.Go(func() {
			for ctx.Err() == nil {
				f.ask(ctx, g.next())
			}
		})
	}
	all.Wait()
}

// ask makes a request and looks at the answer.
func (f *fuzzed) ask(ctx context.Context, r *fuzzRequest) {
	// Streams and waits go on for as long as they may: a moment of each is enough.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 700*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, f.in.url+r.target, strings.NewReader(r.body))
	if err != nil {
		return // no client can send it
	}
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	if r.media != "" {
		req.Header.Set("Content-Type", r.media)
	}
	if strings.HasPrefix(r.target, "/console/") {
		req.Header.Set("Podyard-Console", "1")
		req.Header.Set("Cookie", f.cookie[r.key])
	}
	res, err := f.client.Do(req)
	f.mu.Lock()
	f.asked[r.op]++
	f.mu.Unlock()
	if err != nil {
		return
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if res.StatusCode < 300 {
		f.known.learn(r, b)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses[fmt.Sprint(res.StatusCode)]++
	if res.StatusCode >= 500 && !right5xx(r.op, res.StatusCode, b) {
		f.bad = append(f.bad, fmt.Sprintf("%v = %d %.300s", r, res.StatusCode, b))
	}
}

// clean takes back what an operator has changed, and removes what users have.
func (f *fuzzed) clean() {
	f.t.Helper()
	for _, what := range []string{`{"server":true}`, `{"endpoint":"echo"}`, `{"endpoint":"hello"}`, `{"endpoint":"web"}`} {
		f.in.do("POST", "/v2/admin/uncordon", what)
	}
	for _, user := range []string{"alice", "bob", "ops", "carol"} {
		f.in.do("DELETE", "/v2/admin/users/"+user, "")
	}
	f.client.CloseIdleConnections()
}

// look reads what the server holds.
func (f *fuzzed) look() (h holds) {
	f.t.Helper()
	text := func(path string) string {
		status, b, err := send(must(http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.metrics+path, http.NoBody)))
		if err != nil || status != http.StatusOK {
			f.t.Fatalf("GET %s = %d, %v", path, status, err)
		}
		return string(b)
	}
	_, count, _ := strings.Cut(text("/debug/pprof/goroutine?debug=1"), "total ")
	count, _, _ = strings.Cut(count, "\n")
	h.goroutines, _ = strconv.ParseInt(count, 10, 64)
	for line := range strings.Lines(text("/debug/pprof/heap?debug=1&gc=1")) {
		if v, ok := strings.CutPrefix(line, "# HeapAlloc = "); ok {
			h.heap, _ = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", f.in.cmd.Process.Pid))
	if err != nil {
		f.t.Fatal(err)
	}
	h.descriptors = int64(len(list))
	if h.goroutines == 0 || h.heap == 0 {
		f.t.Fatalf("the profiles say %+v", h)
	}
	return h
}

func must(r *http.Request, err error) *http.Request {
	if err != nil {
		panic(err)
	}
	return r
}

// settles waits until the server holds what it held before, with some slack: files of the store and
// goroutines that wait a while for more work.
func (f *fuzzed) settles(before holds) {
	f.t.Helper()
	var now holds
	for end := time.Now().Add(2 * patience); ; time.Sleep(500 * time.Millisecond) {
		now = f.look()
		if now.goroutines <= before.goroutines+40 && now.descriptors <= before.descriptors+60 && now.heap <= before.heap+32<<20 {
			break
		}
		if time.Now().After(end) {
			f.t.Errorf("the server holds %d goroutines, %d descriptors and %d MB of heap; before it was %d, %d and %d MB",
				now.goroutines, now.descriptors, now.heap>>20, before.goroutines, before.descriptors, before.heap>>20)
			return
		}
	}
	f.t.Logf("goroutines %d -> %d, descriptors %d -> %d, heap %d -> %d MB",
		before.goroutines, now.goroutines, before.descriptors, now.descriptors, before.heap>>20, now.heap>>20)
}

// report says what was asked and what was wrong.
func (f *fuzzed) report() {
	f.t.Helper()
	total := 0
	for _, n := range f.asked {
		total += n
	}
	f.t.Logf("%d requests to %d operations; statuses %v", total, len(f.asked), f.statuses)
	if total > 5000 {
		for _, o := range httpapi.Operations() {
			if f.asked[o.Name] == 0 {
				f.t.Errorf("%s was never asked", o.Name)
			}
		}
	}
	kinds := map[string]int{}
	for _, b := range f.bad {
		_, rest, _ := strings.Cut(b, " (")
		op, _, _ := strings.Cut(rest, ")")
		if kinds[op]++; kinds[op] <= 3 {
			f.t.Error(b)
		}
	}
	for _, op := range slices.Sorted(maps.Keys(kinds)) {
		f.t.Errorf("%s: %d answers that no row of faults5xx names", op, kinds[op])
	}
}
