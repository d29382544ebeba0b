package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/conns"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/servers"
)

// A Server is all services with their handlers. It is safe for concurrent use.
type Server struct {
	stores   Stores
	runtimes []Closer
	api      httpapi.Options
	clock    pods.Clock
	drain    time.Duration
	wait     time.Duration // Options.DrainWait
	log      *slog.Logger
	services httpapi.Services
	gate     gate
	end      end
	joined   *servers.Server // may be nil
	peers    *peers          // may be nil

	keepBilling time.Duration // negative: for ever

	workers []Worker
	conns   *conns.Limiter // may be nil
	begun   atomic.Bool    // by Run or Close
	leaving atomic.Bool    // shutdown is near: new work should go elsewhere
	name    string
	since   time.Time
	metrics http.Handler                     // may be nil
	cordon  atomic.Pointer[endpoints.Cordon] // nil: not cordoned
	version string
	reload  func(context.Context) (*httpapi.ReloadReport, error) // may be nil
}

// New creates the services and the endpoints of Options.Workers. It starts nothing. ctx is
// used only during the call. An error says what is wrong with hosts, catalog, keys or
// workers, or comes from a store; then the caller still owns stores and runtimes. Otherwise
// the server owns them: Run closes them, or Close if Run is never called.
func New(ctx context.Context, o *Options) (*Server, error) {
	o = o.withDefaults()
	s := &Server{
		stores: o.Stores, runtimes: slices.Clone(o.Runtimes), api: o.API,
		clock: o.Clock, drain: o.Drain, wait: o.DrainWait, log: o.Logger, workers: slices.Clone(o.Workers), keepBilling: o.KeepBilling,
	}
	s.name, s.since, s.reload, s.conns = o.Name, o.Clock.Now().UTC(), o.Reload, o.Connections
	s.version = cmp.Or(o.Version, moduleVersion())
	s.api.Program = s.Program()
	s.gate.toWorker = s.api.ToWorker
	o.Hosts = s.end.wrap(o.Hosts)
	if url := o.Jobs.WorkerURL; url != nil {
		o.Jobs.WorkerURL = func() string {
			if s.gate.open() && s.cordoned() != endpoints.Drained {
				return url()
			}
			return "" // a worker started now could not connect
		}
	}
	if err := s.wire(ctx, o); err != nil {
		return nil, err
	}
	if o.Metrics != nil {
		s.metrics = httpapi.ForOperators(o.Metrics, &s.api)
	}
	if err := o.checkWorkers(); err != nil {
		return nil, err
	}
	for _, w := range s.workers {
		ensure := s.services.Jobs.EnsureEndpoint
		if w.Handler != nil {
			ensure = s.services.Jobs.EnsureBalanced
		}
		if err := ensure(ctx, w.Endpoint); err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
	}
	return s, nil
}

// wire creates the services, and adds the stored keys to the others.
func (s *Server) wire(ctx context.Context, o *Options) (err error) {
	if o.API.Auth == nil && len(o.Keys) > 0 {
		if o.API.Auth, err = httpapi.NewKeys(o.Keys, o.Clock.Now); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
	if o.Jobs.MayRun == nil {
		o.Jobs.MayRun = func(ctx context.Context, user, endpoint string) (bool, error) {
			return httpapi.MayRun(ctx, s.api.Auth, user, endpoint)
		}
	}
	if s.joined, s.peers, err = join(ctx, o); err != nil {
		return err
	}
	if s.services, err = wire(o); err != nil {
		return err
	}
	s.api.Auth = o.API.Auth
	if s.services.Accounts != nil {
		if err := s.services.Accounts.Load(ctx); err != nil {
			return fmt.Errorf("server: %w", err)
		}
		s.api.Auth = httpapi.AnyOf(o.API.Auth, httpapi.StoredKeys(s.services.Accounts))
	}
	return nil
}

// Services returns the services behind the handlers. A service without a store is nil.
func (s *Server) Services() httpapi.Services { return s.services }

// API returns the options of the handlers, with the Authenticator that accepts stored keys too.
// A program uses it for handlers of its own, such as a console.Console.
func (s *Server) API() httpapi.Options { return s.api }

// Handler serves the whole interface, as httpapi.New does, and two paths without a key:
//
//   - GET /healthz answers 200 while the server runs.
//   - GET /readyz answers 200 while new work is accepted. It answers 503 while the
//     stores refuse work or an operator has cordoned the server, and from the end of
//     Run's context.
//
// With Options.Metrics it serves GET /metrics to keys of operators. With Stores.Servers it serves
// the other servers below /peer/, see Options.PeerURL.
func (s *Server) Handler() http.Handler {
	return s.probes(s.gate.guard(s.withPeers(httpapi.New(s.services, &s.api))))
}

// withPeers adds the paths of the other servers.
func (s *Server) withPeers(api http.Handler) http.Handler {
	if s.peers == nil || s.services.Pods == nil {
		return api
	}
	among := s.peers.handler(s.services.Pods)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, peerPrefix) && !s.api.ToWorker(r) {
			among.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// Control serves the control API alone, as httpapi.NewControl does.
func (s *Server) Control() http.Handler {
	return s.gate.guard(httpapi.NewControl(s.services, &s.api))
}

// Jobs serves the jobs API and the worker protocol alone, as httpapi.NewJobs does.
func (s *Server) Jobs() http.Handler {
	return s.gate.guard(httpapi.NewJobs(s.services.Jobs, &s.api))
}

// Workers serves the worker protocol alone, as httpapi.NewWorkers does.
func (s *Server) Workers() http.Handler {
	return s.gate.guard(httpapi.NewWorkers(s.services.Jobs, &s.api))
}

// probes adds the paths without a key. A mux would redirect paths that are not clean; api
// answers them with 404.
func (s *Server) probes(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch get := r.Method == http.MethodGet || r.Method == http.MethodHead; {
		case s.api.ToWorker(r): // on a host of its own it has these paths, too
			api.ServeHTTP(w, r)
		case get && isProbe(r.URL.Path):
			s.probe(w, r)
		case get && r.URL.Path == "/metrics" && s.metrics != nil:
			s.metrics.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

func isProbe(path string) bool { return path == "/readyz" || path == "/healthz" }

// Probes serves only /healthz and /readyz, as Handler does. It is for a listener that load
// balancers and operators reach.
func (s *Server) Probes() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isProbe(r.URL.Path) {
			httpapi.WriteProblem(w, errNoPath)
			return
		}
		s.probe(w, r)
	})
}

var errNoPath = problem.New(problem.NotFound, "The requested path was not found.")

// probe answers whether the server lives, or takes new work.
func (s *Server) probe(w http.ResponseWriter, r *http.Request) {
	if s.api.Access {
		s.log.DebugContext(r.Context(), "request", "method", r.Method, "path", r.URL.Path)
	}
	if r.URL.Path == "/readyz" {
		s.readyz(w)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // the client may be gone
}

func (s *Server) readyz(w http.ResponseWriter) {
	if err := s.ready(); err != nil {
		httpapi.WriteProblem(w, err)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // the client may be gone
}

// ready returns nil if new work is accepted, or the reason why not.
func (s *Server) ready() error {
	if s.leaving.Load() || !s.gate.open() {
		return errStopping
	}
	if s.cordoned() != endpoints.NotCordoned {
		return errCordoned
	}
	if s.stores.Ready == nil {
		return nil
	}
	return s.stores.Ready()
}

var errBegun = errors.New("server: it runs already, or has ended")

// Close closes a server that never ran: runtimes first, then stores. ctx limits the time
// for runtimes. After Run it does nothing.
func (s *Server) Close(ctx context.Context) error {
	if s.begun.Swap(true) {
		return nil
	}
	s.gate.close()
	s.end.begin()
	return errors.Join(s.closeRuntimes(ctx), s.closeStores())
}

func (s *Server) closeRuntimes(ctx context.Context) error {
	var errs []error
	for _, rt := range s.runtimes {
		errs = append(errs, rt.Close(ctx))
	}
	return errors.Join(errs...)
}

func (s *Server) closeStores() error {
	if s.stores.Close == nil {
		return nil
	}
	return s.stores.Close()
}
