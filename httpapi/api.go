package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// Services are what the handlers serve. A nil one has no routes: its paths are not found.
// The catalog is served with Pods, and Billing only with Pods.
type Services struct {
	Pods       *pods.Service
	Registries *registries.Service
	Jobs       *serverless.Service
	Volumes    *volumes.Service
	Templates  *templates.Service
	SSHKeys    *sshkeys.Service
	Billing    *billing.Service // of Pods, Volumes and the workers of Jobs, which tell it what they use
}

// Options are the settings of the handlers. Without Auth every request is refused: the
// zero value is safe.
type Options struct {
	// Auth knows the keys. Keys is one.
	Auth Authenticator
	// PublicURL is the base of the addresses in answers (requestUrls), without the path that
	// begins with /v2: "https://api.example.com". Default: scheme and host of the request,
	// which is wrong behind a proxy that ends TLS, or under a prefix.
	PublicURL string
	// Quotas count the requests of a user to the control API and reset (section 8.4).
	// Default: ratelimit.NewWindows with its defaults. Handlers made apart share quotas when
	// they are given the same value.
	Quotas *ratelimit.Windows
	// Rates limit the requests of a user to each endpoint and operation (section 8.3).
	// Default: ratelimit.NewRates(0).
	Rates *ratelimit.Rates
	// BodyTimeout is how long the body of a request may take to arrive, besides what it
	// takes at 64 KiB a second; one of unknown length counts as the largest that is read.
	// What comes later is answered 408. Default: 30 s. Negative: no limit of ours, only the
	// ReadTimeout of the server, which the other limit replaces while a body is read.
	BodyTimeout time.Duration
	// Clock is what quotas and rates follow; give it the clock of the services. Default:
	// the system's.
	Clock pods.Clock
	// Logger gets what clients are not told: the causes of 500s. Default: none.
	Logger *slog.Logger
}

// An api is what all areas share.
type api struct {
	Services
	auth   Authenticator
	quotas *ratelimit.Windows
	rates  *ratelimit.Rates
	clock  pods.Clock
	log    *slog.Logger
	late   time.Duration // BodyTimeout
	url    string        // without a slash at the end; empty: the request's
}

func newAPI(s Services, o *Options) *api {
	if o == nil {
		o = &Options{}
	}
	a := &api{Services: s, auth: o.Auth, quotas: o.Quotas, rates: o.Rates, clock: o.Clock, log: o.Logger, late: o.BodyTimeout, url: strings.TrimRight(o.PublicURL, "/")}
	if a.auth == nil {
		a.auth = noKeys{}
	}
	if a.quotas == nil {
		a.quotas = ratelimit.NewWindows(ratelimit.Quotas{})
	}
	if a.rates == nil {
		a.rates = ratelimit.NewRates(0)
	}
	if a.late == 0 {
		a.late = 30 * time.Second
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
	control, jobs, legacy := a.control(), a.jobsAPI(), a.legacy()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); {
		case first == "v1":
			legacy.ServeHTTP(w, r)
		case first == "v2" && isControl(rest):
			control.ServeHTTP(w, r)
		default:
			jobs.ServeHTTP(w, r)
		}
	})
}

// isControl reports whether the path below /v2/ is the control API's: its first segments
// are no endpoint ids.
func isControl(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return serverless.IsReserved(first)
}

// NewControl serves the control API: /v2/pods, /v2/network-volumes, /v2/templates,
// /v2/account, /v2/billing, /v2/registries, /v2/catalog, /v2/serverless.
func NewControl(s Services, o *Options) http.Handler { return newAPI(s, o).control() }

// NewJobs serves the jobs API, /v2/{endpoint}/run and its kin, and the worker protocol.
func NewJobs(s *serverless.Service, o *Options) http.Handler {
	return newAPI(Services{Jobs: s}, o).jobsAPI()
}

// NewLegacy serves POST /v1/pods/{podId}/reset.
func NewLegacy(s *pods.Service, o *Options) http.Handler {
	return newAPI(Services{Pods: s}, o).legacy()
}

// A flavor is how an area differs from the others on the wire.
type flavor struct {
	bareKeys bool // a key without a scheme is fine
	counted  bool // requests are counted in windows
	errors   bool // problem documents carry a member error, which the SDKs read
	asOpenAI bool // errors have OpenAI's form
}

// An area is some routes with one flavor.
type area struct {
	*api
	flavor
	mux *http.ServeMux
}

func (a *api) area(f flavor) *area {
	x := &area{api: a, flavor: f, mux: http.NewServeMux()}
	x.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		x.astray(w, r, errNoRoute)
	})
	return x
}

var errNoRoute = problem.New(problem.NotFound, "The requested path was not found.")

// ServeHTTP routes. The mux would redirect a path that is not clean; here such a path
// does not exist.
func (x *area) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.limitBody(w, r)
	if !isClean(r.URL.Path) {
		x.astray(w, r, errNoRoute)
		return
	}
	x.mux.ServeHTTP(w, r)
}

// astray answers a request that no operation is for. The route comes before the key
// (decisions, row 8), but a caller with a good one is counted and told of the quota as for
// any other answer (row 9); only that the window is full is not what is wrong here.
func (x *area) astray(w http.ResponseWriter, r *http.Request, err error) {
	c := &call{area: x, w: w, r: r}
	if x.counted && x.identify(c) == nil {
		_ = x.count(c)
		w.Header().Del("Retry-After")
	}
	x.write(w, err)
}

func isClean(path string) bool {
	if path == "" || path[0] != '/' || strings.Contains(path, "//") {
		return false
	}
	for seg := range strings.SplitSeq(path, "/") {
		if seg == "." || seg == ".." {
			return false
		}
	}
	return true
}

// An operation is what one method of one path does.
type operation struct {
	// access is the permission that it takes; nil: any valid key.
	access func(*call) Permission
	// effects says that a GET of it changes something, so that HEAD is no GET.
	effects bool
	// worker says that it is the worker protocol's, which has keys of its own.
	worker bool
	do     func(*call) error
}

// A call is one request to an operation.
type call struct {
	*area
	w  http.ResponseWriter
	r  *http.Request
	id Identity
}

// handle gives a path its methods. Any other method is answered with a 405 that lists
// them.
func (x *area) handle(path string, methods map[string]operation) {
	var allow []string
	for _, m := range [...]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		if get, ok := methods["GET"]; m == "HEAD" && ok && !get.effects {
			methods["HEAD"] = get
		}
		if _, ok := methods[m]; ok {
			allow = append(allow, m)
		}
	}
	list := strings.Join(allow, ", ")
	x.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		op, ok := methods[r.Method]
		if !ok {
			w.Header().Set("Allow", list)
			x.astray(w, r, problem.New(problem.NotAllowed, "The requested method is not allowed for this path."))
			return
		}
		x.serve(&call{area: x, w: w, r: r}, op)
	})
}

// serve runs an operation and answers its error.
func (x *area) serve(c *call, op operation) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it the same way
			panic(p)
		}
		x.log.Error("handler panicked", "method", c.r.Method, "path", c.r.URL.Path, "panic", p, "stack", string(debug.Stack()))
		x.write(c.w, problem.New(problem.Internal, "panic"))
	}()
	admit := func() error { return x.admit(c, op) }
	if op.worker {
		admit = func() error { return x.admitWorker(c) }
	}
	if err := admit(); err != nil {
		x.fail(c, err)
		return
	}
	if err := op.do(c); err != nil {
		x.fail(c, err)
	}
}

// admit checks the key, the quota and the scope.
func (x *area) admit(c *call, op operation) error {
	if err := x.identify(c); err != nil {
		return err
	}
	if err := x.count(c); err != nil {
		return err
	}
	if op.access != nil && !c.id.Can(op.access(c)) {
		return errForbidden
	}
	return nil
}

// identify finds out whose key the request has.
func (x *area) identify(c *call) error {
	key, err := keyOf(c.r.Header.Get("Authorization"), x.bareKeys)
	if err != nil {
		return err
	}
	c.id, err = x.auth.Authenticate(c.r.Context(), key)
	return err
}

// count charges the request to its user, where requests are counted.
func (x *area) count(c *call) error {
	if !x.counted || c.id.Exempt {
		return nil
	}
	d := x.quotas.Take(x.clock.Now(), c.id.User)
	setLimits(c.w.Header(), d)
	if !d.OK {
		return limited(d)
	}
	return nil
}

// fail answers an error and logs what the client is not told.
func (x *area) fail(c *call, err error) {
	if problem.KindOf(err) == problem.Internal && c.r.Context().Err() == nil {
		x.log.Error("request failed", "method", c.r.Method, "path", c.r.URL.Path, "err", err)
	}
	if problem.KindOf(err) == problem.Unauthorized {
		c.w.Header().Set("WWW-Authenticate", "Bearer")
	}
	x.write(c.w, err)
}

// holdUntil is hold for what has no end of its own by the service's clock.
func (c *call) holdUntil(d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := c.hold(d)
	ctx, stop := clock.WithDeadline(ctx, c.clock, c.clock.Now().Add(d))
	return ctx, func() { stop(); cancel() }
}

// hold is ctx of the request, ending after d of wall time: where the services have a clock
// of their own a request is held until the first of both. By the system's clock the
// service ends it by itself.
func (c *call) hold(d time.Duration) (context.Context, context.CancelFunc) {
	if c.clock == (clock.System{}) {
		return c.r.Context(), func() {}
	}
	return context.WithTimeout(c.r.Context(), d)
}
