package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

func jobOperations() []operation {
	return group(APIJobs, AreaJobs,
		op("run", "POST /v2/{endpoint}/run", ScopeEndpointRun, runJob, rate(ratelimit.Run), keyed),
		op("runSync", "POST /v2/{endpoint}/runsync", ScopeEndpointRun, runJobSync, rate(ratelimit.RunSync), keyed, staysOpen(budget.Connections)),
		op("status", "GET,POST /v2/{endpoint}/status/{job}", ScopeEndpointRead, jobStatus, rate(ratelimit.Status)),
		op("statusSync", "GET,POST /v2/{endpoint}/status-sync/{job}", ScopeEndpointRead, jobStatusSync, rate(ratelimit.Status), sideEffects, staysOpen(budget.Connections)),
		op("cancel", "POST /v2/{endpoint}/cancel/{job}", ScopeEndpointRun, cancelJob, rate(ratelimit.Cancel), ofOperators),
		op("retry", "POST /v2/{endpoint}/retry/{job}", ScopeEndpointRun, retryJob, unlimited, ofOperators),
		op("purgeQueue", "POST /v2/{endpoint}/purge-queue", ScopeEndpointRun, purgeQueue, byOwners, rate(ratelimit.PurgeQueue), ofOperators),
		op("health", "GET /v2/{endpoint}/health", ScopeAny, health, unlimited),
		op("requests", "GET /v2/{endpoint}/requests", ScopeEndpointRead, listRequests, byOwners, rate(ratelimit.Requests), heavy),
	)
}

func (b *describer) describeJobs() map[string]description {
	job, receipt, run := b.jobSchema(), b.receiptSchema(), b.Component("RunRequest", runBody())
	purged := fields(map[string]*openapi.Schema{"removed": openapi.Of("integer"), "status": openapi.Of("string")}, "removed", "status")
	return map[string]description{
		"run":        {summary: "Submit a job", text: "Does not wait for the result.", body: run, params: traceParams(), answers: ok(receipt)},
		"runSync":    {summary: "Submit a job and wait", text: "When wait is over first, the answer is the job as it is.", body: run, params: append(traceParams(), waitParam(serverless.DefaultWait.Milliseconds())), answers: ok(job)},
		"status":     {summary: "Get a job", params: []*openapi.Parameter{millisParam("ttl", queue.MinStatusTTL, queue.MaxTTL, nil, "Moves the end of the job to so many milliseconds from now. It needs the scope run.")}, answers: ok(job)},
		"statusSync": {summary: "Wait for a job", params: []*openapi.Parameter{waitParam(serverless.DefaultWait.Milliseconds())}, answers: ok(job)},
		"cancel":     {summary: "Cancel a job", text: "A job that has ended keeps its status.", answers: ok(receipt)},
		"retry":      {summary: "Run a FAILED or TIMED_OUT job again", answers: ok(receipt)},
		"purgeQueue": {summary: "Cancel the queued jobs", answers: ok(purged)},
		"health":     {summary: "Count jobs and workers", answers: ok(openapi.For[healthBody](&b.Builder))},
		"requests":   {summary: "List jobs, newest first", params: requestParams(), answers: ok(b.requestsSchema(job))},
	}
}

// jobSchema is the object that queue.Job.AppendJSON writes.
func (b *describer) jobSchema() *openapi.Schema {
	return b.Component("Job", fields(map[string]*openapi.Schema{
		"id":            openapi.Of("string"),
		"status":        jobStatuses(),
		"delayTime":     openapi.Of("integer").Says("Milliseconds in the queue. Absent while the job is queued."),
		"executionTime": openapi.Of("integer").Says("Milliseconds from start to end. Absent until the job has ended."),
		"workerId":      openapi.Of("string").Says("The worker that has the job, or had it when it ended."),
		"output":        (&openapi.Schema{}).Says("The result, or the last progress of a job that runs. Any JSON."),
		"error":         openapi.Of("string").Says("Why the job is FAILED or TIMED_OUT."),
		"input":         openapi.Open().Says("Only in lists that ask for it, and in webhooks."),
	}, "id", "status"))
}

func waitParam(def any) *openapi.Parameter {
	return millisParam("wait", serverless.MinWait, serverless.MaxWait, def, "Milliseconds that the answer may be held.")
}

// traceParams are the headers of a trace context.
func traceParams() []*openapi.Parameter {
	header := func(name, text string) *openapi.Parameter {
		return &openapi.Parameter{Name: name, In: "header", Schema: openapi.Of("string"), Description: text}
	}
	return addedParams(
		header("traceparent", "W3C trace context. The worker and the receiver of the webhook get it."),
		header("tracestate", "As traceparent."),
	)
}

func requestParams() []*openapi.Parameter {
	return []*openapi.Parameter{
		listInQuery("status", jobStatuses(), "Only with one of these statuses."),
		inQuery("idPrefix", openapi.Of("string").NotEmpty(), "Only with an id that begins with this."),
		number("offset", 0, 1<<31-1, 0, "How many to leave out."),
		number("limit", 1, maxPage, defaultPage, "How many."),
		flag("full", "With input and output."),
	}
}

func (b *describer) requestsSchema(job *openapi.Schema) *openapi.Schema {
	s := b.list("requests", job, true)
	for _, name := range []string{"total", "offset", "limit"} {
		s.Properties[name] = openapi.Of("integer")
		s.Required = append(s.Required, name)
	}
	s.Properties["hasMore"] = openapi.Of("boolean")
	s.Required = append(s.Required, "hasMore")
	return s
}

// receiptSchema is the object that call.receipt writes.
func (b *describer) receiptSchema() *openapi.Schema {
	return b.Component("JobReceipt", fields(map[string]*openapi.Schema{"id": openapi.Of("string"), "status": jobStatuses()}, "id", "status"))
}

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
	c.tellExisting(&j, err)
	j, err = onceCreated(c, j, err, c.firstAnswer)
	c.made = string(j.ID)
	return c.receipt(j, err)
}

// existingHeader is of an answer to run or runsync with a job that was there (docs/decisions.md 60).
const existingHeader = "Podyard-Existing"

func (c *call) tellExisting(j *serverless.Job, err error) {
	if err == nil && j.Existing {
		c.w.Header().Set(existingHeader, "true")
	}
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
	c.tellExisting(&j, err)
	j, err = onceCreated(c, j, err, func(_ context.Context, owner, id string) (serverless.Job, error) {
		return c.Jobs.Wait(ctx, owner, serverless.Ref{Endpoint: endpoint, ID: serverless.JobID(id)}, wait)
	})
	ref := j.Ref
	c.made = string(ref.ID)
	fit, full := c.fitted(j, err)
	if problem.KindOf(full) == problem.TooManyRequests { // the client must know the job: it can ask for the rest later
		fit, full = serverless.Job{Ref: ref, State: queue.State{Status: serverless.InProgress}}, nil
	}
	return c.writeJob(fit, full)
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

// job writes the answer of status and status-sync. It reads a large output when there is room for
// it. Without room for the largest one, it looks first how large the output is: many answers that
// nobody reads must not take the time to read each output, and to drop it again. HEAD reads no output.
func (c *call) job(ctx context.Context, ref serverless.Ref) error {
	if c.r.Method == http.MethodHead {
		_, err := c.Jobs.GetState(ctx, c.owner, ref)
		if err == nil {
			setJSON(c.w.Header())
			c.w.WriteHeader(http.StatusOK)
		}
		return err
	}
	if c.limited && c.out.hold.Left() < serverless.MaxOutput {
		j, err := c.Jobs.GetState(ctx, c.owner, ref)
		if n := int64(j.OutBytes); err == nil && n > largeAnswer {
			if err := c.roomForAnswer(n); err != nil {
				return err
			}
		}
	}
	return c.writeJob(c.fitted(c.Jobs.Get(ctx, c.owner, ref)))
}

// fitted returns a job when there is room for its output. While it waits, it does not keep the
// job, and reads it again afterwards.
func (c *call) fitted(j serverless.Job, err error) (serverless.Job, error) {
	n := int64(len(j.Output))
	if err != nil || !c.limited || n <= largeAnswer {
		return j, err
	}
	j.Input = nil
	if c.tryRoom(n) {
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
		return c.job(c.r.Context(), c.ref())
	}
	if !c.id.Can(Permission{Area: "endpoint", Endpoint: c.r.PathValue("endpoint"), Level: Run}) {
		return errForbidden
	}
	if _, err := c.Jobs.GetState(c.r.Context(), c.owner, c.ref()); err != nil {
		return err
	}
	ttl, err := c.queryMillis("ttl", 0, serverless.CheckTTL)
	if err != nil {
		return err
	}
	return c.writeJob(c.fitted(c.Jobs.SetTTL(c.r.Context(), c.owner, c.ref(), ttl)))
}

func jobStatusSync(c *call) error {
	wait, err := c.jobWait(serverless.DefaultWait)
	if err != nil {
		return err
	}
	ctx, cancel := c.waitContext(wait)
	defer cancel()
	if _, err := c.Jobs.WaitState(ctx, c.owner, c.ref(), wait); err != nil {
		return err
	}
	return c.job(context.WithoutCancel(c.r.Context()), c.ref()) // also when the server stops
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
	if _, e := c.Jobs.GetState(c.r.Context(), c.owner, c.ref()); e != nil {
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
	return writeRecord(c, h, err, healthBodyOf)
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
			return l.stopped()
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
