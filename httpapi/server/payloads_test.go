package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
)

// How large a payload is, how many are on their way at once, and how much may still be reachable when all have
// ended: 16 goroutines that keep one each would keep 8 MB.
const (
	payloadSize    = 512 << 10
	payloadsAtOnce = 16
	payloadsLeft   = 3 << 20
)

// text is a JSON string of n bytes.
func text(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

// liveHeap returns the bytes that are reachable.
func liveHeap() int64 {
	var m runtime.MemStats
	for range 3 { // pools give up what they have in the second collection; finalizers run between two
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A payloads is a server with workers of each kind, and a receiver of webhooks.
type payloads struct {
	client
	hook string
}

// large is the worker of the tests. An input that is an object says what it does.
func large(ctx context.Context, t *serverless.Task) ([]byte, error) {
	var do struct {
		Fail  bool
		Wait  bool
		Parts int
	}
	_ = json.Unmarshal(t.Input, &do)
	for range do.Parts {
		if err := t.Emit(ctx, []byte(text(payloadSize/4))); err != nil {
			return nil, err
		}
	}
	switch {
	case do.Wait:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case do.Fail:
		return nil, &serverless.Failure{Output: bytes.Clone(t.Input), NoRetry: true, Text: "no"}
	}
	return bytes.Clone(t.Input), nil
}

func newPayloads(t *testing.T, stores server.Stores) *payloads {
	t.Helper()
	sender, err := webhook.New(&webhook.Options{AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	web := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	}
	limits := budget.Default()
	limits.InputBytes, limits.OutputBytes = 4*payloadSize, 4*payloadSize // so that most wait for room
	limits.RequestBytes, limits.ResponseBytes = 4*payloadSize, 4*payloadSize
	o := &server.Options{
		Stores: stores, Catalog: catalog.Local(2, 2), Budgets: budget.NewSet(budget.Users{Limits: limits}),
		Workers: []server.Worker{
			{Endpoint: "here", Worker: serverless.WorkerFunc(large), Options: serverless.ServeOptions{Concurrency: payloadsAtOnce}},
			{Endpoint: "web", Handler: http.HandlerFunc(web)},
		},
	}
	o.API.Auth, o.API.Quotas = keys(t), ratelimit.NewWindows(ratelimit.Quotas{Minute: 1 << 20, Hour: 1 << 20, Day: 1 << 20})
	if c, ok := stores.Jobs.(budget.Counter); ok {
		o.Stores.Counters = []budget.Counter{c}
	}
	o.Jobs.Sender = sender
	s, err := server.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	ctx, end := context.WithCancel(t.Context())
	ended := later(func() error { return s.Run(ctx, server.On(l, s.Handler())) })
	p := &payloads{client: client{t, "http://" + l.Addr().String()}}
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	p.hook = hook.URL
	if err := s.Services().Jobs.EnsureEndpoint(t.Context(), "there"); err != nil {
		t.Fatal(err)
	}
	away := later(func() error {
		return worker.Run(ctx, serverless.WorkerFunc(large), &worker.Options{
			URL: p.url + "/v2", Endpoint: "there", Key: testKey, ID: "w", Concurrency: payloadsAtOnce, Ping: 50 * time.Millisecond,
		})
	})
	t.Cleanup(func() {
		end()
		hook.Close()
		if err := errors.Join(<-ended, <-away); err != nil {
			t.Error(err)
		}
	})
	return p
}

// each sends a body so many times at once, and checks the statuses of the answers.
func (p *payloads) each(method, path string, want int, body string) [][]byte {
	p.t.Helper()
	answers := make([][]byte, payloadsAtOnce)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			status, b, err := p.send(p.t.Context(), method, path, body)
			if answers[i] = b; err != nil || status != want {
				p.t.Errorf("%s %s: %d %v, want %d: %.200s", method, path, status, err, want, b)
			}
		})
	}
	all.Wait()
	return answers
}

// input is a body with a large input. more are members before it, rest those after the input.
func input(more, rest string) string {
	return `{"input":{` + more + `"pad":` + text(payloadSize) + `}` + rest + `}`
}

// payloadWays are ways in which payloads come and go, for an endpoint with a worker in this process and one with
// a worker elsewhere.
var payloadWays = []func(p *payloads, endpoint string){
	func(p *payloads, e string) { // jobs that complete
		p.each("POST", "/v2/"+e+"/runsync", 200, input("", ""))
	},
	func(p *payloads, e string) { // jobs that fail
		p.each("POST", "/v2/"+e+"/runsync", 200, input(`"Fail":true,`, ""))
	},
	func(p *payloads, e string) { // jobs whose result is sent
		p.each("POST", "/v2/"+e+"/run", 200, input("", `,"webhook":"`+p.hook+`"`))
	},
	func(p *payloads, e string) { // jobs whose chunks are read
		p.each("POST", "/v2/"+e+"/openai/v1/x", 200, input(`"Parts":2,`, ""))
	},
	func(p *payloads, e string) { // jobs whose chunks nobody reads
		p.each("POST", "/v2/"+e+"/run", 200, input(`"Parts":2,`, ""))
	},
	func(p *payloads, e string) { // jobs that are cancelled while they run
		ids := p.each("POST", "/v2/"+e+"/run", 200, input(`"Wait":true,`, ""))
		p.jobs(e, len(ids), 0)
		for _, b := range ids {
			p.do("POST", "/v2/"+e+"/cancel/"+decode[job](p.t, b).ID, "", 200)
		}
	},
	func(p *payloads, e string) { // bodies that are refused
		p.each("POST", "/v2/"+e+"/run", 400, `{"input":`+text(payloadSize))
	},
}

// TestNothingThatIsDoneKeepsItsPayload is about all that works for many jobs and requests one after another, such
// as goroutines, buffers, queues and timers. None of it may keep the last payload, because nothing counts it then:
// the budgets of its user are free again, and the memory is not.
func TestNothingThatIsDoneKeepsItsPayload(t *testing.T) {
	for name, stores := range map[string]func(*testing.T) server.Stores{
		"Memory": memoryStores,
		"Disk":   func(t *testing.T) server.Stores { return diskStores(t, t.TempDir()) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "Disk" {
				suite.SkipUnlessLong(t)
			}
			p := newPayloads(t, stores(t))
			p.do("POST", "/v2/here/runsync", `{"input":{}}`, 200)
			p.do("POST", "/v2/there/runsync", `{"input":{}}`, 200)
			before := liveHeap()
			for _, way := range payloadWays {
				for _, e := range []string{"here", "there"} {
					way(p, e)
					p.jobs(e, 0, 0)
				}
			}
			p.each("POST", "/lb/web/x", 200, text(payloadSize))
			p.do("DELETE", "/v2/admin/users/ann/jobs", "", 200)
			p.eventually("the user holds nothing", p.holdsNothing)
			http.DefaultClient.CloseIdleConnections()
			after := liveHeap()
			// The disk store gives up the files of deleted payloads, and what it has cached of them, after some seconds.
			for limit := time.Now().Add(suite.Within(6 * time.Second)); after-before > payloadsLeft && time.Now().Before(limit); after = liveHeap() {
				time.Sleep(time.Second)
			}
			t.Logf("%d KB before, %d KB more after", before>>10, (after-before)>>10)
			if more := after - before; more > payloadsLeft {
				t.Errorf("%d MB are still reachable when all jobs and requests have ended and are deleted, want at most %d. They were made by\n%s",
					more>>20, payloadsLeft>>20, largest(3))
			}
		})
	}
}

// largest says which calls have made most of what is reachable.
func largest(n int) string {
	list := make([]runtime.MemProfileRecord, 10_000)
	count, _ := runtime.MemProfile(list, false)
	list = list[:min(count, len(list))]
	slices.SortFunc(list, func(a, b runtime.MemProfileRecord) int { return cmp.Compare(b.InUseBytes(), a.InUseBytes()) })
	var b strings.Builder
	for _, r := range list[:min(n, len(list))] {
		fmt.Fprintf(&b, "%d MB:", r.InUseBytes()>>20)
		for frames := runtime.CallersFrames(r.Stack()); ; {
			f, more := frames.Next()
			fmt.Fprintf(&b, " %s:%d", f.Function, f.Line)
			if !more {
				break
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// holdsNothing reports whether all budgets of the user are free, but for the requests of the worker elsewhere.
func (p *payloads) holdsNothing() bool {
	type limit struct {
		Name string
		Used int64
	}
	users := decode[struct{ Users []struct{ Limits []limit } }](p.t, p.do("GET", "/v2/account/limits", "", 200)).Users
	return !slices.ContainsFunc(users[0].Limits, func(l limit) bool { return l.Used > 0 && l.Name != "connections" })
}
