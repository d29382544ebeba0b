package httpapi

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// Services are what the handlers serve. A service that is nil has no routes: its paths are a
// 404. The catalog is served with Pods, and Billing only together with Pods.
type Services struct {
	Pods       *pods.Service
	Registries *registries.Service
	Jobs       *serverless.Service
	Volumes    *volumes.Service
	Templates  *templates.Service
	SSHKeys    *sshkeys.Service
	// Accounts are keys that are made over the interface. Options.Auth has to know them:
	// AnyOf and StoredKeys join it with others.
	Accounts *accounts.Service
	Billing  *billing.Service // of Pods, Volumes and the workers of Jobs, which tell it what they use
}

// Options are the settings of the handlers. Without Auth every request is refused: the
// zero value is safe.
type Options struct {
	// Auth checks the keys of requests. Keys is one. Default: every request is refused.
	Auth Authenticator
	// PublicURL is the base of the addresses in answers (requestUrls), without the path that
	// begins with /v2: "https://api.example.com". Default: scheme and host of the request,
	// which is wrong behind a proxy that ends TLS, or under a prefix.
	PublicURL string
	// Quotas count the requests of a user to the control API and reset (docs/interface.md 8.4).
	// Default: ratelimit.NewWindows with its defaults. Handlers made apart share quotas when
	// they are given the same value.
	Quotas *ratelimit.Windows
	// Rates limit the requests of a user to each endpoint and operation (docs/interface.md 8.3).
	// Default: ratelimit.NewRates(0).
	Rates *ratelimit.Rates
	// BodyTimeout is how long the body of a request may take to arrive, on top of the time
	// that its length takes at 64 KiB a second. A body of unknown length counts as the largest
	// that is read. A later body is answered 408. Default: 30 s. Negative: only the ReadTimeout
	// of the server applies, which BodyTimeout otherwise replaces while a body is read.
	BodyTimeout time.Duration
	// Program is the server around the handlers, for its operators. Default: none, and the
	// acts that need one are refused.
	Program Program
	// Audit keeps what is refused and what is changed: an audit.Log is one. Default: nothing
	// is kept.
	Audit audit.Trail
	// TrustedProxies are the networks of proxies in front, whose header X-Forwarded-For says
	// for Audit where a request is from. Default: none, and the header is ignored.
	TrustedProxies []netip.Prefix
	// Clock is the clock of quotas and rates. Use the clock of the services. Default: the
	// system's.
	Clock pods.Clock
	// Logger gets what clients are not told: the causes of 500s. Default: nothing is
	// logged.
	Logger *slog.Logger
}

// An api is what all areas share.
type api struct {
	Services
	auth        Authenticator
	quotas      *ratelimit.Windows
	rates       *ratelimit.Rates
	program     Program     // may be nil
	audit       audit.Trail // may be nil
	proxies     []netip.Prefix
	clock       pods.Clock
	log         *slog.Logger
	bodyTimeout time.Duration // BodyTimeout
	url         string        // without a slash at the end; empty: the request's
}

func newAPI(s Services, o *Options) *api {
	if o == nil {
		o = &Options{}
	}
	a := &api{Services: s, auth: o.Auth, quotas: o.Quotas, rates: o.Rates, program: o.Program, audit: o.Audit, proxies: o.TrustedProxies, clock: o.Clock, log: o.Logger, bodyTimeout: o.BodyTimeout, url: strings.TrimRight(o.PublicURL, "/")}
	if a.auth == nil {
		a.auth = noKeys{}
	}
	if a.quotas == nil {
		a.quotas = ratelimit.NewWindows(ratelimit.Quotas{})
	}
	if a.rates == nil {
		a.rates = ratelimit.NewRates(0)
	}
	if a.bodyTimeout == 0 {
		a.bodyTimeout = 30 * time.Second
	}
	if a.clock == nil {
		a.clock = clock.System{}
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	return a
}

// New serves the whole interface: control API and jobs API below /v2, reset below /v1.
// o may be nil, and then every request is refused.
func New(s Services, o *Options) http.Handler {
	a := newAPI(s, o)
	parts := map[API]*router{
		APIControl: a.router(APIControl), APIJobs: a.router(APIJobs, APIWorkers),
		APIOpenAI: a.router(APIOpenAI), APILegacy: a.router(APILegacy),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts[apiOf(r.URL.Path)].ServeHTTP(w, r)
	})
}

// NewControl serves the control API: /v2/pods, /v2/network-volumes, /v2/templates,
// /v2/account, /v2/billing, /v2/registries, /v2/catalog, /v2/serverless, /v2/admin.
func NewControl(s Services, o *Options) http.Handler { return newAPI(s, o).router(APIControl) }

// NewJobs serves the jobs API, which is /v2/{endpoint}/run and the paths beside it, and the
// worker protocol.
func NewJobs(s *serverless.Service, o *Options) http.Handler {
	a := newAPI(Services{Jobs: s}, o)
	jobs, openai := a.router(APIJobs, APIWorkers), a.router(APIOpenAI)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isOpenAI(r.URL.Path) {
			openai.ServeHTTP(w, r)
			return
		}
		jobs.ServeHTTP(w, r)
	})
}

// NewWorkers serves the worker protocol alone: what the stock SDKs in a worker's image ask
// of the service. New and NewJobs serve it too. This is for a listener that only workers
// reach.
//
// A worker has a key of its own (serverless.Service.WorkerKey), which is good for nothing
// else. A user's key with endpoints:write may do the work of a worker of that user's endpoints, too,
// and one with endpoint:<id>:work that of any worker of the endpoint.
func NewWorkers(s *serverless.Service, o *Options) http.Handler {
	return newAPI(Services{Jobs: s}, o).router(APIWorkers)
}

// NewLegacy serves POST /v1/pods/{podId}/reset, the one operation of version 1 that is left.
func NewLegacy(s *pods.Service, o *Options) http.Handler {
	return newAPI(Services{Pods: s}, o).router(APILegacy)
}

// has reports whether the service is there that an area needs.
func (s *Services) has(a Area) bool {
	switch a {
	case AreaPods, AreaCatalog, AreaClusters:
		return s.Pods != nil
	case AreaVolumes:
		return s.Volumes != nil
	case AreaTemplates:
		return s.Templates != nil
	case AreaSSHKeys:
		return s.SSHKeys != nil
	case AreaKeys:
		return s.Accounts != nil
	case AreaBilling:
		return s.Billing != nil && s.Pods != nil
	case AreaRegistries:
		return s.Registries != nil
	case AreaEndpoints, AreaJobs, AreaWorkers:
		return s.Jobs != nil
	case AreaAdmin:
		return s.Pods != nil || s.Jobs != nil
	}
	return false
}
