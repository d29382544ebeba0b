package httpapi

import (
	"net/http"
	"strings"
	"time"
)

// Limits of what the head of a worker's answer has (docs/decisions.md 44).
const (
	maxAnswerHead   = 64 << 10 // bytes
	maxAnswerFields = 256      // a field of three bytes costs more than a hundred in memory
	maxEarly        = 8        // answers of status 1xx before the answer
)

// originHeaders act on a whole origin, and under balancePrefix a worker shares its origin with the
// interface and with other endpoints. So these do not pass there. What acts on one page only, such as
// Permissions-Policy, does.
var originHeaders = map[string]string{
	"Set-Cookie":                             "the browser sends it to the interface",
	"Set-Cookie2":                            "as Set-Cookie",
	"Set-Login":                              "says that a user has signed in at the origin",
	"Clear-Site-Data":                        "signs users out of the console",
	"Service-Worker-Allowed":                 "lets a script of the worker answer for other paths",
	"Strict-Transport-Security":              "is for the host, and lasts",
	"Public-Key-Pins":                        "is for the host, and lasts",
	"Public-Key-Pins-Report-Only":            "is for the host, and lasts",
	"Expect-Ct":                              "is for the host, and lasts",
	"Alt-Svc":                                "sends later requests to another server",
	"Origin-Agent-Cluster":                   "the first answer decides for all",
	"Nel":                                    "sends reports of all requests to the origin elsewhere",
	"Report-To":                              "names receivers of reports for the origin",
	"Reporting-Endpoints":                    "names receivers of reports",
	"Accept-Ch":                              "has the browser send more about itself to the origin, and lasts",
	"Accept-Ch-Lifetime":                     "as Accept-CH",
	"Critical-Ch":                            "as Accept-CH",
	"Use-As-Dictionary":                      "changes how other paths are requested",
	"Secure-Session-Registration":            "begins a session of the origin",
	"Sec-Session-Registration":               "as Secure-Session-Registration",
	"Shared-Storage-Write":                   "writes to the storage of the origin",
	"Attribution-Reporting-Register-Source":  "is registered for the origin",
	"Attribution-Reporting-Register-Trigger": "is registered for the origin",
}

// clientHeaders are headers in which proxies say who a client is and what it has asked for. Workers
// trust them because clients are not meant to reach workers directly. The service sets those of
// docs/interface.md 4.6 itself; the others do not pass.
var clientHeaders = map[string]string{
	"forwarded": "RFC 7239", "x-forwarded": "an older form of it",
	"x-real-ip": "nginx", "x-client-ip": "Apache", "client-ip": "Apache", "x-cluster-client-ip": "Rackspace and Zeus",
	"x-remote-ip": "several", "x-remote-addr": "several", "remote-addr": "the variable of CGI", "x-originating-ip": "several",
	"proxy-client-ip": "WebLogic", "wl-proxy-client-ip": "WebLogic", "x-proxyuser-ip": "Google",
	"true-client-ip": "Akamai, Cloudflare", "cf-connecting-ip": "Cloudflare", "cf-connecting-ipv6": "Cloudflare", "cf-pseudo-ipv4": "Cloudflare",
	"fastly-client-ip": "Fastly", "fly-client-ip": "Fly", "x-azure-clientip": "Azure", "x-azure-socketip": "Azure",
	"x-appengine-user-ip": "App Engine", "x-envoy-external-address": "Envoy",
	"remote-user": "the variable of CGI", "x-remote-user": "several", "x-forwarded-user": "OAuth2 Proxy",
	"x-original-url": "IIS and Symfony take it for the path", "x-rewrite-url": "IIS and Symfony take it for the path",
	"x-original-uri": "nginx", "x-original-host": "IIS", "x-original-for": "ASP.NET", "x-original-proto": "ASP.NET", "x-original-method": "nginx", "x-original-forwarded-for": "nginx in Kubernetes",
	"x-host": "several take it for the host", "x-forwarded-host": "several", "proxy": "CGI takes it for HTTP_PROXY",
}

// isClientHeader reports whether a header of a client does not reach workers. Some programs take a _
// for a -.
func isClientHeader(name string) bool {
	plain := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	return clientHeaders[plain] != "" || strings.HasPrefix(plain, "x-forwarded-")
}

// A part is a part of a worker's answer that has headers.
type part int

const (
	headPart    part = iota
	earlyPart        // an answer of status 103
	trailerPart      // after the body
)

// pass removes the headers of a worker that do not reach the client.
func (p *proxied) pass(h http.Header, in part) {
	switch in {
	case earlyPart:
		link := h["Link"] // what early hints are for; the rest is in the answer
		clear(h)
		if len(link) > 0 {
			h["Link"] = link
		}
	case trailerPart:
		fromTrailer(h)
		return
	case headPart:
		h.Set(workerHeader, string(p.lease.Target().Worker.ID))
	}
	if p.place.prefix != "" {
		sandbox(h)
	}
}

// fromTrailer removes trailers: a client that adds trailers to the headers must find nothing there that decides
// how it takes the answer.
func fromTrailer(h http.Header) {
	for name := range h {
		if originHeaders[name] != "" || name == workerHeader || strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "Access-Control-") {
			delete(h, name)
		}
	}
}

// sandbox removes what a worker must not do to the origin of the interface.
func sandbox(h http.Header) {
	for name := range h {
		if originHeaders[name] != "" {
			delete(h, name)
		}
	}
	const csp, value = "Content-Security-Policy", "sandbox"
	if policies := h[csp]; len(policies) == 0 || policies[0] != value {
		h[csp] = append([]string{value}, policies...)
	}
}

// countFields counts the lines of a header.
func countFields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// A workerAnswer is the writer of the answer of a worker.
type workerAnswer struct {
	http.ResponseWriter

	p     *proxied
	early int // answers of status 1xx
}

// WriteHeader implements http.ResponseWriter. Of the answers before the answer only 103 passes: 100 is the
// server's own to send, and of the others clients know nothing.
func (w *workerAnswer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	if w.early++; w.early > maxEarly || countFields(w.Header()) > maxAnswerFields {
		w.p.cancel(errWorkerHead)
		return
	}
	if status != http.StatusEarlyHints {
		return
	}
	w.p.pass(w.Header(), earlyPart)
	rc := http.NewResponseController(w.ResponseWriter)
	_ = rc.SetWriteDeadline(time.Now().Add(slowReader)) // not every writer has deadlines
	w.ResponseWriter.WriteHeader(status)                // it is written at once
	_ = rc.SetWriteDeadline(time.Time{})
}

// Unwrap is used by http.ResponseController.
func (w *workerAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// flush sends what is left of an answer. An answer without a body would be sent after the request, where
// a client that does not read it could hold it for ever.
func (w *workerAnswer) flush() {
	rc := http.NewResponseController(w.ResponseWriter)
	_ = rc.SetWriteDeadline(time.Now().Add(slowReader)) // not every writer has deadlines
	_ = rc.Flush()                                      // the client may be gone
	_ = rc.SetWriteDeadline(time.Time{})
}
