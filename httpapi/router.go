package httpapi

import (
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/conns"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
)

// conventions are the differences between the parts of the interface on the wire.
type conventions struct {
	bareKeys bool // a key needs no scheme
	counted  bool // requests count against quotas
	form     errorForm
}

func (a API) conventions() conventions {
	switch a {
	case APIControl, APILegacy:
		return conventions{counted: true}
	case APIOpenAI:
		return conventions{bareKeys: true, form: openAIForm}
	}
	return conventions{bareKeys: true, form: sdkForm}
}

// A router serves operations of one part of the interface. Its mux is made from the table
// of operations only.
type router struct {
	*api
	conventions
	mux      *http.ServeMux
	onlyPods bool // operations of the control API are for the keys of pods only
}

// router serves the operations of these APIs with the conventions of the first one. An
// operation whose service is missing gets no route.
func (a *api) router(first API, more ...API) *router {
	return a.routerOf(first, func(o *operation) bool { return o.API == first || slices.Contains(more, o.API) })
}

// routerOf serves the operations that pick selects, with the conventions of an API.
func (a *api) routerOf(first API, pick func(*operation) bool) *router {
	x := &router{api: a, conventions: first.conventions(), mux: http.NewServeMux()}
	x.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		x.unrouted(w, r, errNoRoute)
	})
	paths := map[string]map[string]*operation{}
	for _, o := range table() {
		if !a.has(o.Area) || !pick(&o) {
			continue
		}
		if paths[o.Path] == nil {
			paths[o.Path] = map[string]*operation{}
		}
		for _, m := range o.methodsServed() {
			paths[o.Path][m] = &o
		}
	}
	for path, methods := range paths {
		x.handle(path, methods)
	}
	return x
}

// handle serves a path. The answer to any other method is a 405 that lists the methods of
// the path.
func (x *router) handle(path string, methods map[string]*operation) {
	var has []string
	for _, m := range [...]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		if methods[m] != nil {
			has = append(has, m)
		}
	}
	allow := strings.Join(has, ", ")
	x.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		o := methods[r.Method]
		if o == nil {
			w.Header().Set("Allow", allow)
			x.unrouted(w, r, errNoMethod)
			return
		}
		x.serve(&call{router: x, op: o, w: w, r: r})
	})
}

var (
	errNoRoute  = problem.New(problem.NotFound, "The requested path was not found.")
	errPanic    = problem.New(problem.Internal, "panic")
	errNoMethod = problem.New(problem.MethodNotAllowed, "The requested method is not allowed for this path.")
)

// ServeHTTP routes a request. The mux would redirect a path that is not clean; here the
// answer is a 404.
func (x *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.limitBody(w, r)
	if !isClean(r.URL.Path) {
		x.unrouted(w, r, errNoRoute)
		return
	}
	x.mux.ServeHTTP(w, r)
}

// unrouted answers a request without an operation. The route is checked before the key
// (docs/decisions.md 8). With a valid key the request still counts, and the answer has the
// quota headers of any other answer (docs/decisions.md 9). A used-up quota does not change
// this answer.
func (x *router) unrouted(w http.ResponseWriter, r *http.Request, err error) {
	c := &call{router: x, w: w, r: r}
	x.arrive(c)
	defer x.depart(c)
	w = c.w
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

// A call is one request to an operation.
type call struct {
	*router
	op *operation
	w  http.ResponseWriter
	r  *http.Request
	id Identity

	owner        string               // the user whose records the request is about
	named        bool                 // an operator named the owner with the parameter owner
	made         string               // the id of the new record, for the audit log
	jobsEndpoint *serverless.Endpoint // the endpoint in the path of an operation on jobs
	checked      time.Time            // when jobsEndpoint was read
	parsed       url.Values           // the query, after its first use
	keyed        *idempotency.Request // of a request with an Idempotency-Key, after its body was read
	arrived      time.Time            // zero: nobody wants to know of the request
	answer       statusWriter
	name         string // the request's id, after its first use

	employer       string // the owner of the endpoint, for a worker with its own key
	limited        bool   // the fields below count what the request holds
	in, open, turn budget.Hold
	out            answer

	next string      // the cursor of the next page; empty: there is none
	cut  func(i int) // makes an item the last one of its page; nil: the client did not ask for pages
}

// serve does an operation, and answers its error if there is one.
func (x *router) serve(c *call) {
	x.arrive(c)
	defer x.depart(c)
	defer x.recovered(c)
	defer c.release()
	x.watch(c)
	err := x.do(c)
	if err != nil {
		x.fail(c, err)
	}
	x.note(c, err)
}

// recovered answers a request whose handler panicked.
func (x *router) recovered(c *call) {
	p := recover()
	switch {
	case p == nil:
		return
	case p == http.ErrAbortHandler: //nolint:errorlint // net/http compares it the same way
		panic(p)
	}
	x.log.Error("handler panicked", "method", c.r.Method, "path", c.r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	x.write(c.w, errPanic)
	x.note(c, errPanic)
}

// do does the operation if the key, its scopes and the limits allow it.
func (x *router) do(c *call) error {
	if err := x.admit(c); err != nil {
		x.keyRefused(err)
		return err
	}
	c.hold()
	if err := c.waitTurn(); err != nil {
		return err
	}
	if err := c.actAs(); err != nil {
		return err
	}
	pass, err := x.enter(c)
	if c.findOthers(err) {
		pass, err = x.enter(c)
	}
	if err != nil {
		return err
	}
	defer pass.Release()
	if err = c.op.do(c); c.findOthers(err) {
		err = c.op.do(c)
	}
	return err
}

func (x *router) admit(c *call) error {
	if c.op.Scope == ScopeNone {
		return nil
	}
	if c.op.Scope == ScopeWorker {
		return x.admitWorker(c)
	}
	if err := x.identify(c); err != nil {
		return err
	}
	if err := x.count(c); err != nil {
		return err
	}
	if c.id.Pod != "" {
		return c.admitPod()
	}
	if x.onlyPods && c.op.API == APIControl {
		return errForbidden
	}
	if c.op.Scope != ScopeAny && !c.id.Can(c.needs(c.op.need)) {
		return errForbidden
	}
	return nil
}

// admitPod allows what the key of a pod may do.
func (c *call) admitPod() error {
	if !c.op.own || c.r.PathValue("id") != c.id.Pod {
		return errForbidden
	}
	return nil
}

// needs returns p for the endpoint in the path.
func (c *call) needs(p Permission) Permission {
	if p.Endpoint != "" {
		p.Endpoint = c.r.PathValue("endpoint")
	}
	return p
}

// identify finds the identity of the request's key.
func (x *router) identify(c *call) error {
	key, err := keyOf(c.r.Header.Get("Authorization"), x.bareKeys)
	if err != nil {
		return err
	}
	if c.id, err = x.auth.Authenticate(c.r.Context(), key); err != nil {
		return err
	}
	return c.acceptKey(c.id.holder())
}

// stillAllowed is StillAllowed for the request, and for what While has said of it.
func (c *call) stillAllowed() bool {
	if good, ok := c.r.Context().Value(whileKey{}).(func() bool); ok && !good() {
		return false
	}
	key, err := keyOf(c.r.Header.Get("Authorization"), c.bareKeys)
	return err == nil && StillAllowed(c.r.Context(), c.auth, key, &c.id, func(id Identity) bool { return id.Can(c.needs(c.op.need)) })
}

// acceptKey records that the connection has a valid key. One too many of its owner ends.
func (c *call) acceptKey(o conns.Owner) error {
	err := conns.Accept(c.r.Context(), o)
	if err != nil {
		c.w.Header().Set("Connection", "close")
		c.w.Header().Set("Retry-After", "1")
	}
	return err
}

// count counts the request of its user, if requests are counted.
func (x *router) count(c *call) error {
	if !x.counted || c.id.Exempt {
		return nil
	}
	d := x.quotas.TakeContext(c.r.Context(), x.clock.Now(), c.id.User)
	setLimits(c.w.Header(), d)
	if !d.OK {
		return x.limited(d, true)
	}
	return nil
}

// enter checks that the endpoint of a job exists, and that the caller owns it or it is
// shared. It then applies the rate and the concurrency limit of the operation
// (docs/interface.md 8.3). The permit may be nil.
func (x *router) enter(c *call) (*ratelimit.Permit, error) {
	if !c.op.Area.ofJobs() {
		return nil, nil
	}
	id := c.r.PathValue("endpoint")
	var err error
	if c.jobsEndpoint, err = c.usable(id); err != nil {
		return nil, err
	}
	if err := c.checkType(); err != nil {
		return nil, err
	}
	c.checked = time.Now()
	if c.op.Limit != LimitRate || c.id.Exempt {
		return nil, nil
	}
	who := ratelimit.Key{User: c.id.User, Endpoint: id, Operation: c.op.Rate}
	pass, d := x.rates.Acquire(x.clock.Now(), who, x.Jobs.RunningWorkers(id))
	if !d.OK {
		setLimits(c.w.Header(), d)
		return nil, x.limited(d, false)
	}
	return pass, nil
}

// checkType checks that the endpoint takes requests of this kind (docs/decisions.md 44).
func (c *call) checkType() error {
	switch balances := c.jobsEndpoint.Balances(); {
	case balances && c.op.Area != AreaBalance:
		return errBalanced
	case !balances && c.op.Area == AreaBalance:
		return errQueued
	}
	return nil
}

// fail answers an error. It logs internal errors, whose text the client does not get.
func (x *router) fail(c *call, err error) {
	left := c.left(err)
	if left { // if it is the server that ends, a proxy repeats the request elsewhere
		err = errStopped
	}
	if problem.KindOf(err) == problem.Internal && !left {
		x.log.Error("request failed", "method", c.r.Method, "path", c.r.URL.Path, "err", err)
	}
	if problem.KindOf(err) == problem.Unauthorized {
		c.w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if c.op.asked {
		c.slowDown(err)
	} else {
		c.delayFlood(err)
	}
	x.write(c.w, err)
	if left && c.answer.status >= http.StatusInternalServerError {
		c.answer.status = statusLeft
	}
}
