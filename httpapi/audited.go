package httpapi

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/problem"
)

func auditOperations() []operation {
	return group(APIControl, AreaAdmin,
		op("listAudit", "GET /v2/admin/audit", ScopeOperator, listAudit, added),
	)
}

func (b *describer) describeAudit() map[string]description {
	return map[string]description{
		"listAudit": {summary: "List what was changed and refused, newest first", answers: ok(b.list("records", openapi.For[audit.Record](&b.Builder), false)), params: []*openapi.Parameter{
			number("limit", 1, maxAudit, defaultAudit, "How many."),
			instant("before", "Only earlier ones."),
			instant("since", "Only those of then or later."),
			inQuery("kind", openapi.OneOf(openapi.Of("string"), audit.Change, audit.Refusal, audit.Dropped), "Only of this kind."),
			inQuery("user", openapi.Of("string").NotEmpty(), "Only of this user."),
			inQuery("operation", openapi.Of("string").NotEmpty(), "Only of this operation."),
		}},
	}
}

// acts says which requests of an operation go to the audit log, in addition to refused ones
// (docs/decisions.md 35).
type acts uint8

const (
	actsOfNobody acts = iota
	actsOfOperators
	actsOfAll
)

// A statusWriter records the status of an answer and the bytes of its body.
type statusWriter struct {
	http.ResponseWriter

	status int
	bytes  int64
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols { // others are not the answer
		w.status = cmp.Or(w.status, status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is used by http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// watch records the status of a change.
func (x *router) watch(c *call) {
	if _, watched := c.w.(*statusWriter); !watched && x.audit != nil && c.op.acts != actsOfNobody {
		c.w = &statusWriter{ResponseWriter: c.w}
	}
}

// note writes a request and its result to the audit log if they belong there.
func (x *router) note(c *call, err error) {
	if x.audit == nil {
		return
	}
	kind, status := c.noted(err)
	if kind == "" {
		return
	}
	r := audit.Record{
		Time: x.clock.Now(), Kind: kind, User: c.id.User, Key: c.keyName(), Operation: c.op.Name, Path: c.r.URL.Path,
		Record: c.record(), Owner: c.actedFor(), Source: source(c.r, x.proxies), Agent: c.r.UserAgent(), Status: status,
	}
	if x.access != nil {
		r.Request = c.requestID() // by which the log and the answer name it, too
	}
	x.audit.Record(r)
}

// noted returns the kind of record for a request, or empty for none, and its status. A
// request that failed without a change has no record.
func (c *call) noted(err error) (audit.Kind, int) {
	status := http.StatusOK
	if w, ok := c.w.(*statusWriter); ok {
		status = cmp.Or(w.status, status)
	}
	if err != nil {
		kind := problem.KindOf(err)
		status = kind.Status()
		switch kind {
		case problem.Unauthorized, problem.Forbidden, problem.TooManyRequests:
			return audit.Refusal, status
		}
	}
	if c.acted() && (err == nil || status >= 500 && status != http.StatusNotImplemented) {
		return audit.Change, status
	}
	return "", 0
}

// acted reports whether an admitted request goes to the audit log.
func (c *call) acted() bool {
	switch c.op.acts {
	case actsOfAll:
		return c.id.User != ""
	case actsOfOperators:
		return c.id.Operator()
	}
	return false
}

// keyName returns a name for the request's key that does not show the key.
func (c *call) keyName() string {
	if c.id.Key != "" {
		return c.id.Key
	}
	key, err := keyOf(c.r.Header.Get("Authorization"), true)
	if err != nil {
		return ""
	}
	return accounts.DigestOf(key).String()
}

// actedFor returns the user whose records an operator has changed, if that is another user.
// Operations without the parameter owner may ignore it.
func (c *call) actedFor() string {
	if !c.id.Operator() {
		return ""
	}
	owner := ""
	if c.op.Owners != OwnersNone {
		owner, _ = c.query("owner")
	}
	return cmp.Or(c.w.Header().Get(ownerHeader), owner)
}

// Source returns the address that a request comes from: the last one that is not a trusted
// proxy. It is empty for a request that did not come over a network.
func (o *Options) Source(r *http.Request) string { return source(r, o.TrustedProxies) }

func source(r *http.Request, proxies []netip.Prefix) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "" // not a network connection
	}
	at := from.Addr().Unmap()
	for hops := strings.Join(r.Header.Values("X-Forwarded-For"), ","); hops != "" && trusts(proxies, at); {
		i := strings.LastIndexByte(hops, ',')
		before, err := parseHop(strings.TrimSpace(hops[i+1:]))
		if err != nil {
			break
		}
		at, hops = before, hops[:max(i, 0)]
	}
	return at.WithZone("").String()
}

func trusts(proxies []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a.WithZone("")) })
}

// parseHop reads an address with or without a port.
func parseHop(s string) (netip.Addr, error) {
	if p, err := netip.ParseAddrPort(s); err == nil {
		return p.Addr().Unmap(), nil
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return a.Unmap(), err
}

var errNoAudit = problem.New(problem.NotImplemented, "this program keeps no audit log")

// Limits of the number of records in an answer.
const (
	defaultAudit = 100
	maxAudit     = 1000
)

func listAudit(c *call) error {
	q := audit.Query{}
	var err error
	if q.Limit, err = c.queryInt("limit", defaultAudit, 1, maxAudit); err != nil {
		return err
	}
	if q.Before, err = c.queryTime("before"); err != nil {
		return err
	}
	if q.Since, err = c.queryTime("since"); err != nil {
		return err
	}
	if q.Kind, err = queryOneOf(c, "kind", "", audit.Change, audit.Refusal, audit.Dropped); err != nil {
		return err
	}
	if q.User, err = c.queryText("user"); err != nil {
		return err
	}
	if q.Operation, err = c.queryText("operation"); err != nil {
		return err
	}
	if c.audit == nil {
		return errNoAudit
	}
	list, err := c.audit.Read(c.r.Context(), q)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Records []audit.Record `json:"records"`
	}{orEmpty(list)})
}
