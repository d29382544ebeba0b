package httpapi

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/podyard/podyard/serverless/endpoints"
)

// balancePrefix begins the paths of load-balancing endpoints on the host of the interface.
const balancePrefix = "/lb/"

// A balanceRouter serves the requests to load-balancing endpoints. Their paths belong to the
// workers, so there is no mux, which would clean them.
type balanceRouter struct {
	*router
	op *operation
}

func (a *api) balanceRouter() *balanceRouter {
	x := &balanceRouter{router: &router{api: a, conventions: APIBalance.conventions()}}
	for _, o := range table() {
		if o.API == APIBalance && a.has(o.Area) {
			x.op = &o
		}
	}
	return x
}

// ServeHTTP routes a request.
func (x *balanceRouter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.limitBodyTo(w, r, maxProxied)
	p, ok := x.placeOf(r)
	if _, host := underDomain(r.Host, x.domain); !host {
		w = &sandboxed{ResponseWriter: w}
	}
	switch {
	case !ok || x.op == nil:
		x.unrouted(w, r, errNoRoute)
	case !slices.Contains(x.op.methodsServed(), r.Method):
		w.Header().Set("Allow", strings.Join(x.op.methodsServed(), ", "))
		x.unrouted(w, r, errNoMethod)
	default:
		r.SetPathValue("endpoint", p.endpoint)
		x.serve(&call{router: x.router, op: x.op, w: w, r: r})
	}
}

// ToWorker reports whether a handler with these options sends a request to a worker of a
// load-balancing endpoint or to a port of a pod, and has no other meaning for it.
func (o *Options) ToWorker(r *http.Request) bool {
	if _, under := podPortOf(r.Host, o.PodDomain); under {
		return true
	}
	return toWorker(o.LoadBalancerDomain, r)
}

func toWorker(domain string, r *http.Request) bool {
	_, host := underDomain(r.Host, domain)
	return host || strings.HasPrefix(r.URL.Path, balancePrefix)
}

// placeOf returns where a request goes. ok is false for a path with a dot segment and for a
// name that no endpoint can have.
func (a *api) placeOf(r *http.Request) (p destination, ok bool) {
	label, host := underDomain(r.Host, a.domain)
	if !host {
		return placeAt(r.URL)
	}
	p = destination{endpoint: label, path: sentPath(r.URL)}
	return p, isDNSLabel(label) && strings.HasPrefix(p.path, "/") && !hasDotSegment(r.URL.Path)
}

// placeAt is placeOf for a path under balancePrefix.
func placeAt(u *url.URL) (p destination, ok bool) {
	rest, cut := strings.CutPrefix(sentPath(u), balancePrefix)
	id, _, slash := strings.Cut(rest, "/")
	p = destination{endpoint: id, prefix: balancePrefix + id, path: rest[len(id):]}
	return p, cut && slash && endpoints.CheckID(id) == nil && !hasDotSegment(u.Path)
}

// sentPath returns a path as the client has sent it.
func sentPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// underDomain returns what a host has before a domain. ok is false for another host. Letter
// case and a dot at the end make no difference for ok, so that no spelling of a name of a
// worker leads to the interface; the label keeps its spelling.
func underDomain(host, domain string) (label string, ok bool) {
	if domain == "" {
		return "", false
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	n := len(strings.TrimSuffix(host, ".")) - len(domain) - 1
	if n < 0 || !strings.EqualFold(strings.TrimSuffix(host[n:], "."), "."+domain) {
		return "", false
	}
	if host[n:] != "."+domain {
		return "", true // no endpoint has this name
	}
	return host[:n], true
}

// isDNSLabel reports whether s is a label of a host in lower case.
func isDNSLabel(s string) bool {
	return 1 <= len(s) && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-' &&
		!strings.ContainsFunc(s, func(c rune) bool { return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') })
}

func hasDotSegment(path string) bool {
	for seg := range strings.SplitSeq(path, "/") {
		if seg == "." || seg == ".." {
			return true
		}
	}
	return false
}

// A sandboxed is the writer of an answer under balancePrefix.
type sandboxed struct {
	http.ResponseWriter

	begun bool
}

// WriteHeader implements http.ResponseWriter.
func (w *sandboxed) WriteHeader(status int) {
	w.begun = w.begun || status >= 200
	sandbox(w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *sandboxed) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is used by http.ResponseController.
func (w *sandboxed) Unwrap() http.ResponseWriter { return w.ResponseWriter }
