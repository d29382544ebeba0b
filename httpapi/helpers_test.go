package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// Keys of these tests. Keys with "free" in the name are exempt from quotas and rates.
const (
	aliceKey     = "key-of-alice"
	bobKey       = "key-of-bob"
	aliceFree    = "free-key-of-alice"
	bobFree      = "free-key-of-bob"
	adminFree    = "free-key-of-admin"
	operatorFree = "free-key-of-an-operator"
	oldKey       = "key-that-has-expired"
)

func keys(now func() time.Time) []httpapi.Key {
	all := []string{"*"}
	return []httpapi.Key{
		{Secret: aliceKey, User: "alice", Scopes: []string{"pods:write", "registries:write", "secrets:write", "endpoint:*:run"}},
		{Secret: bobKey, User: "bob", Scopes: []string{"pods:write", "registries:write", "secrets:write", "endpoint:*:run"}},
		{Secret: aliceFree, User: "alice", Scopes: []string{"pods:write", "registries:write", "secrets:write", "endpoint:*:run"}, Exempt: true},
		{Secret: bobFree, User: "bob", Scopes: []string{"pods:write", "registries:write", "secrets:write", "endpoint:*:run"}, Exempt: true},
		{Secret: adminFree, User: "admin", Scopes: all, Exempt: true},
		{Secret: operatorFree, User: "root", Scopes: []string{"*", "operator"}, Exempt: true},
		{Secret: oldKey, User: "alice", Scopes: all, Expires: now()},
	}
}

// A testAPI has services on memory stores, behind the handler of the whole interface.
type testAPI struct {
	t          testing.TB
	handler    http.Handler
	services   httpapi.Services
	options    httpapi.Options
	pods       *pods.Service
	jobs       *serverless.Service
	budgets    *budget.Set      // of all stores; none at first
	transcript *strings.Builder // gets every exchange; may be nil
	recording  sync.Mutex       // of transcript
}

// newTestAPI returns a testAPI. Alice has the network volumes vol1 and vol2 in US-KS-2. The
// endpoint echo has a worker for four jobs at once that does what the input says. The
// endpoint idle has no worker. set may change the options of the handler.
func newTestAPI(t testing.TB, set func(*httpapi.Options)) *testAPI {
	t.Helper()
	w := &testAPI{t: t}
	podStore, regStore, volStore, tmplStore, keyStore := memory.NewPods(), memory.NewRegistries(), aliceVolumes(t), memory.NewTemplates(), memory.NewAccounts()
	sshStore, queue, eps := memory.NewSSHKeys(), memory.NewJobs(), newEndpoints(t)
	w.budgets = budget.NewSet(budget.Users{})
	regs := registries.New(regStore, &registries.Options{
		Rand: rand.NewChaCha8([32]byte{1}), InUse: pods.References{Pods: podStore},
	})
	cat := catalog.Sample()
	bills := billing.New(memory.NewBilling(), nil)
	vols := volumes.New(volStore, cat, &volumes.Options{Rand: rand.NewChaCha8([32]byte{5}), InUse: pods.References{Pods: podStore}, Meter: bills})
	tmpl := templates.New(tmplStore, &templates.Options{
		Rand: rand.NewChaCha8([32]byte{6}), InUse: pods.References{Pods: podStore}, Secrets: regs,
	})
	account := accounts.New(keyStore, &accounts.Options{Rand: rand.NewChaCha8([32]byte{7})})
	keyring := sshkeys.New(sshStore)
	secretStore := memory.NewSecrets()
	values := secrets.New(secretStore, nil)
	rt := memory.NewRuntime(&memory.RuntimeOptions{Seed: 1, Scripts: containerScripts()})
	p, err := pods.New(podStore, cat, pods.SimulatedHosts(cat, rt), &pods.Options{
		Rand: rand.NewChaCha8([32]byte{2}), Secrets: regs, EnvSecrets: values, Volumes: vols, Templates: tmpl, Keys: keyring, Meter: bills,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.pods = p
	known, err := httpapi.NewKeys(keys(time.Now), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	auth := httpapi.AnyOf(known, httpapi.StoredKeys(account))
	w.jobs = serverless.New(queue, eps, withSchedules(&serverless.Options{Rand: rand.NewChaCha8([32]byte{3})}, auth))
	w.services = httpapi.Services{Pods: p, Registries: regs, Jobs: w.jobs, Volumes: vols, Templates: tmpl, SSHKeys: keyring, Secrets: values, Billing: bills, Accounts: account}
	w.services.Budgets = budget.NewLedger(w.budgets, podStore, regStore, volStore, tmplStore, keyStore, sshStore, secretStore, queue, eps)
	w.options = httpapi.Options{Auth: auth}
	if set != nil {
		set(&w.options)
	}
	w.handler = httpapi.New(w.services, &w.options)
	run(t, p.Run)
	run(t, w.jobs.Run)
	run(t, func(ctx context.Context) error {
		return w.jobs.Serve(ctx, "echo", serverless.WorkerFunc(work), &serverless.ServeOptions{ID: "worker-1", Concurrency: 4, Drain: time.Millisecond})
	})
	return w
}

// withSchedules adds batches, and schedules whose owners need a key of auth.
func withSchedules(o *serverless.Options, auth httpapi.Authenticator) *serverless.Options {
	o.Batches = memory.NewBatches()
	o.Schedules, o.DecodeRun, o.JobLogs = memory.NewSchedules(), httpapi.DecodeRun, memory.NewJobLogs()
	o.MayRun = func(ctx context.Context, user, endpoint string) (bool, error) {
		return httpapi.MayRun(ctx, auth, user, endpoint)
	}
	return o
}

// bubble runs f with a testAPI in a synctest bubble.
func bubble(t *testing.T, f func(w *testAPI)) {
	t.Helper()
	bubbleWith(t, nil, f)
}

func bubbleWith(t *testing.T, set func(*httpapi.Options), f func(w *testAPI)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newTestAPI(t, set)
		synctest.Wait()
		f(w)
	})
}

// run runs f until the test ends.
func run(t testing.TB, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func newEndpoints(t testing.TB) *memory.Endpoints {
	t.Helper()
	eps := memory.NewEndpoints()
	for _, id := range []string{"echo", "idle"} {
		if err := eps.Create(t.Context(), &serverless.Endpoint{ID: id, Name: id, Created: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	return eps
}

// containerScripts are scripts of containers that write, fail and start slowly.
func containerScripts() []memory.Script {
	// It runs on for a moment after a stop, so that the answer of the stop shows it as it was.
	slow := memory.DefaultScript()
	slow.Image, slow.StopAfter = "org/train:*", 100*time.Millisecond
	return []memory.Script{
		slow,
		{Image: "talks", Stages: []memory.Stage{
			{Phase: pods.PhasePulling},
			{Phase: pods.PhaseStarting, After: time.Second, Lines: []string{"one", "two", "three"}},
			{Phase: pods.PhaseHealthy, After: time.Second, Lines: []string{"a \"quoted\" line\nin two"}},
			{Phase: pods.PhaseHealthy, After: time.Minute, Lines: []string{"later"}},
		}},
		{Image: "fails", Stages: []memory.Stage{
			{Phase: pods.PhasePulling}, {Phase: pods.PhaseFailed, After: time.Second, Reason: "no such image"},
		}},
		{Image: "ends", Stages: []memory.Stage{
			{Phase: pods.PhasePulling}, {Phase: pods.PhaseHealthy, After: time.Second}, {Phase: pods.PhaseExited, After: time.Second},
		}},
	}
}

// aliceVolumes returns two volumes in US-KS-2.
func aliceVolumes(t testing.TB) *memory.Records[volumes.Volume] {
	t.Helper()
	store := memory.NewVolumes()
	for _, id := range []string{"vol1", "vol2"} {
		v := volumes.Volume{ID: id, Owner: "alice", Name: id, Size: 100, DataCenter: "US-KS-2", Type: catalog.Standard, Created: time.Now()}
		if err := store.Create(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// work does what the input says. do is echo, fail, stream, write or progress, after ms
// milliseconds. It writes three strings of size bytes.
func work(ctx context.Context, k *serverless.Task) ([]byte, error) {
	var in struct {
		Do   string `json:"do"`
		MS   int    `json:"ms"`
		Size int    `json:"size"`
	}
	if err := json.Unmarshal(k.Input, &in); err != nil {
		return nil, err
	}
	if in.Do == "progress" {
		if err := k.Progress(ctx, []byte(`"half"`)); err != nil {
			return nil, err
		}
	}
	if in.MS > 0 {
		select {
		case <-time.After(time.Duration(in.MS) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch in.Do {
	case "fail":
		return nil, &serverless.Failure{Text: "it cannot be done", Output: []byte(`{"tried":true}`)}
	case "stream":
		for i := range 3 {
			if err := k.Emit(ctx, fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
				return nil, err
			}
		}
		return []byte(`[]`), nil
	case "write":
		for i := range 3 {
			text := strings.Repeat(string(rune('a'+i)), in.Size)
			if err := k.Emit(ctx, []byte(`"`+text+`"`)); err != nil {
				return nil, err
			}
		}
	}
	return k.Input, nil
}

// advance lets time pass in a bubble and waits for everything that is due by then.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// An answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// call makes a request without a network. It has alice's key, unless headers ("Name:
// value") say otherwise; "Authorization:" means no key.
func (w *testAPI) call(method, target, body string, headers ...string) answer {
	w.t.Helper()
	if path, _, _ := strings.Cut(target, "?"); method == "GET" && strings.HasSuffix(path, "/events") {
		return w.listen(time.Millisecond, target, headers...) // it does not end by itself
	}
	res, err := handlerTransport{w.handler}.RoundTrip(w.request(w.t.Context(), method, target, body, headers...))
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, target, err)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatalf("%s %s: read the answer: %v", method, target, err)
	}
	a := answer{res.StatusCode, res.Header, string(b)}
	w.record(method, target, body, headers, a)
	checkOpenAPI(w.t, method, target, a)
	checkDescribed(w.t, method, target, body, a)
	return a
}

// want makes a call and checks its status.
func (w *testAPI) want(status int, method, target, body string, headers ...string) answer {
	w.t.Helper()
	a := w.call(method, target, body, headers...)
	if a.status != status {
		w.t.Fatalf("%s %s = %d %s, want %d", method, target, a.status, a.body, status)
	}
	return a
}

func (w *testAPI) request(ctx context.Context, method, target, body string, headers ...string) *http.Request {
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://podyard.test"+target, rd)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+aliceKey)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		if value = strings.TrimSpace(value); value == "" {
			r.Header.Del(name)
			continue
		}
		r.Header.Set(name, value)
	}
	return r
}

// field returns a member of a JSON answer, or "" if it is not a string.
func (a answer) field(name string) string {
	var m map[string]any
	_ = json.Unmarshal([]byte(a.body), &m)
	s, _ := m[name].(string)
	return s
}

// listen reads an event stream for d and then closes it.
func (w *testAPI) listen(d time.Duration, target string, headers ...string) answer {
	w.t.Helper()
	res, err := handlerTransport{w.handler}.RoundTrip(w.request(w.t.Context(), "GET", target, "", headers...))
	if err != nil {
		w.t.Fatalf("GET %s: %v", target, err)
	}
	var text strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&text, res.Body)
	}()
	select {
	case <-time.After(d):
	case <-done:
	}
	_ = res.Body.Close()
	<-done
	a := answer{res.StatusCode, res.Header, text.String()}
	w.record("GET", target, "", headers, a)
	checkOpenAPI(w.t, "GET", target, a)
	checkDescribed(w.t, "GET", target, "", a)
	return a
}

// handlerTransport is an http.RoundTripper that calls a handler. It uses no sockets, so
// that the time of a bubble can pass.
type handlerTransport struct{ handler http.Handler }

func (d handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in := r.Clone(ctx)
	in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), "192.0.2.7:4711"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	from, to := io.Pipe()
	w := &pipeResponse{header: http.Header{}, body: to, quiet: r.Method == http.MethodHead, ready: make(chan struct{})}
	go func() {
		defer to.Close()
		d.handler.ServeHTTP(w, in)
		w.WriteHeader(http.StatusOK)
	}()
	<-w.ready
	return &http.Response{
		StatusCode: w.status, Header: w.sent, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: &cancelOnClose{from, cancel},
	}, nil
}

// A pipeResponse is an http.ResponseWriter that sends its header at the first write, as a
// connection does.
type pipeResponse struct {
	header http.Header
	sent   http.Header
	body   *io.PipeWriter
	quiet  bool // HEAD: no body
	once   sync.Once
	status int
	ready  chan struct{}
}

func (w *pipeResponse) Header() http.Header { return w.header }

func (w *pipeResponse) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.ready)
	})
}

func (w *pipeResponse) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.quiet {
		return len(b), nil
	}
	return w.body.Write(b)
}

func (*pipeResponse) Flush() {}

// cancelOnClose cancels the request's context when the client closes the body.
type cancelOnClose struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (h *cancelOnClose) Close() error {
	h.cancel()
	return h.PipeReader.Close()
}

func (h *cancelOnClose) Read(b []byte) (int, error) {
	n, err := h.PipeReader.Read(b)
	if err != nil {
		h.cancel()
	}
	return n, err
}

// quotas returns a setter of small quotas.
func quotas(minute, hour, day int) func(*httpapi.Options) {
	return func(o *httpapi.Options) {
		o.Quotas = ratelimit.NewWindows(ratelimit.Quotas{Minute: minute, Hour: hour, Day: day})
	}
}
