package httpapi

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/balance"
	"github.com/podyard/podyard/serverless/queue"
)

func balanceOperations() []operation {
	return group(APIBalance, AreaBalance,
		op("proxy", "GET,POST,PUT,PATCH,DELETE,OPTIONS /lb/{endpoint}/{path...}", ScopeEndpointRun, proxyRequest, rate(ratelimit.Run), added, staysOpen(budget.ProxiedRequests)),
	)
}

func (b *describer) describeBalance() map[string]description {
	anything := &openapi.Schema{}
	wanted := &openapi.Parameter{
		Name: workerHeader, In: "header", Schema: openapi.Of("string"),
		Description: "The id of a worker that is preferred. After strict and a blank: no other one.",
	}
	return map[string]description{
		"proxy": {
			summary: "Send a request to a worker of a load-balancing endpoint",
			text:    "Path, query, body and answer are whatever the worker makes of them. A request is held for 2 minutes until there is a worker.",
			params:  []*openapi.Parameter{wanted}, body: anything, optional: true, answers: ok(anything),
		},
	}
}

// Limits of requests to the workers of load-balancing endpoints (docs/decisions.md 44).
const (
	maxProxied = 30 << 20                       // bytes of a request, and of an answer that is no stream
	answerTime = 5*time.Minute + 30*time.Second // without a byte of the answer
)

// workerHeader names the worker in answers, and the wanted worker in requests.
const workerHeader = "X-Runpod-Worker-Id"

var (
	errQueued     = problem.New(problem.BadRequest, "the endpoint has a queue: send jobs to its run operation")
	errBalanced   = problem.New(problem.BadRequest, "the endpoint is of the type LOAD_BALANCER: send requests to its base URL")
	errUpgrade    = problem.New(problem.BadRequest, "the only protocol that a connection can be upgraded to is websocket")
	errBadPath    = problem.New(problem.BadRequest, "the path has a character that must be escaped")
	errNoAnswer   = problem.New(problem.WorkerTimeout, "the worker did not answer in 330 seconds")
	errNoWorker   = problem.New(problem.BadGateway, "the worker ended the connection without an answer")
	errWorkerHead = problem.New(problem.BadGateway, "the worker's answer has a status that does not exist, or too many headers")
	errReplaced   = problem.New(problem.BadGateway, "the worker is being replaced and has not answered in time")
	errLateBody   = problem.New(problem.RequestTimeout, "the body did not arrive in time")
	errCutBody    = problem.New(problem.BadRequest, "the body ended early")
	errAnswerEnd  = errors.New("httpapi: the answer of a worker is too large")
)

// A proxied is a request that is sent to a worker of a load-balancing endpoint.
type proxied struct {
	*call
	place    destination
	affinity balance.Affinity
	acquire  func() error // waits for a worker
	cancel   context.CancelCauseFunc

	lease  *balance.Lease
	conn   *workerConn // of the last attempt; nil: it got none
	before int64       // bytes that were sent on conn before this request
	upload *upload     // nil: there is no body
	silent *time.Timer // cancels the request
	socket *socket     // after an upgrade
	err    error       // to be answered
}

// proxyRequest sends a request to a worker. A body is not read before there is a worker.
func proxyRequest(c *call) error {
	if !upgradesToWebSocket(c.r.Header) {
		return errUpgrade
	}
	if c.r.ContentLength > maxProxied {
		return c.tooLarge(maxProxied)
	}
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	hold, stop := c.clockWaitContext(balance.HoldTime)
	defer stop()
	place, _ := c.placeOf(c.r)
	p := &proxied{call: c, place: place, affinity: affinityOf(c.r.Header), cancel: cancel}
	p.acquire = func() error { return p.take(hold) }
	if err := p.acquire(); err != nil {
		return err
	}
	defer p.end()
	p.silent = time.AfterFunc(answerTime, func() { cancel(errNoAnswer) })
	p.silent.Stop()
	proxy := &httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: p, ModifyResponse: p.answer, ErrorHandler: p.fail,
		BufferPool: p.buffers, ErrorLog: log.New(io.Discard, "", 0),
	}
	w := &workerAnswer{ResponseWriter: p.w, p: p}
	proxy.ServeHTTP(w, p.r.WithContext(ctx))
	if p.err == nil && p.socket == nil {
		w.flush()
	}
	return p.err
}

// upgradesToWebSocket reports whether a request asks for no upgrade, or for one to WebSocket.
func upgradesToWebSocket(h http.Header) bool {
	asked := h["Upgrade"]
	return len(asked) == 0 || len(asked) == 1 && strings.EqualFold(asked[0], "websocket")
}

// affinityOf reads which worker a request wants: its id, or "strict" and its id. A stopped
// worker does not come back here, so "strict-resume" is the same as "strict".
func affinityOf(h http.Header) balance.Affinity {
	first, id, two := strings.Cut(strings.TrimSpace(h.Get(workerHeader)), " ")
	switch {
	case !two:
		return balance.Affinity{Worker: queue.WorkerID(first)}
	case first == "strict" || first == "strict-resume":
		return balance.Affinity{Worker: queue.WorkerID(strings.TrimSpace(id)), Strict: true}
	}
	return balance.Affinity{}
}

// take waits for a worker until hold ends.
func (p *proxied) take(hold context.Context) (err error) {
	if p.lease, err = p.Jobs.AcquireWorker(hold, p.place.endpoint, p.affinity); err != nil {
		p.limitBodyTo(p.w, p.r, maxProxied) // for the rest of the body, which net/http reads
		if p.r.Context().Err() != nil {
			return errStopped
		}
		return err
	}
	p.lease.OnEnd(func() { p.cancel(errReplaced) })
	return nil
}

var errStopped = problem.New(problem.Unavailable, "the server is stopping")

// end frees the worker.
func (p *proxied) end() {
	p.silent.Stop()
	if p.socket != nil {
		p.socket.release()
	}
	if p.lease != nil {
		p.lease.Release()
	}
}

// rewrite makes the request for the worker.
func (p *proxied) rewrite(r *httputil.ProxyRequest) {
	out, h := r.Out, r.Out.Header
	out.URL = p.place.target(r.In.URL)
	out.Host = r.In.Host
	h.Del("Authorization")
	h.Del("Expect") // the body is asked for when the worker is there
	p.forwarded(h, p.place.prefix)
	if out.Body != nil {
		// The worker may answer while the body still comes. Otherwise net/http would read the rest of
		// the body beside the upload, which would then be short. A writer that cannot is no connection.
		_ = http.NewResponseController(p.w).EnableFullDuplex()
		p.limitBodyTo(p.w, p.r, maxProxied)
		p.upload = &upload{body: out.Body, done: p.uploaded}
		out.Body = p.upload
		return
	}
	keepOnce(out)
}

// uploaded is called when the worker has the whole body.
func (p *proxied) uploaded() {
	p.clearBodyDeadline()
	p.silent.Reset(answerTime)
}

// keepOnce makes http.Transport send a request without a body at most once. It would repeat
// a request of these methods, or with these headers, after a worker has closed a connection.
func keepOnce(out *http.Request) {
	switch out.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		out.Body = noBody{}
	}
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if v, ok := out.Header[name]; ok {
			delete(out.Header, name)
			out.Header[strings.ToLower(name)] = v
		}
	}
}

// A noBody is an empty body that http.Transport does not recognize as one.
type noBody struct{}

func (noBody) Read([]byte) (int, error) { return 0, io.EOF }
func (noBody) Close() error             { return nil }

// forwarded replaces the headers that name the client. prefix is of a path that the worker does not see.
func (c *call) forwarded(h http.Header, prefix string) {
	for name := range h {
		if isClientHeader(name) {
			delete(h, name)
		}
	}
	if from := source(c.r, c.proxies); from != "" {
		h.Set("X-Forwarded-For", from)
	}
	h.Set("X-Forwarded-Host", c.r.Host)
	scheme, _, _ := strings.Cut(c.publicURL(), ":")
	h.Set("X-Forwarded-Proto", scheme)
	if prefix != "" {
		h.Set("X-Forwarded-Prefix", prefix)
	}
}

// RoundTrip implements http.RoundTripper. It tries another worker only if the worker got
// nothing of the request.
func (p *proxied) RoundTrip(out *http.Request) (*http.Response, error) {
	if out.URL.Path == "" && out.URL.Opaque == "" {
		return nil, errBadPath
	}
	for {
		res, err := p.try(out)
		if err == nil || p.hasSent() || out.Context().Err() != nil {
			return res, err
		}
		p.lease.Unreachable()
		p.lease.Release()
		if err := p.acquire(); err != nil {
			return nil, err
		}
	}
}

// try sends the request to the worker of the lease.
func (p *proxied) try(out *http.Request) (*http.Response, error) {
	p.conn = nil
	if p.upload == nil {
		p.silent.Reset(answerTime)
	}
	t := p.lease.Target()
	out.URL.Host = hostOf(t)
	ctx := context.WithValue(out.Context(), targetKey{}, t)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		p.conn, _ = i.Conn.(*workerConn)
		p.before = p.conn.sent.Load()
	}})
	return p.transport.RoundTrip(out.WithContext(ctx))
}

// hasSent reports whether the worker may have got something of the request.
func (p *proxied) hasSent() bool {
	return p.upload != nil && p.upload.begun.Load() || p.conn != nil && p.conn.sent.Load() > p.before
}

// answer prepares the answer of the worker for the client.
func (p *proxied) answer(res *http.Response) error {
	if err := context.Cause(res.Request.Context()); err != nil { // the answer came all the same
		_ = res.Body.Close() // nobody reads it
		return err
	}
	upgraded := res.StatusCode == http.StatusSwitchingProtocols
	if !upgraded && (res.StatusCode < 200 || res.StatusCode > 599) || countFields(res.Header) > maxAnswerFields {
		_ = res.Body.Close() // nobody reads it
		return errWorkerHead
	}
	p.pass(res.Header, headPart)
	p.pass(res.Trailer, trailerPart) // the announced names
	if upgraded {
		return p.upgraded(res)
	}
	p.silent.Reset(answerTime)
	limit := int64(maxProxied)
	if isStream(res.Header) {
		limit = -1
	}
	res.Body = &download{ReadCloser: res.Body, silent: p.silent, left: limit, ended: func() { p.pass(res.Trailer, trailerPart) }}
	return nil
}

// upgraded prepares a WebSocket.
func (p *proxied) upgraded(res *http.Response) error {
	p.silent.Stop()
	worker, ok := res.Body.(io.ReadWriteCloser)
	if !ok || p.conn == nil {
		return errNoWorker
	}
	p.socket = newSocket(worker, p.conn)
	res.Body = p.socket
	p.lease.OnEnd(p.socket.goAway)
	return nil
}

// isStream reports whether an answer may be of any length.
func isStream(h http.Header) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(media)) {
	case "text/event-stream", "application/x-ndjson":
		return true
	}
	return false
}

// fail records the error to answer, if the worker gave no answer.
func (p *proxied) fail(w http.ResponseWriter, r *http.Request, err error) {
	p.err = p.reason(r.Context(), err)
	if p.lease != nil {
		w.Header().Set(workerHeader, string(p.lease.Target().Worker.ID))
	}
}

func (p *proxied) reason(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case p.r.Context().Err() != nil:
		return errStopped
	case cause != nil:
		return cause
	}
	if p.upload != nil {
		switch failed := p.upload.failed(); {
		case errors.Is(failed, errBodySize):
			return p.tooLarge(maxProxied)
		case errors.Is(failed, os.ErrDeadlineExceeded):
			p.w.Header().Set("Connection", "close") // net/http would wait for the rest of the body
			return errLateBody
		case failed != nil:
			return errCutBody
		}
	}
	if problem.KindOf(err) != problem.Internal {
		return err
	}
	if p.lease != nil {
		p.lease.Unreachable() // it may be dead: the next requests go elsewhere until a check says more
	}
	p.log.Debug("a worker did not answer", "endpoint", p.place.endpoint, "err", err)
	return errNoWorker
}

// A destination is where a request goes.
type destination struct {
	endpoint string
	prefix   string // of the path, which the worker does not see; empty for a host of its own
	path     string // as it was sent, after the prefix
}

// target returns the URL for the worker, without its host. It has neither Path nor Opaque if
// the path cannot be sent as it is.
func (p destination) target(in *url.URL) *url.URL {
	u := &url.URL{Scheme: "http", RawQuery: in.RawQuery, ForceQuery: in.ForceQuery}
	if !strings.HasPrefix(p.path, "//") {
		u.Opaque = p.path
		return u
	}
	u.Path, u.RawPath = unescape(p.path), p.path
	if u.EscapedPath() != p.path {
		u.Path = ""
	}
	return u
}
