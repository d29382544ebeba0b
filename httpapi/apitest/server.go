package apitest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/serverless"
)

// A Server is a double.Server that runs as long as its test. Errors of its methods end the
// test.
type Server struct {
	Double *double.Server
	Key    string // with every scope

	httpapi.Services // of the server, until a Reset

	t   testing.TB
	ctx context.Context //nolint:containedctx // the test's, without its end: cleanups move time, too

	once sync.Once
	url  string
	http *http.Server
}

// Start returns a server that runs until the test has ended.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartWith(t, nil)
}

// StartWith is Start with options, which may be nil.
func StartWith(t testing.TB, o *double.Options) *Server {
	t.Helper()
	d, err := double.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Double: d, Key: d.Key(), Services: d.Services(), t: t, ctx: context.WithoutCancel(t.Context())}
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("apitest: seed %d", d.Seed())
		}
		if s.http != nil {
			_ = s.http.Close()
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("apitest: %v", err)
		}
	})
	<-d.Ready()
	return s
}

// URL returns the URL of a loopback listener, which it opens at the first call. A
// testing/synctest bubble has no sockets: use Client.
func (s *Server) URL() string {
	s.t.Helper()
	s.once.Do(func() {
		l, err := (&net.ListenConfig{}).Listen(s.ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			s.t.Fatal(err)
		}
		s.url = "http://" + l.Addr().String()
		s.http = &http.Server{Handler: s.Double.Handler(), ReadHeaderTimeout: 10 * time.Second}
		go func() { _ = s.http.Serve(l) }()
	})
	return s.url
}

// Client returns a client that makes requests in the process, for any host, and adds Key to
// requests without a key. It has no timeout.
func (s *Server) Client() *http.Client { return s.Double.Client() }

// Env returns the variables that clients of the hosted service read.
func (s *Server) Env() map[string]string { s.t.Helper(); return s.Double.Env(s.URL()) }

// Environ returns Env as lines for a process.
func (s *Server) Environ() []string { s.t.Helper(); return double.Environ(s.Env()) }

// Setenv sets Env for the test, as testing.T.Setenv does: not in a parallel one.
func (s *Server) Setenv() {
	s.t.Helper()
	t, ok := s.t.(interface{ Setenv(key, value string) })
	if !ok {
		s.t.Fatal("apitest: this kind of test has no environment")
	}
	for k, v := range s.Env() {
		t.Setenv(k, v)
	}
}

// Handle makes an endpoint whose jobs a function runs.
func (s *Server) Handle(endpoint string, w func(context.Context, *serverless.Task) ([]byte, error)) {
	s.t.Helper()
	s.HandleWorker(endpoint, serverless.WorkerFunc(w))
}

// HandleWorker is Handle for a Worker.
func (s *Server) HandleWorker(endpoint string, w serverless.Worker) {
	s.t.Helper()
	s.must(s.Double.Handle(s.ctx, endpoint, w))
}

// HandleHTTP makes a handler the worker of a load-balancing endpoint, at /lb/{endpoint}/ of URL.
func (s *Server) HandleHTTP(endpoint string, h http.Handler) {
	s.t.Helper()
	s.must(s.Double.HandleHTTP(s.ctx, endpoint, h))
}

// Endpoint returns the script of an endpoint, and makes the endpoint if there is none.
func (s *Server) Endpoint(id string) *double.Script {
	s.t.Helper()
	script, err := s.Double.Endpoint(s.ctx, id)
	s.must(err)
	return script
}

// Image makes a function run the jobs of every endpoint whose image has this name, in workers
// that the scaler starts and stops: see double.Server.Image. o may be nil.
func (s *Server) Image(name string, w func(context.Context, *serverless.Task) ([]byte, error), o *double.ImageOptions) {
	s.t.Helper()
	s.must(s.Double.Image(name, serverless.WorkerFunc(w), o))
}

// ImageHTTP makes a handler answer the requests of load-balancing endpoints whose image has this name,
// in workers that the scaler starts and stops: see double.Server.ImageHTTP. o may be nil.
func (s *Server) ImageHTTP(name string, h http.Handler, o *double.ImageOptions) {
	s.t.Helper()
	s.must(s.Double.ImageHTTP(name, h, o))
}

// ImageAnswers has the workers of an image answer requests of load-balancing endpoints with what is given:
// see double.Server.ImageAnswers. o may be nil.
func (s *Server) ImageAnswers(name string, list []double.HTTPAnswer, o *double.ImageOptions) {
	s.t.Helper()
	s.must(s.Double.ImageAnswers(name, list, o))
}

// ImageForward has the workers of an image pass requests of load-balancing endpoints on to a server at a
// URL: see double.Server.ImageForward. o may be nil.
func (s *Server) ImageForward(name, to string, o *double.ImageOptions) {
	s.t.Helper()
	s.must(s.Double.ImageForward(name, to, o))
}

// ImageScript returns the script of the workers of an image, and makes it if there is none.
func (s *Server) ImageScript(name string, o *double.ImageOptions) *double.Script {
	s.t.Helper()
	script, err := s.Double.ImageScript(name, o)
	s.must(err)
	return script
}

// Declare makes an endpoint with the given id: see double.Server.Declare.
func (s *Server) Declare(id string, settings any) {
	s.t.Helper()
	s.must(s.Double.Declare(s.ctx, id, settings))
}

// Queue makes an endpoint without a worker.
func (s *Server) Queue(id string) { s.t.Helper(); s.must(s.Double.Queue(s.ctx, id)) }

// Now returns the time of the clock.
func (s *Server) Now() time.Time { return s.Double.Now() }

// Advance moves the clock by d.
func (s *Server) Advance(d time.Duration) { s.t.Helper(); s.must(s.Double.Advance(s.ctx, d)) }

// SetTime moves the clock to t.
func (s *Server) SetTime(t time.Time) { s.t.Helper(); s.must(s.Double.SetTime(s.ctx, t)) }

// RunUntilIdle moves the clock until nothing is in progress, and returns how far it has moved.
func (s *Server) RunUntilIdle() time.Duration {
	s.t.Helper()
	d, err := s.Double.RunUntilIdle(s.ctx)
	s.must(err)
	return d
}

// Sleep waits by the clock. Workers of Handle must wait with it.
func (s *Server) Sleep(ctx context.Context, d time.Duration) error { return s.Double.Sleep(ctx, d) }

// Fault sets a fault and returns a function that removes it.
func (s *Server) Fault(f double.Fault) (clearFault func()) {
	s.t.Helper()
	id, err := s.Double.Fault(f)
	s.must(err)
	return func() { s.Double.ClearFault(id) }
}

// SetSeed makes later ids and probabilities come from another seed.
func (s *Server) SetSeed(seed uint64) { s.t.Helper(); s.must(s.Double.SetSeed(seed)) }

// Reset restores the state at the start, with another seed.
func (s *Server) Reset(seed uint64) {
	s.t.Helper()
	s.must(s.Double.Reset(s.ctx, seed))
	s.Services = s.Double.Services()
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
