package server

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
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
	"github.com/podyard/podyard/httpapi/incidents"
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
	limited     bool          // there are budgets

	workers []Worker
	conns   *conns.Limiter // may be nil
	begun   atomic.Bool    // by Run or Close
	leaving atomic.Bool    // shutdown is near: new work should go elsewhere
	name    string
	since   time.Time
	metrics http.Handler                     // may be nil
	cordon  atomic.Pointer[endpoints.Cordon] // nil: not cordoned
	version string
	// incidents is what the last look has found; nil: there was none.
	incidents   atomic.Pointer[[]incidents.Incident]
	others      atomic.Pointer[[]httpapi.OtherServer]                // that the last look has found
	certificate func() time.Time                                     // may be nil
	reload      func(context.Context) (*httpapi.ReloadReport, error) // may be nil
}

// New creates the services and the endpoints of Options.Workers. It starts nothing. ctx is
// used only during the call. An error says what is wrong with hosts, catalog, keys or
// workers, or comes from a store; then the caller still owns stores and runtimes. Otherwise
// the server owns them: Run closes them, or Close if Run is never called.
func New(ctx context.Context, o *Options) (*Server, error) {
	o = o.withDefaults()
	s := &Server{
		stores: o.Stores, runtimes: slices.Clone(o.Runtimes), api: o.API,
		clock: o.Clock, drain: o.Drain, wait: o.DrainWait, log: o.Logger, workers: slices.Clone(o.Workers), keepBilling: o.KeepBilling, limited: o.Budgets != nil,
	}
	s.name, s.since, s.reload, s.conns = o.Name, o.Clock.Now().UTC(), o.Reload, o.Connections
	s.certificate = o.CertificateEnds
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
	o.Pods.KeySecret = podSecret(o)
	if s.services, err = wire(o); err != nil {
		return err
	}
	if err := s.wireSSH(ctx, o); err != nil {
		return err
	}
	return s.authenticate(ctx, o)
}

// authenticate adds the stored keys and those of pods to the keys of the options.
func (s *Server) authenticate(ctx context.Context, o *Options) error {
	s.api.Auth = o.API.Auth
	if s.services.Accounts != nil {
		if err := s.services.Accounts.Load(ctx); err != nil {
			return fmt.Errorf("server: %w", err)
		}
		s.api.Auth = httpapi.AnyOf(s.api.Auth, httpapi.StoredKeys(s.services.Accounts))
	}
	if s.services.Pods != nil && o.Pods.KeyURL != nil {
		s.api.Auth = httpapi.AnyOf(s.api.Auth, httpapi.PodKeys(s.services.Pods))
	}
	return nil
}

// podSecret is the secret of the keys of pods. It follows from that of the workers, which servers share.
func podSecret(o *Options) []byte {
	switch {
	case len(o.Pods.KeySecret) > 0:
		return o.Pods.KeySecret
	case len(o.Jobs.WorkerSecret) > 0:
		return derived(o.Jobs.WorkerSecret, "pods")
	}
	b := make([]byte, sha256.Size) // nothing outlives this process
	rand.Read(b)
	return b
}

// derived is a secret for another purpose that follows from one.
func derived(secret []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// wireSSH makes the secret of the SSH front: that of the store which servers share, or else one that
// follows from that of the workers.
func (s *Server) wireSSH(ctx context.Context, o *Options) error {
	if o.API.PodSSH == nil || len(o.API.PodSSH.Secret) > 0 {
		return nil
	}
	front := *o.API.PodSSH
	switch {
	case s.joined != nil:
		var err error
		if front.Secret, err = s.joined.Secret(ctx, sshSecretName); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	case len(o.Jobs.WorkerSecret) > 0:
		front.Secret = derived(o.Jobs.WorkerSecret, sshSecretName)
	default: // nothing outlives this process
		front.Secret = make([]byte, sha256.Size)
		rand.Read(front.Secret)
	}
	s.api.PodSSH = &front
	return nil
}

// sshSecretName is the name of the secret in a servers.Store.
const sshSecretName = "ssh"

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

// Workers serves what pods need: the worker protocol, and what a pod may do with its own key, as
// httpapi.NewForPods does.
func (s *Server) Workers() http.Handler {
	return s.gate.guard(httpapi.NewForPods(s.services, &s.api))
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
