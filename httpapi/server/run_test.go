package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// here is this machine as a host.
func here(rt pods.Runtime) []pods.Host {
	return []pods.Host{{
		ID: "here", DataCenter: catalog.LocalDataCenter, Runtime: rt,
		VCPU: map[string]int{catalog.HostFlavor: 16}, Memory: 16,
	}}
}

// images are programs of this machine.
func images() map[string]process.Image {
	return map[string]process.Image{
		"test/worker":   {Users: []string{"*"}, Command: []string{workerProgram}},
		"test/talks":    {Users: []string{"*"}, Command: []string{"sh", "-c", "echo hello; exec sleep 1000"}},
		"test/stubborn": {Users: []string{"*"}, Command: []string{"sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"}},
	}
}

// declare creates an endpoint whose workers are processes or containers of an image.
func declare(t *testing.T, s *server.Server, id, image string) {
	t.Helper()
	most, idle := 1, time.Minute
	_, err := s.Services().Jobs.DeclareEndpoint(t.Context(), id, endpoints.CreateRequest{
		Type: endpoints.QueueType,
		Settings: endpoints.Settings{
			Name: &id, Image: &image, CPU: []endpoints.CPUSettings{{ID: catalog.HostFlavor, VCPU: 2}},
			Workers: endpoints.WorkerSettings{Max: &most, Idle: &idle},
			Scaling: &endpoints.Scaling{Type: endpoints.QueueDelay, Delay: endpoints.MinDelay},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sleeps is a worker of this process: {"ms":n} takes n milliseconds.
func sleeps(ctx context.Context, t *serverless.Task) ([]byte, error) {
	in := struct{ MS int }{}
	if err := json.Unmarshal(t.Input, &in); err != nil {
		return nil, err
	}
	select {
	case <-time.After(time.Duration(in.MS) * time.Millisecond):
		return []byte(`"slept"`), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// sleeper is the endpoint sleep.
var sleeper = []server.Worker{{Endpoint: "sleep", Worker: serverless.WorkerFunc(sleeps)}}

// A shape is a way in which a program serves the handlers of a Server.
type shape struct {
	name string
	run  func(ctx context.Context, s *server.Server, l net.Listener) end
}

// An end is the result of Run and its time.
type end struct {
	err error
	at  time.Time
}

var shapes = []shape{
	{"ListenerOfRun", func(ctx context.Context, s *server.Server, l net.Listener) end {
		return end{s.Run(ctx, server.On(l, mux(s))), time.Now()}
	}},
	{"ServerOfTheProgram", func(ctx context.Context, s *server.Server, l net.Listener) end {
		own := &http.Server{Handler: mux(s), ReadHeaderTimeout: time.Minute}
		served := later(func() error { return own.Serve(l) })
		e := end{s.Run(ctx), time.Now()}
		e.err = errors.Join(e.err, own.Shutdown(context.WithoutCancel(ctx)))
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			e.err = errors.Join(e.err, err)
		}
		return e
	}},
}

// mux is the handler of a program with its own route.
func mux(s *server.Server) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /own", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	m.Handle("/", s.Handler())
	return m
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// openProcesses returns a runtime of the images in a directory.
func openProcesses(t *testing.T, dir string, log *record) *process.Runtime {
	t.Helper()
	rt, err := process.Open(dir, &process.Options{Images: images(), Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func TestTheEndAnswersWhoeverWaitsAndLosesNothing(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes {
		for _, store := range []string{"Memory", "Disk"} {
			t.Run(shape.name+store, func(t *testing.T) {
				t.Parallel()
				answersAllAtTheEnd(t, shape, store == "Disk")
			})
		}
	}
}

func answersAllAtTheEnd(t *testing.T, shape shape, keeps bool) {
	t.Helper()
	log, dir := &record{}, t.TempDir()
	stores := memoryStores(t)
	if keeps {
		stores = diskStores(t, filepath.Join(dir, "store"))
	}
	rt := openProcesses(t, filepath.Join(dir, "process"), log)
	l := listen(t, "127.0.0.1:0")
	s, err := server.New(t.Context(), &server.Options{
		Stores: stores, Catalog: catalog.Local(16, 16), Hosts: here(rt), Runtimes: []server.Closer{rt},
		API:    httpapi.Options{Auth: keys(t)},
		Jobs:   serverless.Options{WorkerURL: func() string { return "http://" + l.Addr().String() + "/v2" }},
		Logger: log.logger(), Workers: sleeper,
	})
	if err != nil {
		t.Fatal(err)
	}
	declare(t, s, "count", "test/worker")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := later(func() end { return shape.run(ctx, s, l) })

	c := client{t, "http://" + l.Addr().String()}
	pod := c.create("test/talks")
	followed := c.follow(pod, `"line":"hello"`)
	c.eventually("the pod is RUNNING", func() bool {
		return strings.Contains(string(c.do("GET", "/v2/pods/"+pod, "", http.StatusOK)), `"RUNNING"`)
	})
	streamed := c.stream("count", `{"chunks":10,"pause_ms":100}`)
	c.jobs("count", 1, 0)
	slept := c.runsync("sleep", `{"ms":3000}`)
	c.jobs("sleep", 1, 0)
	waits := c.runsync("sleep", `{"ms":1}`) // the worker runs one job at a time: this one stays in the queue
	c.jobs("sleep", 1, 1)
	c.do("GET", "/own", "", http.StatusTeapot)
	c.do("GET", "/readyz", "", http.StatusOK)

	stop()
	c.eventually("the server is not ready any more", func() bool {
		status, _, err := c.send(t.Context(), "GET", "/readyz", "")
		return err == nil && status == http.StatusServiceUnavailable
	})
	c.do("GET", "/healthz", "", http.StatusOK)
	c.do("POST", "/v2/sleep/run", `{"input":{}}`, http.StatusServiceUnavailable)
	c.do("GET", "/v2/pods/"+pod, "", http.StatusOK)

	if got, want := within(t, "the answer of runsync", slept), `"output":"slept","status":"COMPLETED"`; !strings.Contains(got, want) {
		t.Errorf("runsync answers %s, want %s", got, want)
	}
	if got, want := within(t, "the end of the stream", streamed), "COMPLETED"; strings.Count(got, "chunk") != 10 || !strings.HasSuffix(got, want) {
		t.Errorf("the stream is %s, want ten chunks and %s", got, want)
	}
	last := time.Now()
	if got, want := within(t, "the end of the log", followed), "server stopped"; !strings.Contains(got, want) || strings.Contains(got, "cut off") {
		t.Errorf("the log ends without %q, or is cut off:\n%s", want, got)
	}
	if got, want := within(t, "the answer for a job in the queue", waits), `"status":"IN_QUEUE"`; !strings.Contains(got, want) {
		t.Errorf("a runsync whose job has not begun answers %s, want %s", got, want)
	}
	e := within(t, "the end", ended)
	if e.err != nil {
		t.Errorf("Run = %v, want nil", e.err)
	}
	wantSoon(t, "the end after the last job", e.at.Sub(last))
	log.wantNoTrouble(t)
	if keeps {
		wantAllKept(t, filepath.Join(dir, "store"), pod)
	}
}

// wantAllKept checks the store after the server has stopped.
func wantAllKept(t *testing.T, dir, pod string) {
	t.Helper()
	st := diskStores(t, dir)
	defer st.Close()
	p, err := st.Pods.Get(t.Context(), pod)
	if err != nil || p.Seen.Status != pods.Exited || p.Seen.Reason != "server stopped" {
		t.Errorf("the pod is kept as %+v, %v, want EXITED with its server", p.Seen, err)
	}
	for endpoint, want := range map[string]serverless.Stats{"sleep": {Completed: 1, Queued: 1}, "count": {Completed: 1}} {
		got, err := st.Jobs.Stats(t.Context(), serverless.At(time.Now()), endpoint, nil)
		if err != nil || got.Completed != want.Completed || got.Queued != want.Queued || got.Running != 0 {
			t.Errorf("jobs of %q are kept as %+v, %v, want %d completed and %d queued", endpoint, got, err, want.Completed, want.Queued)
		}
	}
}
