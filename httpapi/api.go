package httpapi

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/spending"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// Services are the services behind the handlers. The paths of a nil service answer 404. The
// catalog is served with Pods, and Billing only together with Pods.
type Services struct {
	Pods       *pods.Service
	Registries *registries.Service
	Jobs       *serverless.Service
	Volumes    *volumes.Service
	Templates  *templates.Service
	SSHKeys    *sshkeys.Service
	// Secrets has the values of variables of Pods and of workers of Jobs.
	Secrets *secrets.Service
	// Accounts manages keys that users create by requests. Options.Auth must accept these
	// keys: AnyOf combines StoredKeys with other keys.
	Accounts *accounts.Service
	Billing  *billing.Service // of Pods, Volumes and the workers of Jobs, which report their usage to it
	// Budgets are what users hold, of what they may (docs/decisions.md 37).
	Budgets *budget.Ledger
	// Spending is what users spend, of what they may (docs/decisions.md 56). It needs Billing.
	Spending *spending.Service
}

// Options configures the handlers. The zero value is safe: without Auth every request is
// refused.
type Options struct {
	// Auth checks the keys of requests, for example Keys. Default: every request is
	// refused.
	Auth Authenticator
	// PublicURL is the base of the addresses in answers (requestUrls), without the path
	// that begins with /v2: "https://api.example.com". Default: scheme and host of the
	// request. That is wrong behind a proxy that ends TLS, or under a prefix.
	PublicURL string
	// LoadBalancerDomain is a domain of which each name {endpoint}.<domain> is a load-balancing
	// endpoint (docs/decisions.md 44): every request with such a host goes to its workers.
	// Default: none; the endpoints are under /lb/ only.
	LoadBalancerDomain string
	// PodSSH is the SSH front that the program serves, see package sshfront. Default: none.
	PodSSH *PodSSH
	// PodDomain is a domain of which each name {pod}-{port}.<domain> is an HTTP port of a pod
	// (docs/decisions.md 53): every request with such a host goes to the pod. Default: none. With
	// "localhost", which browsers take for this machine, its other names stay the interface's.
	PodDomain string
	// PodPortKeys says that these ports take a key of the pod's owner with pods:write, in the
	// header PodKeyHeader. Default: who knows the name of a port reaches it.
	PodPortKeys bool
	// Quotas count the requests of a user to the control API and reset (docs/interface.md
	// 8.4). Default: ratelimit.NewWindows with its defaults. Separate handlers share quotas
	// if they have the same value here.
	Quotas *ratelimit.Windows
	// Rates limit the requests of a user to each endpoint and operation (docs/interface.md 8.3).
	// Default: ratelimit.NewRates(0).
	Rates *ratelimit.Rates
	// InFlight counts what requests of users hold in this process: bodies that are read, large
	// answers that are written, requests that stay open (docs/decisions.md 37). With it, a
	// client that does not read a large answer is cut off. Separate handlers share the limits if
	// they have the same value here. Default: no limits.
	InFlight *budget.InFlight
	// BodyTimeout is how long the body of a request may take to arrive, in addition to the
	// time that its length takes at 64 KiB per second. A body of unknown length counts as
	// the largest allowed one. A later body is answered 408. Default: 30 s. While a body is
	// read, BodyTimeout replaces the ReadTimeout of the server; if BodyTimeout is negative,
	// only ReadTimeout applies.
	BodyTimeout time.Duration
	// Program is the server around the handlers, for its operators. Default: none;
	// operations that need it are refused.
	Program Program
	// Audit records refused requests and changes, for example an audit.Log. Default:
	// nothing is recorded.
	Audit audit.Trail
	// TrustedProxies are the networks of proxies in front of the server. Audit takes the
	// source of a request from the X-Forwarded-For header of these proxies. Default: none;
	// the header is ignored.
	TrustedProxies []netip.Prefix
	// Observer gets what happens to requests, for metrics. Default: none.
	Observer Observer
	// Access says that Logger gets a line for each request: its id, operation, user, status,
	// duration and bytes. The lines of workers' requests and of health are on the level debug unless
	// they failed. Answers then have the header X-Request-Id (docs/interface.md 7).
	Access bool
	// DialWorker connects to an address of a worker of a load-balancing endpoint, as its fleet has
	// told it. Default: over TCP.
	DialWorker func(ctx context.Context, address string) (net.Conn, error)
	// Clock is the clock of quotas and rates. Use the clock of the services. Default: the
	// system's.
	Clock pods.Clock
	// Logger gets errors that clients do not see: the causes of 500s. Default: nothing is
	// logged.
	Logger *slog.Logger
}

// An api is what all routers share.
type api struct {
	Services
	auth        Authenticator
	quotas      *ratelimit.Windows
	rates       *ratelimit.Rates
	inFlight    *budget.InFlight // may be nil
	floods      *floods
	program     Program     // may be nil
	audit       audit.Trail // may be nil
	proxies     []netip.Prefix
	clock       pods.Clock
	log         *slog.Logger
	access      *slog.Logger    // may be nil
	observer    Observer        // may be nil
	bodyTimeout time.Duration   // Options.BodyTimeout
	url         string          // Options.PublicURL without a slash at the end; empty: the request's
	openAPI     func() served   // the description of the operations
	domain      string          // Options.LoadBalancerDomain
	podDomain   string          // Options.PodDomain
	podKeys     bool            // Options.PodPortKeys
	podSSH      *PodSSH         // may be nil
	transport   *http.Transport // to workers
	buffers     *bufferPool
	madeIDs     string // begins the ids of requests that are made here
	lastID      *atomic.Uint64
}

func newAPI(s Services, o *Options) *api {
	if o == nil {
		o = &Options{}
	}
	a := &api{Services: s, auth: o.Auth, quotas: o.Quotas, rates: o.Rates, inFlight: o.InFlight, program: o.Program, audit: o.Audit, proxies: o.TrustedProxies, clock: o.Clock, log: o.Logger, bodyTimeout: o.BodyTimeout, url: strings.TrimRight(o.PublicURL, "/")}
	a.openAPI = document(&a.Services, a.url)
	a.floods = &floods{}
	a.domain, a.transport, a.buffers = o.LoadBalancerDomain, newWorkerTransport(o.DialWorker), &bufferPool{}
	a.podDomain, a.podKeys = strings.ToLower(o.PodDomain), o.PodPortKeys
	a.podSSH = o.PodSSH
	a.observer = o.Observer
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
	a.madeIDs, a.lastID = strconv.FormatInt(a.clock.Now().UnixMilli(), 36), &atomic.Uint64{}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if o.Access {
		a.access = a.log
	}
	return a
}

// New serves the whole interface: control API and jobs API below /v2, reset below /v1,
// load-balancing endpoints below /lb and on hosts of their own, and HTTP ports of pods on hosts of
// their own.
// o may be nil, and then every request is refused.
func New(s Services, o *Options) http.Handler {
	a := newAPI(s, o)
	parts := map[API]*router{
		APIControl: a.router(APIControl), APIJobs: a.router(APIJobs, APIWorkers),
		APIOpenAI: a.router(APIOpenAI), APILegacy: a.router(APILegacy),
	}
	workers, ports := a.balanceRouter(), a.newPodPorts()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, under := podPortOf(r.Host, a.podDomain); under {
			ports.ServeHTTP(w, r)
			return
		}
		if toWorker(a.domain, r) {
			workers.ServeHTTP(w, r)
			return
		}
		parts[apiOf(r.URL.Path)].ServeHTTP(w, r)
	})
}

// NewControl serves the control API: /v2/pods, /v2/network-volumes, /v2/templates,
// /v2/account, /v2/billing, /v2/registries, /v2/catalog, /v2/serverless, /v2/admin.
func NewControl(s Services, o *Options) http.Handler { return newAPI(s, o).router(APIControl) }

// NewJobs serves the jobs API (/v2/{endpoint}/run and related paths), the worker protocol, and
// load-balancing endpoints.
func NewJobs(s *serverless.Service, o *Options) http.Handler {
	a := newAPI(Services{Jobs: s}, o)
	jobs, openai, workers := a.router(APIJobs, APIWorkers), a.router(APIOpenAI), a.balanceRouter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case toWorker(a.domain, r):
			workers.ServeHTTP(w, r)
		case isOpenAI(r.URL.Path):
			openai.ServeHTTP(w, r)
		default:
			jobs.ServeHTTP(w, r)
		}
	})
}

// NewWorkers serves only the worker protocol, which the stock SDKs in worker images use.
// New and NewJobs serve it, too. NewWorkers is for a listener that only workers reach.
//
// A worker has its own key (serverless.Service.WorkerKey), which allows nothing else. A
// user's key with endpoints:write may also do the work of any worker of that user's
// endpoints, and a key with endpoint:<id>:work the work of any worker of that endpoint.
func NewWorkers(s *serverless.Service, o *Options) http.Handler {
	return newAPI(Services{Jobs: s}, o).router(APIWorkers)
}

// NewForPods serves the worker protocol, as NewWorkers does, and lets a pod get, stop and terminate itself
// with the key of its environment (docs/decisions.md 55). It is for a listener that only pods reach: users'
// keys do nothing to pods there.
func NewForPods(s Services, o *Options) http.Handler {
	a := newAPI(Services{Jobs: s.Jobs, Pods: s.Pods}, o)
	own := a.routerOf(APIControl, func(o *operation) bool { return o.own })
	own.onlyPods = true
	workers := a.router(APIWorkers)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Pods != nil && strings.HasPrefix(r.URL.Path, "/v2/pods/") {
			own.ServeHTTP(w, r)
			return
		}
		workers.ServeHTTP(w, r)
	})
}

// NewLegacy serves POST /v1/pods/{podId}/reset, the only operation of version 1.
func NewLegacy(s *pods.Service, o *Options) http.Handler {
	return newAPI(Services{Pods: s}, o).router(APILegacy)
}

// has reports whether the service of an area is set.
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
	case AreaSecrets:
		return s.Secrets != nil
	case AreaKeys:
		return s.Accounts != nil
	case AreaBilling:
		return s.Billing != nil && s.Pods != nil
	case AreaRegistries:
		return s.Registries != nil
	case AreaEndpoints, AreaJobs, AreaWorkers, AreaBalance:
		return s.Jobs != nil
	case AreaSchedules:
		return s.Jobs != nil && s.Jobs.Schedules() != nil
	case AreaBatches:
		return s.Jobs != nil && s.Jobs.Batches() != nil
	case AreaAdmin:
		return s.Pods != nil || s.Jobs != nil
	case AreaBudgets:
		return s.Budgets != nil
	case AreaInterface:
		return true
	}
	return false
}
