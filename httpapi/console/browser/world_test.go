package browser

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/httpapi/console"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// Keys of these tests. No key may be found anywhere but in the cookie, where it is encrypted.
const (
	adminKey  = "canary-key-of-the-admin"
	readerKey = "canary-key-of-a-reader"
)

// A world is a server with a console, on a listener of its own.
type world struct {
	t    *testing.T
	url  string // of the console
	base string // scheme and address
	addr string
	log  *syncBuffer
	srv  *server.Server
	rt   *memory.Runtime
	jobs queue.JobQueue
	http *http.Client
	stop func()
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func stores() server.Stores {
	return server.Stores{
		Pods: memory.NewPods(), Registries: memory.NewRegistries(), Volumes: memory.NewVolumes(), Templates: memory.NewTemplates(),
		SSHKeys: memory.NewSSHKeys(), Secrets: memory.NewSecrets(), Accounts: memory.NewAccounts(), Billing: memory.NewBilling(), Endpoints: memory.NewEndpoints(), Jobs: memory.NewJobs(), Schedules: memory.NewSchedules(), Batches: memory.NewBatches(),
	}
}

// A setup is what a world is made with.
type setup struct {
	path   string // of the console
	addr   string // to listen on
	stores server.Stores
	secret []byte
	clock  pods.Clock
	tls    bool // HTTPS, and so HTTP/2
	noHook bool // webhooks are not sent: the test does
}

// start starts a server, until the test ends or stop is called.
func start(t *testing.T, x setup) *world {
	t.Helper()
	if x.path == "" {
		x.path = "/console/"
	}
	if x.addr == "" {
		x.addr = "127.0.0.1:0"
	}
	if x.stores.Jobs == nil {
		x.stores = stores()
	}
	w := &world{t: t, log: new(syncBuffer)}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	cat := catalog.Sample()
	all := []string{"*", "operator"}
	auth, err := httpapi.NewKeys([]httpapi.Key{
		{Secret: adminKey, User: "admin", Scopes: all, Exempt: true},
		{Secret: readerKey, User: "reader", Scopes: []string{"endpoint:echo:read", "pods:read"}},
	}, time.Now)
	check(t, err)
	var sender serverless.Sender
	if !x.noHook {
		sender, err = webhook.New(&webhook.Options{AllowPrivate: true})
		check(t, err)
	}
	rt := memory.NewRuntime(&memory.RuntimeOptions{Seed: 1, Scripts: []memory.Script{
		{Image: "acme/missing:*", Stages: []memory.Stage{{Phase: pods.PhasePulling}, {Phase: pods.PhaseFailed, After: 50 * time.Millisecond, Reason: "pull image acme/missing:1: it does not exist, or the credential may not read it"}}},
		{Image: "acme/ends:*", Stages: []memory.Stage{
			{Phase: pods.PhasePulling}, {Phase: pods.PhaseStarting, After: 50 * time.Millisecond},
			{Phase: pods.PhaseExited, After: 200 * time.Millisecond, ExitCode: 1},
		}},
	}})
	o := &server.Options{
		Stores: x.stores, Catalog: cat, Hosts: pods.SimulatedHosts(cat, shells{rt}), Logger: log, Name: "server", Drain: time.Millisecond,
		API:     httpapi.Options{Auth: auth, Audit: audit.NewMemory(1000)},
		Workers: []server.Worker{{Endpoint: "echo", Worker: serverless.WorkerFunc(work), Options: serverless.ServeOptions{ID: "local-echo", Concurrency: 4}}},
		Pods:    pods.Options{WaitForCapacity: true},
		Jobs:    serverless.Options{Sender: sender, WorkerURL: func() string { return "http://" + x.addr + "/v2" }}, // where workers of the simulation would come
	}
	w.rt, w.jobs, w.http = rt, x.stores.Jobs, http.DefaultClient
	w.srv, err = server.New(t.Context(), o)
	check(t, err)
	_ = w.srv.Services().Jobs.EnsureEndpoint(t.Context(), "idle")
	w.listen(x, log)
	return w
}

func (w *world) listen(x setup, log *slog.Logger) {
	api := w.srv.API()
	c, err := console.New(w.srv.Handler(), &console.Options{Auth: api.Auth, Jobs: w.srv.Services().Jobs, Incidents: w.srv.Incidents, Path: x.path, Secret: x.secret, Logger: log, Source: api.Source, Clock: x.clock})
	check(w.t, err)
	mux := http.NewServeMux()
	mux.Handle("/", w.srv.Handler())
	mux.Handle(x.path, c)
	var l net.Listener
	for range 50 { // the port of a server that has just ended
		if l, err = net.Listen("tcp", x.addr); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	check(w.t, err)
	scheme := "http://"
	w.addr = l.Addr().String()
	if x.tls {
		ts := httptest.NewUnstartedServer(nil)
		ts.StartTLS()
		w.http = ts.Client()
		l = tls.NewListener(l, &tls.Config{Certificates: ts.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}) //nolint:gosec // the versions are Go's
		ts.Close()
		scheme = "https://"
	}
	w.base, w.url = scheme+w.addr, scheme+w.addr+x.path
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.srv.Run(ctx, server.On(l, mux)); err != nil {
			w.t.Errorf("Run = %v", err)
		}
	})
	running.Go(func() { _ = c.Run(ctx) })
	w.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.t.Cleanup(w.stop)
}

// work does what the input says.
func work(ctx context.Context, t *serverless.Task) ([]byte, error) {
	var in struct {
		Sleep  int               `json:"sleep"`
		Fail   string            `json:"fail"`
		Chunks []json.RawMessage `json:"chunks"` // one each 100 ms
	}
	_ = json.Unmarshal(t.Input, &in) // other inputs are echoed
	for _, c := range in.Chunks {
		if err := t.Emit(ctx, c); err != nil {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	select {
	case <-time.After(time.Duration(in.Sleep) * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if in.Fail != "" {
		return nil, errors.New(in.Fail)
	}
	return t.Input, nil
}

// call makes a request to the API as admin.
func (w *world) call(method, path, body string) []byte {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.base+path, strings.NewReader(body))
	check(w.t, err)
	r.Header.Set("Authorization", "Bearer "+adminKey)
	r.Header.Set("Content-Type", "application/json")
	a, err := w.http.Do(r)
	check(w.t, err)
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	check(w.t, err)
	if a.StatusCode >= 300 {
		w.t.Fatalf("%s %s: %d: %s", method, path, a.StatusCode, b)
	}
	return b
}

// submit runs a job and returns its id.
func (w *world) submit(endpoint, body string) string {
	w.t.Helper()
	var j struct{ ID string }
	check(w.t, json.Unmarshal(w.call("POST", "/v2/"+endpoint+"/run", body), &j))
	return j.ID
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// joins asks for a job as a worker of the fleet, and gets none.
func (w *world) joins(endpoint, worker string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"/v2/"+endpoint+"/job-take/"+worker, http.NoBody)
	check(w.t, err)
	r.Header.Set("Authorization", "Bearer "+w.srv.Services().Jobs.WorkerKey(endpoint, serverless.WorkerID(worker)))
	a, err := w.http.Do(r)
	if err == nil { // otherwise it waits for a job, as it should
		w.t.Errorf("job-take of %s: %d", worker, a.StatusCode)
		check(w.t, a.Body.Close())
	}
}

// take takes a job as a worker with any id.
func (w *world) take(endpoint, job, worker string) {
	w.t.Helper()
	got := w.call("GET", "/v2/"+endpoint+"/job-take/"+url.PathEscape(worker), "")
	if !bytes.Contains(got, []byte(job)) {
		w.t.Fatalf("%q has taken %s, want %s", worker, got, job)
	}
}
