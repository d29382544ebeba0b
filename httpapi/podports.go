package httpapi

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/conns"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

// Limits of requests to the HTTP ports of pods (docs/decisions.md 53).
const (
	maxVisit      = 100 << 20         // bytes of a request
	podAnswerTime = 100 * time.Second // to the head of the answer
)

// PodKeyHeader has the key of a request to a port of a pod, where Options.PodPortKeys is set. The header
// Authorization is the pod's own.
const PodKeyHeader = "Podyard-Key"

var (
	errNoPodPort   = problem.New(problem.NotFound, "there is no pod with this HTTP port")
	errPodNotUp    = problem.New(problem.BadGateway, "the pod does not run")
	errPodSilent   = problem.New(problem.BadGateway, "nothing answers on this port of the pod")
	errPodHead     = problem.New(problem.BadGateway, "the pod's answer has too many headers, too many answers before it, or a status that does not exist")
	errPodTimeout  = problem.New(problem.WorkerTimeout, "the pod did not answer in 100 seconds")
	errPodNeedsKey = problem.New(problem.Unauthorized, "this port takes a key that may change its pod, in the header "+PodKeyHeader)
)

// A podPorts serves the HTTP ports of pods on names of their own, {pod}-{port}.<domain>.
type podPorts struct {
	*router

	transport http.RoundTripper
}

func (a *api) newPodPorts() *podPorts {
	return &podPorts{
		router: &router{api: a, conventions: APIControl.conventions()},
		transport: &http.Transport{
			DialContext:        (&net.Dialer{Timeout: dialTime}).DialContext,
			DisableCompression: true, MaxIdleConnsPerHost: 8, MaxIdleConns: idleConns, IdleConnTimeout: idleTime,
			ResponseHeaderTimeout: podAnswerTime, MaxResponseHeaderBytes: maxAnswerHead,
		},
	}
}

// A podPort is what a name leads to.
type podPort struct {
	pod  string
	port int
}

// podPortOf returns where a request to the domain of the pods goes. under is false for a request to
// another host. Everything under the domain belongs to pods, so that no page of the interface has a
// pod's name, but for localhost: its other names lead to the interface, as browsers have them lead to
// this machine. A name that ends like one of a port, or with a dot, is no other name.
func podPortOf(host, domain string) (p podPort, under bool) {
	label, under := underDomain(strings.ToLower(host), domain)
	if !under {
		return p, false
	}
	id, number, _ := strings.Cut(label, "-")
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 || number[0] == '0' || !isDNSLabel(id) {
		return p, domain != localDomain || label == "" || isDigits(number)
	}
	return podPort{id, int(port)}, true
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// localDomain is the domain whose names are this machine (RFC 6761, 6.3).
const localDomain = "localhost"

// ServeHTTP passes a request to a port of a pod.
func (x *podPorts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{router: x.router, w: w, r: r, op: &podPortOperation}
	x.arrive(c)
	defer x.depart(c)
	defer x.recovered(c)
	defer c.release()
	if err := x.proxy(c); err != nil {
		x.fail(c, err)
	}
}

// podPortOperation names these requests in logs and metrics. It is not in the table of operations: it has
// no path of its own.
var podPortOperation = operation{Operation: Operation{Name: "podPort", Area: AreaPods}}

func (x *podPorts) proxy(c *call) error {
	at, _ := podPortOf(c.r.Host, x.podDomain)
	if x.Pods == nil || at.pod == "" || hasDotSegment(c.r.URL.Path) {
		return errNoPodPort
	}
	exposure, err := x.Pods.Exposure(c.r.Context(), at.pod)
	if err != nil {
		return err
	}
	keys := x.exposure(exposure) == pods.ExposeKey
	if keys { // before anything is told of the pod
		if err := x.checkKey(c); err != nil {
			return err
		}
	}
	owner, address, err := x.Pods.HTTPPort(c.r.Context(), at.pod, at.port)
	switch {
	case keys && err == nil && c.id.User != owner && !c.id.Operator():
		return errNoPodPort // it is another user's
	case errors.Is(err, pods.ErrNotFound):
		return errNoPodPort
	case errors.Is(err, pods.ErrNotRunning):
		return errPodNotUp
	case err != nil:
		return err
	}
	// Visitors count for the owner of the pod, and apart from the owner's own connections.
	if err := c.acceptKey(conns.Owner{User: owner, Visitor: true}); err != nil {
		return err
	}
	if x.inFlight.Of(owner) != nil {
		c.open = x.inFlight.Open[budget.ProxiedRequests].Hold(owner)
		if !c.open.Try(1) {
			return x.inFlight.Full(budget.ProxiedRequests, &c.open, 1)
		}
	}
	if c.r.ContentLength > maxVisit {
		return c.tooLarge(maxVisit)
	}
	x.limitBodyTo(c.w, c.r, maxVisit)
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxVisit)
	return x.pass(c, address)
}

// checkKey admits a key that may change pods.
func (x *podPorts) checkKey(c *call) error {
	key := c.r.Header.Get(PodKeyHeader)
	if key == "" {
		return errPodNeedsKey
	}
	id, err := x.auth.Authenticate(c.r.Context(), key)
	if err != nil {
		x.keyRefused(err)
		return err
	}
	if !id.Can(Permission{Area: "pods", Level: Write}) {
		return errForbidden
	}
	c.id = id
	return nil
}

// pass sends the request to an address, and the answer back.
func (x *podPorts) pass(c *call, address string) (failed error) {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{Scheme: "http", Host: address, Path: r.In.URL.Path, RawPath: r.In.URL.RawPath, RawQuery: r.In.URL.RawQuery, ForceQuery: r.In.URL.ForceQuery}
			r.Out.Host = r.In.Host
			x.toPod(c, r.Out.Header)
		},
		Transport: x.transport, BufferPool: x.buffers, ErrorLog: log.New(io.Discard, "", 0),
		ModifyResponse: func(res *http.Response) error {
			upgraded := res.StatusCode == http.StatusSwitchingProtocols
			if !upgraded && (res.StatusCode < 200 || res.StatusCode > 999) || countFields(res.Header) > maxAnswerFields {
				return errPodHead
			}
			fromPod(res.Header)
			fromTrailer(res.Trailer) // the announced names
			if !upgraded {
				res.Body = &trailed{res.Body, res}
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) { failed = podFailure(r.Context(), err) },
	}
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	proxy.ServeHTTP(&podAnswer{ResponseWriter: c.w, end: cancel}, c.r.WithContext(ctx))
	return failed
}

// A podAnswer is the writer of a pod's answer. It drops what comes before the answer (status 1xx), and
// ends the request of a pod that sends too many of these.
type podAnswer struct {
	http.ResponseWriter

	end   context.CancelCauseFunc
	early int // answers of status 1xx
}

// WriteHeader implements http.ResponseWriter.
func (w *podAnswer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
	} else if w.early++; w.early > maxEarly {
		w.end(errPodHead)
	}
}

// Unwrap is used by http.ResponseController.
func (w *podAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// toPod removes what a pod must not see of a request, and says who the client is.
func (x *podPorts) toPod(c *call, h http.Header) {
	h.Del(PodKeyHeader)
	c.forwarded(h, "")
	for i, line := range h["Cookie"] {
		h["Cookie"][i] = withoutSession(line)
	}
}

// withoutSession removes the console's cookies from a header. The others stay as they are: what programs put
// into cookies is often more than the standard allows, such as JSON.
func withoutSession(cookies string) string {
	kept := slices.DeleteFunc(strings.Split(cookies, ";"), func(part string) bool {
		name := strings.TrimSpace(part)
		return strings.HasPrefix(name, "__Host-podyard") || strings.HasPrefix(name, "__Secure-podyard")
	})
	return strings.TrimSpace(strings.Join(kept, ";"))
}

// fromPod removes what an answer of a pod would do to other names of the domain.
func fromPod(h http.Header) {
	h.Del("Clear-Site-Data") // it reaches the cookies of all names of the site, the console's among them
	for i, cookie := range h["Set-Cookie"] {
		parts := strings.Split(cookie, ";")
		kept := parts[:1]
		for _, p := range parts[1:] {
			if name, _, _ := strings.Cut(p, "="); !strings.EqualFold(strings.TrimSpace(name), "Domain") {
				kept = append(kept, p)
			}
		}
		h["Set-Cookie"][i] = strings.Join(kept, ";")
	}
}

// trailed is the body of a pod's answer, after which its trailers are known.
type trailed struct {
	io.ReadCloser

	res *http.Response
}

// Read implements io.Reader.
func (b *trailed) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if errors.Is(err, io.EOF) {
		fromTrailer(b.res.Trailer)
	}
	return n, err
}

// podFailure returns what a client is told of a request that did not reach a pod, or was not answered.
func podFailure(ctx context.Context, err error) error {
	var tooLarge *http.MaxBytesError
	var op *net.OpError
	var timeout net.Error
	switch {
	case errors.As(err, &tooLarge):
		return problem.Newf(problem.TooLarge, "the body must have at most %d bytes", int64(maxVisit))
	case errors.Is(err, errPodHead), errors.Is(context.Cause(ctx), errPodHead):
		return errPodHead
	case ctx.Err() != nil:
		return errStopped // the client has gone
	case errors.As(err, &op) && op.Op == "dial":
		return errPodSilent
	case errors.As(err, &timeout) && timeout.Timeout():
		return errPodTimeout
	}
	return errPodSilent
}
