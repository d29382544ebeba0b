package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// ref returns the job in the path.
func (c *call) ref() serverless.Ref {
	return serverless.Ref{Endpoint: c.r.PathValue("endpoint"), ID: serverless.JobID(c.r.PathValue("job"))}
}

// fresh is how long an endpoint that was read is used for a new job.
const fresh = 10 * time.Millisecond

// target returns the endpoint that the router read for this request, or nil if reading the
// body took longer than fresh. Then the service reads the endpoint again: it may have been
// deleted, and a job of a deleted endpoint would wait until its TTL.
func (c *call) target() *serverless.Endpoint {
	if time.Since(c.checked) > fresh {
		return nil
	}
	return c.jobsEndpoint
}

func runJob(c *call) error {
	r, err := c.runRequest(maxRunBody)
	if err != nil {
		return err
	}
	j, err := c.Jobs.Submit(c.r.Context(), c.owner, c.r.PathValue("endpoint"), r)
	return c.receipt(onceCreated(c, j, err, c.firstAnswer))
}

// firstAnswer returns a job as the answer to run has it.
func (c *call) firstAnswer(ctx context.Context, owner, id string) (serverless.Job, error) {
	ref := serverless.Ref{Endpoint: c.r.PathValue("endpoint"), ID: serverless.JobID(id)}
	j, err := c.Jobs.Get(ctx, owner, ref)
	if errors.Is(err, serverless.ErrDamaged) { // only its output, which this answer does not have
		err = nil
	}
	return serverless.Job{Ref: ref, Owner: j.Owner}, err // IN_QUEUE
}

func runJobSync(c *call) error {
	r, err := c.runRequest(maxSyncBody)
	if err != nil {
		return err
	}
	wait, err := c.queryMillis("wait", serverless.DefaultWait, serverless.CheckWait)
	if err != nil {
		return err
	}
	r.Wait = wait
	ctx, cancel := c.waitContext(wait)
	defer cancel()
	endpoint := c.r.PathValue("endpoint")
	if c.limited {
		r.Queued = c.in.Release
	}
	j, err := c.Jobs.SubmitAndWait(ctx, c.owner, endpoint, r)
	j, err = onceCreated(c, j, err, func(_ context.Context, owner, id string) (serverless.Job, error) {
		return c.Jobs.Wait(ctx, owner, serverless.Ref{Endpoint: endpoint, ID: serverless.JobID(id)}, wait)
	})
	ref := j.Ref
	fit, full := c.fitted(j, err)
	if problem.KindOf(full) == problem.TooManyRequests { // the client must know the job: it can ask for the rest later
		fit, full = serverless.Job{Ref: ref, State: queue.State{Status: serverless.InProgress}}, nil
	}
	return c.writeJob(fit, full)
}

// runRequest reads the body of run and runsync. Unknown members of the top-level object are
// ignored. The input is kept byte for byte.
func (c *call) runRequest(limit int64) (r serverless.Request, err error) {
	body, err := c.body(limit)
	if err != nil {
		return r, err
	}
	r, err = DecodeRun(body)
	r.Endpoint, r.Trace, r.Idempotency = c.target(), c.trace(), c.keyed
	return r, err
}

// DecodeRun reads the body of run, for serverless.Options.DecodeRun. A body that is not JSON is
// an error; other faults are in Request.Violations. The request may share memory with body.
func DecodeRun(body []byte) (r serverless.Request, err error) {
	o, err := parse(body, strictEnvelope, &r.Violations)
	if err != nil {
		return r, err
	}
	if err := o.checkRunNames(); err != nil {
		return r, err
	}
	r.Checked = true
	o.run(&r)
	if 2*len(r.Input) < len(body) {
		r.Input = append([]byte(nil), r.Input...) // so that the rest of the body can be freed
	}
	return r, nil
}

func (o *object) run(r *serverless.Request) {
	r.Input = o.take("input", "a JSON object", "{")
	r.Webhook, r.Policy, r.Queue, r.Extra = o.webhook(), o.policy(), o.queue(), o.s3Config()
}

// checkRunNames returns an error when a member of the body of run, other than its input, has a
// repeated name.
func (o *object) checkRunNames() error {
	for _, name := range [...]string{"policy", "queue", "s3Config"} {
		if err := o.checkNames(name); err != nil {
			return err
		}
	}
	return nil
}

// trace returns the trace context of the request. A traceparent that is there twice is none;
// the lines of tracestate are one list (docs/decisions.md 45).
func (c *call) trace() (t serverless.Trace) {
	if p := c.r.Header["Traceparent"]; len(p) == 1 {
		t = serverless.Trace{Parent: p[0], State: strings.Join(c.r.Header["Tracestate"], ",")}
	}
	return t
}

// webhook returns the URL, or "" if it is absent or null. The service checks the URL's
// form.
func (o *object) webhook() string {
	if o.isNull("webhook") {
		return ""
	}
	s := o.str("webhook")
	if s != nil && *s == "" {
		o.faults.Add(problem.Invalid, o.pointer("webhook"), "must be an absolute http or https URL")
	}
	return o.text("webhook")
}

// policy reads the object of docs/interface.md 8.1.
func (o *object) policy() (p serverless.Policy) {
	if o.isNull("policy") {
		return p
	}
	sub := o.object("policy")
	if sub == nil {
		return p
	}
	p.ExecutionTimeout = sub.millis("executionTimeout")
	p.TTL = sub.millis("ttl")
	if !sub.isNull("lowPriority") {
		if low := sub.boolean("lowPriority"); low != nil {
			p.LowPriority = *low
		}
	}
	return p
}

// queue reads the object of docs/decisions.md 39.
func (o *object) queue() (q serverless.QueueOptions) {
	if o.isNull("queue") {
		return q
	}
	sub := o.object("queue")
	if sub == nil {
		return q
	}
	if !sub.isNull("priority") {
		q.Priority = sub.integer("priority")
	}
	if !sub.isNull("key") {
		q.Key = sub.str("key")
	}
	sub.startAfter(&q)
	q.Retry = sub.retry("retry")
	sub.unknown()
	return q
}

// startAfter reads milliseconds from now, or an instant.
func (o *object) startAfter(q *serverless.QueueOptions) {
	m := o.find("startAfter")
	if m == nil || m.value.Kind() != '"' {
		q.StartAfter = o.millis("startAfter")
		return
	}
	at, err := time.Parse(time.RFC3339, o.text("startAfter"))
	switch {
	case err != nil:
		o.faults.Add(problem.Invalid, o.pointer("startAfter"), "must be milliseconds from now, or a time in RFC 3339")
	case at.IsZero():
		q.StartAfter = new(time.Duration)
	default:
		q.StartAt = at
	}
}

// retry reads a retry policy; nil when it is absent or null. A member that is absent or null
// has its default.
func (o *object) retry(name string) *serverless.RetryPolicy {
	if o.isNull(name) {
		return nil
	}
	sub := o.object(name)
	if sub == nil {
		return nil
	}
	p := serverless.DefaultRetry()
	if !sub.isNull("attempts") {
		if n := sub.integer("attempts"); n != nil {
			p.Attempts = uint8(max(min(*n, math.MaxUint8), 0))
		}
	}
	sub.millisInto("delay", &p.Delay)
	sub.numberInto("factor", &p.Factor)
	sub.millisInto("maxDelay", &p.MaxDelay)
	sub.numberInto("jitter", &p.Jitter)
	if !sub.isNull("timeouts") {
		if yes := sub.boolean("timeouts"); yes != nil {
			p.Timeouts = *yes
		}
	}
	sub.unknown()
	return &p
}

// millisInto sets d to a number of milliseconds unless the member is absent or null.
func (o *object) millisInto(name string, d *time.Duration) {
	if v := o.millis(name); v != nil {
		*d = *v
	}
}

// numberInto sets f to a number unless the member is absent or null.
func (o *object) numberInto(name string, f *float32) {
	if o.isNull(name) {
		return
	}
	if v := o.take(name, "a number", "0"); v != nil {
		n, _ := strconv.ParseFloat(string(v), 32) // the number nearest to one that is out of range
		*f = float32(n)
	}
}

func (o *object) millis(name string) *time.Duration {
	if o.isNull(name) {
		return nil
	}
	n := o.integer(name)
	if n == nil {
		return nil
	}
	const most = int(1<<63-1) / int(time.Millisecond)
	d := time.Duration(max(min(*n, most), -most)) * time.Millisecond
	return &d
}

// s3Config checks that the known members are strings. It returns the object unchanged.
func (o *object) s3Config() []byte {
	if o.isNull("s3Config") {
		return nil
	}
	v := o.take("s3Config", "an object", "{")
	if v == nil && o.shape == nil {
		return nil
	}
	sub := o.object("s3Config")
	for _, name := range [...]string{"accessId", "accessSecret", "bucketName", "endpointUrl"} {
		if !sub.isNull(name) {
			sub.str(name)
		}
	}
	b := append([]byte(`{"s3Config":`), v...)
	return append(b, '}')
}

// receipt writes the answer of run, cancel and retry, or returns err.
func (c *call) receipt(j serverless.Job, err error) error {
	if err != nil {
		return err
	}
	b := append([]byte(`{"id":"`), j.ID...)
	b = append(b, `","status":"`...)
	b = append(b, j.Status.String()...)
	b = append(b, `"}`...)
	writeBody(c.w, http.StatusOK, "application/json", b)
	return nil
}

// job writes the answer of status and status-sync, or returns err.
func (c *call) job(j serverless.Job, err error) error { return c.writeJob(c.fitted(j, err)) }

// fitted returns a job when there is room for its output. While it waits, it does not keep the
// job, and reads it again afterwards.
func (c *call) fitted(j serverless.Job, err error) (serverless.Job, error) {
	n := int64(len(j.Output))
	if err != nil || !c.limited || n <= largeAnswer {
		return j, err
	}
	j.Input = nil
	if c.out.hold.Try(n) {
		return j, nil
	}
	ref := j.Ref
	j = serverless.Job{}
	if err := c.roomForAnswer(n); err != nil {
		return j, err
	}
	return c.Jobs.Get(c.r.Context(), c.owner, ref)
}

// writeJob writes a job as clients see it.
func (c *call) writeJob(j serverless.Job, err error) error {
	if err != nil {
		return err
	}
	if len(j.Output) <= largeAnswer || !j.ShowsOutput() {
		writeBody(c.w, http.StatusOK, "application/json", j.AppendJSON(make([]byte, 0, 256+len(j.Output)), false))
		return nil
	}
	output := j.Output
	j.Output = []byte("0") // so that the output is not copied
	before, after, _ := bytes.Cut(j.AppendJSON(nil, false), []byte(`"output":0`))
	before = append(before, `"output":`...)
	writeHeaders(c.w, http.StatusOK, "application/json", len(before)+len(output)+len(after))
	for _, part := range [...][]byte{before, output, after} {
		_, _ = c.w.Write(part) // an error means that the client is gone
	}
	return nil
}

func jobStatus(c *call) error {
	if _, moves := c.query("ttl"); !moves || c.r.Method == http.MethodHead { // HEAD changes nothing
		return c.job(c.Jobs.Get(c.r.Context(), c.owner, c.ref()))
	}
	if !c.id.Can(Permission{Area: "endpoint", Endpoint: c.r.PathValue("endpoint"), Level: Run}) {
		return errForbidden
	}
	if _, err := c.Jobs.Get(c.r.Context(), c.owner, c.ref()); err != nil {
		return err
	}
	ttl, err := c.queryMillis("ttl", 0, serverless.CheckTTL)
	if err != nil {
		return err
	}
	return c.job(c.Jobs.SetTTL(c.r.Context(), c.owner, c.ref(), ttl))
}

func jobStatusSync(c *call) error {
	wait, err := c.jobWait(serverless.DefaultWait)
	if err != nil {
		return err
	}
	ctx, cancel := c.waitContext(wait)
	defer cancel()
	return c.job(c.Jobs.Wait(ctx, c.owner, c.ref(), wait))
}

// jobWait reads the parameter wait of an operation on a job.
func (c *call) jobWait(def time.Duration) (time.Duration, error) {
	wait, err := c.queryMillis("wait", def, serverless.CheckWait)
	return wait, c.jobParamError(err)
}

// jobParamError returns the error of a parameter. If the job does not exist, it returns
// that error instead: existence is checked first.
func (c *call) jobParamError(err error) error {
	if err == nil {
		return nil
	}
	if _, e := c.Jobs.Get(c.r.Context(), c.owner, c.ref()); e != nil {
		return e
	}
	return err
}

func cancelJob(c *call) error {
	return c.receipt(c.Jobs.Cancel(c.r.Context(), c.owner, c.ref()))
}

func retryJob(c *call) error {
	return c.receipt(c.Jobs.Retry(c.r.Context(), c.owner, c.ref()))
}

// usable returns an endpoint that the owner of the request may use. For a request of an
// operator about the jobs of all users, it returns any endpoint.
func (c *call) usable(id string) (*serverless.Endpoint, error) {
	if c.owner == serverless.AllOwners {
		return c.Jobs.Endpoint(c.r.Context(), id)
	}
	return c.Jobs.CheckEndpoint(c.r.Context(), c.owner, id)
}

// ownerScope returns the user whose jobs purge and requests cover. For the owner of the
// endpoint these are the jobs of all users, on a shared endpoint only the caller's jobs.
// The scopes of the key do not matter (docs/decisions.md 13).
func (c *call) ownerScope() string {
	if c.jobsEndpoint.Owner == c.owner {
		return serverless.AllOwners
	}
	return c.owner
}

func purgeQueue(c *call) error {
	n, err := c.Jobs.Purge(c.r.Context(), c.ownerScope(), c.r.PathValue("endpoint"))
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Removed int    `json:"removed"`
		Status  string `json:"status"`
	}{n, "completed"})
}

// A healthBody is the answer of docs/interface.md 2.8.
type healthBody struct {
	Jobs struct {
		Completed  int64 `json:"completed"`
		Failed     int64 `json:"failed"`
		InProgress int64 `json:"inProgress"`
		InQueue    int64 `json:"inQueue"`
		Retried    int64 `json:"retried"`
	} `json:"jobs"`
	Workers workerCounts `json:"workers"`
}

// workerCounts always writes all six counters, because some clients reject an answer with
// fewer.
type workerCounts struct {
	Idle         int `json:"idle"`
	Initializing int `json:"initializing"`
	Ready        int `json:"ready"`
	Running      int `json:"running"`
	Throttled    int `json:"throttled"`
	Unhealthy    int `json:"unhealthy"`
}

func health(c *call) error {
	h, err := c.Jobs.Health(c.r.Context(), c.r.PathValue("endpoint"))
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, healthBodyOf(h))
}

func healthBodyOf(h serverless.Health) (b healthBody) {
	b.Jobs.Completed, b.Jobs.Failed, b.Jobs.Retried = h.Jobs.Completed, h.Jobs.Failed, h.Jobs.Retried
	b.Jobs.InProgress, b.Jobs.InQueue = h.Jobs.Running, h.Jobs.Queued
	b.Workers = workerCounts(h.Workers)
	return b
}

// Limits of a page of requests.
const (
	defaultPage = 20
	maxPage     = 100
)

func listRequests(c *call) error {
	q, err := c.requestsQuery()
	if err != nil {
		return err
	}
	total, jobs, err := c.Jobs.EachRequest(c.r.Context(), c.ownerScope(), c.r.PathValue("endpoint"), q)
	if err != nil {
		return err
	}
	l := c.list("requests")
	for j, err := range jobs {
		if err != nil {
			return l.failed(err)
		}
		if l.next(j.Owner); !l.add(func(b []byte) []byte { return j.AppendJSON(b, true) }) {
			return nil
		}
	}
	l.end(fmt.Appendf(nil, `,"total":%d,"offset":%d,"limit":%d,"hasMore":%t`, total, q.Offset, q.Limit, q.Offset+q.Limit < total))
	return nil
}

// queryStatuses reads the parameter status, a list of statuses.
func (c *call) queryStatuses() (list []serverless.Status, err error) {
	for _, s := range c.queryList("status") {
		st, ok := queue.ParseStatus(s)
		if !ok {
			return nil, problem.Newf(problem.Invalid, "status must be one of IN_QUEUE, IN_PROGRESS, COMPLETED, FAILED, CANCELLED, TIMED_OUT")
		}
		list = append(list, st)
	}
	return list, nil
}

func (c *call) requestsQuery() (q serverless.RequestsQuery, err error) {
	if q.Status, err = c.queryStatuses(); err != nil {
		return q, err
	}
	if q.Prefix, err = c.queryText("idPrefix"); err != nil {
		return q, err
	}
	if q.Offset, err = c.queryInt("offset", 0, 0, 1<<31-1); err != nil {
		return q, err
	}
	if q.Limit, err = c.queryInt("limit", defaultPage, 1, maxPage); err != nil {
		return q, err
	}
	q.Full, err = c.queryFlag("full")
	return q, err
}
