package double

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
)

// faultOf returns the fault that applies around the handler of a request, or nil.
func (f *faults) faultOf(x *exchange) *Fault {
	around := f.hit(func(a *Fault) bool { return a.isOfRequest() && a.matches(x) })
	if around != nil {
		x.entry.Fault, x.around = around.Name, around.Name
	}
	return around
}

// losesAnswer reports whether the request has its effect and its answer is lost.
func (x *exchange) losesAnswer() bool {
	return x.around == FaultLostAnswer || x.around == FaultTruncated || x.around == FaultGarbage
}

// serveFault serves a request with the fault f.
func (w *instance) serveFault(f *Fault, out *recorder, x *exchange, r *http.Request) {
	switch f.Name {
	case FaultStatus:
		refuse(out, x, cmp.Or(f.Status, http.StatusInternalServerError), "a fault of the test double")
	case FaultRateLimited:
		w.limit(out, x, cmp.Or(f.RetryAfter, 1))
	case FaultExpiredKey:
		out.Header().Set("WWW-Authenticate", "Bearer")
		refuse(out, x, http.StatusUnauthorized, "invalid or expired token")
	case FaultForbidden:
		refuse(out, x, http.StatusForbidden, "access denied")
	case FaultLatency:
		w.delay(r.Context(), x, f.Delay)
		w.api.ServeHTTP(out, r)
	case FaultGateway:
		htmlPage(out, cmp.Or(f.Status, http.StatusBadGateway))
	case FaultReset:
		out.cut(true)
	case FaultEmpty:
		out.cut(false)
	case FaultNoAnswer:
		w.delay(r.Context(), x, f.Delay)
		out.cut(false)
	case FaultNoHTTP:
		out.writeGarbage()
	case FaultSlowBody:
		w.api.ServeHTTP(&trickle{recorder: out, bytes: max(f.Bytes, 1), wait: func() { w.delay(r.Context(), x, f.Delay) }}, r)
	case FaultLostAnswer:
		w.api.ServeHTTP(newBuffer(), r)
		out.cut(false)
	case FaultTruncated:
		b := newBuffer()
		w.api.ServeHTTP(b, r)
		b.to(out, b.body.Bytes()[:b.arrives(f.Bytes)])
		out.cut(false)
	case FaultGarbage:
		b := newBuffer()
		w.api.ServeHTTP(b, r)
		out.Header().Set("Content-Type", b.header.Get("Content-Type"))
		out.WriteHeader(b.status)
		_, _ = out.Write([]byte(`{"id": <html>`))
	}
}

// delay waits in virtual or wall time, whichever passes first.
func (w *instance) delay(ctx context.Context, x *exchange, d time.Duration) {
	w.act.waits(x, true)
	defer w.act.waits(x, false)
	over := make(chan struct{})
	defer w.clock.AfterFunc(w.clock.Now().Add(d), func() { w.act.waits(x, false); close(over) })()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (a *activity) waits(x *exchange, yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x.waiting, x.resting = yes, yes
	a.changed()
}

// refuse answers with a problem as the handlers do.
func refuse(out http.ResponseWriter, x *exchange, status int, detail string) {
	doc := map[string]any{"title": http.StatusText(status), "status": status, "detail": detail}
	if x.op == nil || x.op.Area == httpapi.AreaJobs || x.op.Area == httpapi.AreaSchedules || x.op.Area == httpapi.AreaBatches || x.op.Area == httpapi.AreaWorkers {
		doc["error"] = detail // the SDKs read it
	}
	b, err := json.Marshal(doc)
	if err != nil {
		b = []byte(`{}`)
	}
	h := out.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	out.WriteHeader(status)
	_, _ = out.Write(b)
}

// htmlPage answers like a proxy that cannot reach the service.
func htmlPage(out http.ResponseWriter, status int) {
	text := strconv.Itoa(status) + " " + http.StatusText(status)
	body := "<html>\n<head><title>" + text + "</title></head>\n<body><h1>" + text + "</h1></body>\n</html>\n"
	out.Header().Set("Content-Type", "text/html")
	out.Header().Set("Content-Length", strconv.Itoa(len(body)))
	out.WriteHeader(status)
	_, _ = out.Write([]byte(body))
}

// limit refuses a request as the product does when its limit is reached. The request may be
// repeated after so many seconds.
func (w *instance) limit(out http.ResponseWriter, x *exchange, seconds int) {
	d := w.reached(x, seconds)
	h := out.Header()
	h.Set("Retry-After", strconv.Itoa(seconds))
	if len(d.States) > 0 {
		h.Set("RateLimit", d.RateLimit())
		h.Set("RateLimit-Policy", d.RateLimitPolicy())
	}
	refuse(out, x, problem.TooManyRequests.Status(), d.Detail)
}

// reached returns the decision of an operation's limit that is reached.
func (w *instance) reached(x *exchange, seconds int) (d ratelimit.Decision) {
	switch {
	case x.op != nil && x.op.Limit == httpapi.LimitRate:
		r := ratelimit.NewRates(0)
		for d.OK = true; d.OK; {
			var pass *ratelimit.Permit
			pass, d = r.Acquire(w.clock.Now(), ratelimit.Key{Operation: x.op.Rate}, 0)
			pass.Release()
		}
	case x.op != nil && x.op.Limit == httpapi.LimitWindows:
		d = ratelimit.NewWindows(w.quotas).Take(w.clock.Now(), User)
		d.States[0].Remaining = 0
		d.Detail = "rate limit exceeded for the minute window"
	default:
		return ratelimit.Decision{Detail: "rate limit exceeded"}
	}
	d.States[0].Reset = seconds
	return d
}

// A buffer is an answer that is changed before it is sent.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newBuffer() *buffer                          { return &buffer{header: http.Header{}, status: http.StatusOK} }
func (b *buffer) Header() http.Header             { return b.header }
func (b *buffer) WriteHeader(status int)          { b.status = status }
func (b *buffer) Write(p []byte) (n int, _ error) { return b.body.Write(p) }

// arrives returns how many bytes of a truncated body arrive: never all.
func (b *buffer) arrives(bytes int) int {
	if bytes == 0 {
		bytes = b.body.Len() / 2
	}
	return min(bytes, max(b.body.Len()-1, 0))
}

// to sends the answer with body. Content-Length is that of the whole answer.
func (b *buffer) to(out http.ResponseWriter, body []byte) {
	maps.Copy(out.Header(), b.header)
	out.Header().Set("Content-Length", strconv.Itoa(b.body.Len()))
	out.WriteHeader(b.status)
	_, _ = out.Write(body)
}

// A recorder forwards an answer and keeps it for the journal.
type recorder struct {
	http.ResponseWriter
	mu     sync.Mutex
	status int
	sent   http.Header
	body   []byte
	whole  bool // body is all of it
	broken bool // the connection was cut
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	w.mu.Lock()
	if w.status == 0 {
		w.status, w.sent = status, w.Header().Clone()
	}
	w.mu.Unlock()
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.mu.Lock()
	keep := min(len(p), bodyKept-len(w.body))
	w.body = append(w.body, p[:keep]...)
	w.whole = w.whole && keep == len(p)
	w.mu.Unlock()
	return w.ResponseWriter.Write(p)
}

// A trickle forwards the body of an answer in parts.
type trickle struct {
	*recorder
	bytes int
	wait  func()
	begun bool
}

// Write returns when all of p was forwarded.
func (t *trickle) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		if t.begun {
			t.wait()
		}
		t.begun = true
		piece := p[:min(t.bytes, len(p))]
		var m int
		if m, err = t.recorder.Write(piece); err == nil {
			err = http.NewResponseController(t.recorder).Flush()
		}
		n += m
		p = p[len(piece):]
	}
	return n, err
}

// A cutter is a connection inside the process.
type cutter interface{ cut(err error) }

// cut ends the connection, with a reset or in order, without sending the rest of the answer.
// The handler's goroutine must return soon afterwards.
func (w *recorder) cut(reset bool) {
	w.broken = true
	c, ok := w.ResponseWriter.(cutter)
	switch {
	case ok && reset:
		c.cut(syscall.ECONNRESET)
		return
	case ok:
		c.cut(io.ErrUnexpectedEOF)
		return
	}
	// What was written is in a buffer of the connection, and must arrive.
	flushed := w.status == 0 || http.NewResponseController(w.ResponseWriter).Flush() == nil
	conn, _, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil || !flushed {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// writeGarbage sends bytes that are not HTTP, and ends the connection.
func (w *recorder) writeGarbage() {
	w.broken = true
	if c, ok := w.ResponseWriter.(cutter); ok {
		c.cut(errNoHTTP)
		return
	}
	conn, _, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	_, _ = conn.Write([]byte("\x16\x03\x01 this is not HTTP\r\n\r\n"))
	_ = conn.Close()
}

// errNoHTTP is what a client in the process gets for an answer that is not HTTP.
var errNoHTTP = errors.New("malformed HTTP response")

// A bodyTap keeps the request's body for the journal as the handler reads it.
type bodyTap struct {
	io.ReadCloser
	mu    sync.Mutex
	kept  []byte
	whole bool
}

func (b *bodyTap) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	keep := min(n, bodyKept-len(b.kept))
	b.kept = append(b.kept, p[:keep]...)
	b.whole = b.whole && keep == n
	b.mu.Unlock()
	return n, err
}

// serve serves every request.
func (w *instance) serve(out http.ResponseWriter, r *http.Request) {
	select {
	case <-w.ready:
	case <-w.retired:
		refuse(out, &exchange{}, http.StatusServiceUnavailable, "the test double was closed or reset")
		return
	case <-r.Context().Done():
		return
	}
	x := w.newExchange(r)
	if x.area() != httpapi.AreaWorkers {
		w.act.before(r.Context())
	}
	if x.area() == httpapi.AreaBilling {
		w.measure(r.Context()) // so that bills are up to date
	}
	x.arrives(w.clock.Now())
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), exchangeKey{}, x))
	defer cancel()
	x.cancel = cancel
	r = r.WithContext(ctx)
	tap := &bodyTap{ReadCloser: r.Body, whole: true}
	r.Body = tap
	rec := &recorder{ResponseWriter: out, whole: true}

	w.aim(x)
	w.act.enter(x)
	defer w.act.leave(x)
	fault := w.faults.faultOf(x)
	w.journal.add(x.entry)
	defer w.record(x, tap, rec)
	if (x.area() == httpapi.AreaEndpoints || x.area() == httpapi.AreaAdmin) && r.Method != http.MethodGet {
		defer w.wake() // the scaler checks the endpoint
	}
	if x.isBalanced() {
		w.act.tag(x, r)
	}
	if fault == nil {
		w.api.ServeHTTP(rec, r)
		return
	}
	w.serveFault(fault, rec, x, r)
}

// measure brings the bills of workers up to now.
func (w *instance) measure(ctx context.Context) {
	w.step.Lock()
	defer w.step.Unlock()
	w.services.Jobs.Measure(context.WithoutCancel(ctx))
}

// record completes the entry of a request.
func (w *instance) record(x *exchange, tap *bodyTap, rec *recorder) {
	tap.mu.Lock()
	body := x.redact(tap.kept, tap.whole)
	tap.mu.Unlock()
	rec.mu.Lock()
	status, sent := rec.status, rec.sent
	answer := x.redact(rec.body, rec.whole)
	if rec.broken && x.entry.Fault != FaultTruncated {
		status, sent, answer = 0, nil, ""
	} else if status == 0 {
		status = http.StatusOK
	}
	rec.mu.Unlock()
	w.act.mu.Lock()
	job := string(x.ref.ID)
	w.act.mu.Unlock()
	w.journal.set(func() {
		e := x.entry
		e.Body, e.Status, e.Answered, e.Answer, e.Done = body, status, redactHeader(sent), answer, true
		if e.Job == "" {
			e.Job = job
		}
	})
}
