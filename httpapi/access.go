package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
)

// An Observer gets what happens to requests, for metrics. Its methods are called by many
// goroutines at once and must not block. area and operation are those of Operations, "none" for
// a request without an operation.
type Observer interface {
	RequestBegan(area string)
	// RequestEnded has the status of the answer, 0 where there was none, 499 where the client went
	// away before it, and the traceparent of the request, or "".
	RequestEnded(area, operation string, status int, took time.Duration, traceparent string)
	// RequestLimited has the limit that refused a request: minute, hour, day, rate or concurrency.
	RequestLimited(limit string)
	// KeyRefused says why: missing, malformed, invalid or forbidden.
	KeyRefused(reason string)
}

// noOperation is the area and the operation of a request without one.
const noOperation = "none"

// statusLeft is the status of a request whose client went away before the answer, for the access log
// and the observer: it was no fault of the server.
const statusLeft = 499

// left reports whether a request failed only because its client went away.
func (c *call) left(err error) bool {
	return c.r.Context().Err() != nil && errors.Is(err, context.Canceled)
}

// recorded reports whether somebody wants to know of each request.
func (a *api) recorded() bool { return a.observer != nil || a.access != nil }

// names returns the area and the operation of a request.
func (c *call) names() (area, operation string) {
	if c.op == nil {
		return noOperation, noOperation
	}
	return string(c.op.Area), c.op.Name
}

// arrive begins the record of a request.
func (x *router) arrive(c *call) {
	if !x.recorded() {
		return
	}
	c.arrived = time.Now()
	c.answer.ResponseWriter = c.w
	c.w = &c.answer
	if x.access != nil && (c.op == nil || c.op.Area != AreaBalance) { // there the worker answers
		c.w.Header().Set(requestIDHeader, c.requestID())
	}
	if x.observer != nil {
		area, _ := c.names()
		x.observer.RequestBegan(area)
	}
}

// depart ends the record of a request.
func (x *router) depart(c *call) {
	if c.arrived.IsZero() {
		return
	}
	took := time.Since(c.arrived)
	area, operation := c.names()
	if x.observer != nil {
		parent := c.r.Header.Get("Traceparent")
		x.observer.RequestEnded(area, operation, c.answer.status, took, parent)
	}
	if x.access == nil {
		return
	}
	level := slog.LevelInfo
	if c.answer.status < 400 && c.isRoutine() {
		level = slog.LevelDebug
	}
	ctx := context.WithoutCancel(c.r.Context())
	if !x.access.Enabled(ctx, level) {
		return
	}
	x.access.LogAttrs(ctx, level, "request",
		slog.String("id", c.requestID()), slog.String("method", c.r.Method), slog.String("path", c.loggedPath()), slog.String("operation", operation),
		slog.String("endpoint", c.endpointName()), slog.String("record", c.record()), slog.String("user", c.id.User), slog.String("from", source(c.r, x.proxies)),
		slog.Int("status", c.answer.status), slog.String("took", took.String()), slog.Int64("bytes", c.answer.bytes))
}

// loggedPath is the path of the request without the query, cut where it is long. What follows the
// endpoint of a load-balancing request belongs to its workers, and may be secret.
func (c *call) loggedPath() string {
	const most = 200
	path := c.r.URL.Path
	switch {
	case c.op == &podPortOperation:
		return ""
	case c.op != nil && c.op.Area == AreaBalance:
		path = "/lb/" + c.r.PathValue("endpoint")
	case len(path) > most:
		path = path[:most] + "..."
	}
	return strings.ToValidUTF8(path, "")
}

// endpointName is the id of the endpoint that the request is about, or "".
func (c *call) endpointName() string {
	if c.op != nil && c.op.Area == AreaEndpoints {
		return c.r.PathValue("id")
	}
	return c.r.PathValue("endpoint")
}

// record is the id of what the request made, or else of what its path names, or "".
func (c *call) record() string {
	if c.made != "" {
		return c.made
	}
	for _, name := range []string{"id", "podId", "job", "schedule", "batch", "name"} {
		if id := c.r.PathValue(name); id != "" {
			return id
		}
	}
	return ""
}

// isRoutine reports whether a request is one of those that programs repeat all the time.
func (c *call) isRoutine() bool {
	return c.op != nil && (c.op.Area == AreaWorkers || c.op.Name == "health" || c.op.Name == "metrics" || c.op == &podPortOperation)
}

const (
	requestIDHeader = "X-Request-Id"
	maxRequestID    = 128
)

// requestID returns the id of the request: the client's, or one that is made here.
func (c *call) requestID() string {
	if c.name == "" {
		if c.name = c.r.Header.Get(requestIDHeader); !isRequestID(c.name) {
			c.name = c.madeIDs + "-" + strconv.FormatUint(c.lastID.Add(1), 36)
		}
	}
	return c.name
}

// isRequestID reports whether the id of a client can be logged and answered.
func isRequestID(s string) bool {
	return s != "" && len(s) <= maxRequestID && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:") == ""
}

// keyRefused reports a request whose key is missing, wrong or not enough.
func (x *router) keyRefused(err error) {
	if x.observer == nil || err == nil {
		return
	}
	switch kind := problem.KindOf(err); {
	case err == errNoKey: //nolint:errorlint // it is returned as it is
		x.observer.KeyRefused("missing")
	case err == errMalformed: //nolint:errorlint // it is returned as it is
		x.observer.KeyRefused("malformed")
	case kind == problem.Unauthorized:
		x.observer.KeyRefused("invalid")
	case kind == problem.Forbidden:
		x.observer.KeyRefused("forbidden")
	}
}

// limited reports a refused request and returns its error.
func (x *router) limited(d ratelimit.Decision, window bool) error {
	if x.observer != nil {
		limit := "rate"
		switch {
		case window:
			limit = d.Exceeded
		case len(d.States) > 0 && d.States[0].Remaining > 0:
			limit = "concurrency"
		}
		x.observer.RequestLimited(limit)
	}
	return limited(d)
}

// ForOperators serves h to the keys of operators, and refuses all others as the operations of
// operators do. It is for what a program has beside the interface, such as metrics. o may be
// nil, and then every request is refused.
func ForOperators(h http.Handler, o *Options) http.Handler {
	x := newAPI(Services{}, o).router(APIControl)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{router: x, w: w, r: r}
		err := x.identify(c)
		if err == nil && !c.id.Operator() {
			err = errForbidden
		}
		x.keyRefused(err)
		if err == nil {
			h.ServeHTTP(w, r)
			return
		}
		if problem.KindOf(err) == problem.Unauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		x.write(w, err)
	})
}
