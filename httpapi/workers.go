package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/conns"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

func workerOperations() []operation {
	return slices.Concat(
		group(APIJobs, AreaJobs,
			op("metrics", "GET /v2/{endpoint}/metrics", ScopeAny, workerMetrics, unlimited),
		),
		group(APIWorkers, AreaWorkers,
			op("jobTake", "GET /v2/{endpoint}/job-take/{worker}", ScopeWorker, takeJob, unlimited, sideEffects, askedAgain, staysOpen(budget.Connections)),
			op("jobTakeBatch", "GET /v2/{endpoint}/job-take-batch/{worker}", ScopeWorker, takeJobs, unlimited, sideEffects, askedAgain, staysOpen(budget.Connections)),
			op("jobStop", "GET /v2/{endpoint}/job-stop/{worker}", ScopeWorker, stopJobs, unlimited, sideEffects, staysOpen(budget.Connections)),
			op("ping", "GET /v2/{endpoint}/ping/{worker}", ScopeWorker, pingWorker, unlimited, sideEffects),
			op("jobDone", "POST /v2/{endpoint}/job-done/{worker}/{job}", ScopeWorker, jobDone, unlimited),
			op("jobStream", "POST /v2/{endpoint}/job-stream/{worker}/{job}", ScopeWorker, jobChunk, unlimited),
		),
	)
}

func (b *describer) describeWorkers() map[string]description {
	task := b.Component("Task", fields(map[string]*openapi.Schema{
		"id": openapi.Of("string"), "input": openapi.Open(), "s3Config": openapi.Open(),
		"traceparent": openapi.Of("string"), "tracestate": openapi.Of("string"), "schedule": openapi.Open(),
		"attempt": openapi.Of("integer").Says("The number of this attempt, from 2 on; absent in the first one."),
	}, "id", "input"))
	accepted := openapi.For[acceptance](&b.Builder)
	none := func(s *openapi.Schema) answers { return answers{200: s, 204: nil} }
	stops := fields(map[string]*openapi.Schema{"jobsToStop": openapi.List(openapi.Of("string"))}, "jobsToStop")
	anything := &openapi.Schema{}
	chunk := fields(map[string]*openapi.Schema{"output": anything, "metrics": (&openapi.Schema{}).Says("An object; anything else is dropped.")}, "output")
	result := fields(map[string]*openapi.Schema{
		"output": anything, "error": anything, "status": openapi.Of("string").Says("IN_PROGRESS: the output is progress."),
		"stopPod": openapi.Of("boolean").Says("The worker is replaced."),
	})
	text := openapi.Of("string")
	has := inQuery("job_in_progress", text, "0: the worker has no job. Those that it had and has not reported end without a result.")
	ids := openapi.List(openapi.Of("string"))
	metrics := fields(map[string]*openapi.Schema{"workers": openapi.For[workerCounts](&b.Builder), "readyWorkers": ids}, "readyWorkers", "workers")
	return map[string]description{
		"metrics":      {summary: "Count workers", answers: ok(metrics)},
		"jobTake":      {summary: "Take a job", text: "204: there was none for 25 s.", answers: none(task), params: []*openapi.Parameter{has}},
		"jobTakeBatch": {summary: "Take jobs", text: "204: there was none for 25 s.", answers: none(openapi.List(task)), params: []*openapi.Parameter{inQuery("batch_size", text, "How many at most. A value out of bounds counts as the nearest one."), has}},
		"jobStop":      {summary: "Wait for jobs to stop", text: "204: there was none for 25 s.", answers: none(stops)},
		"ping": {summary: "Keep the jobs of a worker", answers: ok(accepted), params: []*openapi.Parameter{
			inQuery("job_id", text, "The jobs that the worker has, with commas."),
			inQuery("status", text, "unhealthy takes the jobs of the worker away."),
			inQuery("check", text, "What is unhealthy."), inQuery("reason", text, "Why."),
		}},
		"jobDone":   {summary: "Report the result or the progress of a job", body: b.Component("Result", result), answers: ok(accepted)},
		"jobStream": {summary: "Report a part of the output of a job", body: b.Component("Chunk", chunk), answers: ok(accepted)},
	}
}

// takeWait and stopWait are how long a request waits for a job or a stop notice. The stock
// SDK gives up after 90 s. It repeats the request at once after an answer without a job.
const (
	takeWait = 25 * time.Second
	stopWait = 25 * time.Second
)

const (
	maxBatch  = 1000     // jobs in one answer
	maxReport = 20 << 20 // bytes of a result (docs/decisions.md 10)
	maxReason = 256      // bytes of the reason for unhealthy
	maxPinged = 2000     // jobs that a ping lists
)

var errPinged = problem.Newf(problem.Invalid, "a ping lists at most %d jobs", maxPinged)

// admitWorker checks the caller of a worker operation (docs/decisions.md 14). The caller is
// the worker with its own key, or has a user's key that covers the endpoint. No remote
// caller may act as a worker of the server's own process.
func (x *router) admitWorker(c *call) error {
	key, err := keyOf(c.r.Header.Get("Authorization"), true)
	if err != nil {
		return err
	}
	endpoint, id := c.r.PathValue("endpoint"), c.worker()
	who := conns.Owner{}
	var about *serverless.Endpoint
	if e, w, ok := x.Jobs.CheckWorkerKey(key); !ok {
		about, err = x.admitUser(c, key, endpoint)
		who = c.id.holder()
	} else if e != endpoint || w != id {
		err = errForbidden
	} else {
		about, err = x.Jobs.Endpoint(c.r.Context(), endpoint)
		c.employer = ownerOf(about)
		who = conns.Owner{User: c.employer, Worker: true}
	}
	switch {
	case err != nil:
		return err
	case x.Jobs.IsLocalWorker(endpoint, id):
		return errLocalWorker
	case about.Balances():
		return errBalanced
	}
	if strings.Contains(string(id), "&") {
		return errWorkerID
	}
	if err := x.checkWorkerName(about, id); err != nil {
		return err
	}
	return c.acceptKey(who)
}

var errLocalWorker = problem.New(problem.Forbidden, "the worker is one of the server's own process: nobody else speaks for it")

// errWorkerID is the answer to an address without a query, to which the SDK appends &job_in_progress=0:
// the worker would take jobs by one id and report them by another.
var errWorkerID = problem.New(problem.BadRequest, "the worker id has an &: give the addresses of a worker a query, such as .../job-take/$ID?gpu=cpu, because the SDK appends to it")

// admitUser admits a user as a worker: on the user's own endpoints with endpoints:write,
// and on any endpoint with its scope of work or as an operator.
func (x *router) admitUser(c *call, key, endpoint string) (e *serverless.Endpoint, err error) {
	if c.id, err = x.auth.Authenticate(c.r.Context(), key); err != nil {
		return nil, err
	}
	anybodys := c.id.Operator() || c.id.Can(Permission{Area: accounts.AreaWorker, Endpoint: endpoint})
	if !anybodys && !c.id.Can(Permission{Area: "endpoints", Level: Write}) {
		return nil, errForbidden
	}
	e, err = x.Jobs.Endpoint(c.r.Context(), endpoint)
	switch {
	case err != nil || anybodys || e.Owner == c.id.User:
		return e, err
	case e.Owner == "":
		return nil, errShared
	}
	return nil, serverless.ErrNoEndpoint
}

// maxWorkerID is how many bytes the id of a worker has. The server keeps it, and shows it in lists.
const maxWorkerID = 200

var errLongWorkerID = problem.Newf(problem.Invalid, "the id of a worker has at most %d bytes", maxWorkerID)

// checkWorkerName refuses the name of a new worker when it is too long, or its endpoint has too many.
func (x *router) checkWorkerName(e *serverless.Endpoint, id serverless.WorkerID) error {
	if len(id) > maxWorkerID {
		return errLongWorkerID
	}
	limit := x.inFlight.Of(e.Owner)
	if limit == nil || x.Jobs.KnowsWorker(e.ID, id) {
		return nil
	}
	return limit.Check(budget.WorkerNames, int64(x.Jobs.WorkerNames(e.ID)), 1)
}

func (c *call) worker() serverless.WorkerID { return serverless.WorkerID(c.r.PathValue("worker")) }

func takeJob(c *call) error {
	jobs, err := c.takeRoomy(1)
	if err != nil || len(jobs) == 0 {
		return c.noContent(err)
	}
	setTrace(c.w.Header(), jobs[0].Trace)
	return c.give(jobs, appendTask(nil, &jobs[0]))
}

func takeJobs(c *call) error {
	jobs, err := c.takeRoomy(c.batchSize())
	if err != nil || len(jobs) == 0 {
		return c.noContent(err)
	}
	return c.give(jobs, appendTasks(nil, jobs))
}

func appendTasks(b []byte, jobs []serverless.Job) []byte {
	b = append(b, '[')
	for i := range jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTask(b, &jobs[i])
	}
	return append(b, ']')
}

// batchSize returns how many jobs a worker wants. A value that is not a number counts as 1,
// and a value out of range as the nearest limit. After an error, a stock worker would
// repeat the request at once (docs/decisions.md 34).
func (c *call) batchSize() int {
	s, _ := c.query("batch_size")
	n, err := strconv.Atoi(s)
	if err != nil {
		return 1
	}
	return max(1, min(n, maxBatch))
}

// miscounts begins the User-Agent of the only SDK that says job_in_progress=0 while it runs a job: it
// counts the jobs that wait in the worker.
const miscounts = "RunPod-Python-SDK/1.7.1 "

// takeRoomy is takeUpTo for jobs whose inputs find room. They go back into the queue while the worker
// waits for it. A worker that waits in vain gets none: it would repeat the request at once after an error.
func (c *call) takeRoomy(n int) ([]serverless.Job, error) {
	for {
		jobs, err := c.takeUpTo(n)
		var size int64
		for i := range jobs {
			size += int64(len(jobs[i].Input))
		}
		if err != nil || c.tryRoom(size) {
			return jobs, err
		}
		for i := range jobs {
			c.takeBack(&jobs[i])
		}
		clear(jobs)
		if c.roomForAnswer(size) != nil {
			return nil, nil //nolint:nilerr // the worker gets none now, and asks again
		}
	}
}

// takeUpTo waits at most takeWait for jobs, by the service's clock and by the system's. A worker says
// with job_in_progress=0 that it has no job.
func (c *call) takeUpTo(n int) ([]serverless.Job, error) {
	if has, _ := c.query("job_in_progress"); has == "0" && !strings.HasPrefix(c.r.UserAgent(), miscounts) {
		if err := c.Jobs.ReportIdle(c.r.Context(), c.r.PathValue("endpoint"), c.worker()); err != nil {
			return nil, err
		}
	}
	ctx, cancel := c.clockWaitContext(takeWait)
	defer cancel()
	return c.Jobs.Take(ctx, c.r.PathValue("endpoint"), c.worker(), n)
}

// give writes jobs to a worker. If the worker has disconnected, they are queued again.
func (c *call) give(jobs []serverless.Job, body []byte) error {
	writeBody(c.w, http.StatusOK, "application/json", body)
	err := http.NewResponseController(c.w).Flush()
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	for i := range jobs {
		c.takeBack(&jobs[i])
	}
	return nil
}

// takeBack queues a job again that did not reach its worker.
func (c *call) takeBack(j *serverless.Job) {
	op := queue.Op{Ref: j.Ref, Kind: queue.OpRelease, Worker: c.worker(), Token: j.Token, Untouched: true}
	err := c.Jobs.Report(context.WithoutCancel(c.r.Context()), op)
	if err != nil && !errors.Is(err, serverless.ErrLeaseLost) {
		c.log.Error("taking a job back failed", "job", j.ID, "err", err)
	}
}

// appendTask appends a job as a worker gets it: id, input, and members that only workers
// see.
func appendTask(b []byte, j *serverless.Job) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, j.ID...)
	b = append(b, `","input":`...)
	b = append(b, j.Input...)
	b = appendTrace(b, j.Trace)
	if n := j.Number(); n > 1 {
		b = strconv.AppendInt(append(b, `,"attempt":`...), int64(n), 10)
	}
	if len(j.Extra) > 2 {
		b = append(b, ',')
		return append(b, j.Extra[1:]...) // the members and the closing brace
	}
	return append(b, '}')
}

// appendTrace appends the members of a trace context, if there is one.
func appendTrace(b []byte, t serverless.Trace) []byte {
	if t.Parent == "" {
		return b
	}
	b = fmt.Appendf(b, `,"traceparent":%q`, t.Parent)
	if t.State == "" {
		return b
	}
	return fmt.Appendf(b, `,"tracestate":%q`, t.State) // printable ASCII: quoted as in JSON
}

// setTrace sets the headers of a trace context, if there is one.
func setTrace(h http.Header, t serverless.Trace) {
	if t.Parent != "" {
		h.Set("Traceparent", t.Parent)
	}
	if t.State != "" {
		h.Set("Tracestate", t.State)
	}
}

func stopJobs(c *call) error {
	ctx, cancel := c.clockWaitContext(stopWait)
	defer cancel()
	ids, err := c.Jobs.WaitStops(ctx, c.r.PathValue("endpoint"), c.worker())
	if err != nil || len(ids) == 0 {
		return c.noContent(err)
	}
	return writeJSON(c.w, http.StatusOK, struct {
		JobsToStop []serverless.JobID `json:"jobsToStop"`
	}{ids})
}

// pingWorker keeps a worker and its leases alive, or records that the worker is unhealthy.
func pingWorker(c *call) error {
	endpoint := c.r.PathValue("endpoint")
	if status, _ := c.query("status"); status == "unhealthy" {
		check, _ := c.query("check")
		why, _ := c.query("reason")
		reason := check + ": " + why
		return c.accepted(c.Jobs.ReportUnhealthy(c.r.Context(), endpoint, c.worker(), reason[:min(len(reason), maxReason)]))
	}
	var lists []serverless.JobID
	for _, q := range c.params()["job_id"] {
		for id := range strings.SplitSeq(q, ",") {
			if id = strings.TrimSpace(id); id != "" {
				lists = append(lists, serverless.JobID(id))
			}
		}
	}
	if len(lists) > maxPinged {
		return c.refused(errPinged)
	}
	return c.accepted(c.Jobs.Ping(c.r.Context(), endpoint, c.worker(), lists))
}

// An acceptance is the answer to a report.
type acceptance struct {
	Accepted bool   `json:"accepted"`
	Reason   string `json:"reason,omitempty"`
}

// acceptedWithout answers a report of which a part was dropped.
func (c *call) acceptedWithout(what string) error {
	return writeJSON(c.w, http.StatusOK, acceptance{Accepted: true, Reason: what})
}

// accepted answers a report. A report on a job that the worker does not hold also gets
// status 200, because the SDK repeats a report after any other status (docs/decisions.md
// 34).
func (c *call) accepted(err error) error {
	var full *budget.Error
	switch {
	case err == nil:
		writeBody(c.w, http.StatusOK, "application/json", []byte(`{"accepted":true}`))
		return nil
	case errors.Is(err, serverless.ErrLeaseLost), errors.Is(err, serverless.ErrNotFound),
		errors.Is(err, serverless.ErrStatus), errors.Is(err, serverless.ErrStreamFull),
		problem.KindOf(err) == problem.Invalid, errors.As(err, &full):
		return c.refused(err)
	}
	return err
}

// refused answers a report that is dropped.
func (c *call) refused(err error) error {
	return writeJSON(c.w, http.StatusOK, acceptance{Reason: reasonOf(err)})
}

// reasonOf returns what an error says to users, in one text.
func reasonOf(err error) string {
	d := problem.Of(err)
	if len(d.Errors) > 0 {
		return strings.Join(d.Errors, "; ")
	}
	return d.Detail
}

// report returns an operation of the worker on the job in the path.
func (c *call) report(k queue.OpKind) queue.Op {
	return queue.Op{Ref: c.ref(), Kind: k, Worker: c.worker(), Adopt: true}
}

// jobDone accepts a result or progress. The body is JSON, whatever its media type.
func jobDone(c *call) error {
	op := c.report(queue.OpFinish)
	body, err := c.body(maxReport)
	switch {
	case problem.KindOf(err) == problem.TooLarge:
		return c.never(op, "the result is larger than 20971520 bytes (20 MB)")
	case err != nil:
		return err // the body did not arrive: the worker sends it again
	}
	o, err := readReport(body)
	if err != nil {
		return c.never(op, about("the worker's result", err))
	}
	op = o.outcome(op)
	v, fault := o.verdict(&op)
	if fault != "" {
		return c.never(op, "the worker's result: "+fault)
	}
	if v != nil {
		op = c.Jobs.Decided(op, v)
	}
	err = c.Jobs.Report(c.r.Context(), op)
	if stop := o.find("stopPod"); err == nil && stop != nil && stop.value.Kind() == 't' {
		c.Jobs.DrainWorker(c.r.PathValue("endpoint"), c.worker())
	}
	return c.accepted(err)
}

// never answers a report that arrived whole and can never be taken. Stock workers do not look at the
// answer, and go on as if they had reported: so the attempt of the job ends with the reason.
func (c *call) never(op queue.Op, reason string) error {
	if err := c.Jobs.RefuseReport(c.r.Context(), op, reason); err != nil {
		return c.accepted(err)
	}
	return writeJSON(c.w, http.StatusOK, acceptance{Reason: reason})
}

// about returns the text of an error about a body, which it calls what.
func about(what string, err error) string {
	text := reasonOf(err)
	if rest, ok := strings.CutPrefix(text, "the body"); ok {
		return what + rest
	}
	return what + ": " + text
}

// readReport parses the body of a report.
func readReport(body []byte, required ...string) (*object, error) {
	var faults problem.Violations
	o, err := parse(body, strictEnvelope, &faults)
	if err != nil {
		return nil, err
	}
	o.require(required...)
	return o, faults.Err(nil)
}

// outcome reads the result of a job. A member error of any type but null fails the job, and
// then a member retry that is false says that no other attempt follows. The status IN_PROGRESS means progress. Anything else completes the job.
func (o *object) outcome(op queue.Op) queue.Op {
	if out := o.find("output"); out != nil {
		op.Payload = out.value
	}
	switch e := o.find("error"); {
	case e != nil && e.value.Kind() != 'n':
		op.Status, op.Error = serverless.Failed, string(e.value)
		if e.value.Kind() == '"' {
			op.Error = unquote(e.value)
		}
		if r := o.find("retry"); r != nil && r.value.Kind() == 'f' {
			op.NoRetry = true
		}
	case o.text("status") == "IN_PROGRESS":
		op.Kind = queue.OpProgress
	default:
		op.Status = serverless.Completed
	}
	return op
}

// verdictMember is what a worker says of its job instead of a result: beside output, or as a member of an
// output that is an object (docs/decisions.md 62). No other output is interpreted.
const verdictMember = "podyard"

// verdict takes the verdict of the worker out of a result that completes the job; nil: there is none.
func (o *object) verdict(op *queue.Op) (v *serverless.Verdict, fault string) {
	if op.Kind != queue.OpFinish || op.Status != serverless.Completed {
		return nil, ""
	}
	said := o
	if m := o.find(verdictMember); m == nil || m.value.Kind() == 'n' {
		if said = o.outputWith(verdictMember); said == nil {
			return nil, ""
		}
		op.Payload = said.without(verdictMember)
	}
	var faults problem.Violations
	said.faults = &faults
	said.path = ""
	v = said.readVerdict()
	if err := faults.Err(nil); err != nil {
		return nil, reasonOf(err)
	}
	if *v == (serverless.Verdict{}) {
		return nil, ""
	}
	return v, v.Fault()
}

func (o *object) readVerdict() *serverless.Verdict {
	v := &serverless.Verdict{}
	sub := o.object(verdictMember)
	if sub == nil {
		return v
	}
	sub.millisInto("snooze", &v.Snooze)
	if yes := sub.boolean("cancel"); yes != nil {
		v.Cancel = *yes
	}
	if sub.has("snooze") && v.Snooze == 0 {
		v.Snooze = -1 // not none
	}
	sub.millisInto("holdKey", &v.HoldKey)
	if sub.has("holdKey") && v.HoldKey == 0 {
		v.HoldKey = -1
	}
	sub.unknown()
	return v
}

// outputWith returns the output if it is an object whose member of this name is an object.
func (o *object) outputWith(name string) *object {
	out := o.find("output")
	if out == nil || out.value.Kind() != '{' || !bytes.Contains(out.value, []byte(name)) {
		return nil
	}
	sub, err := parse(out.value, strictEnvelope, &problem.Violations{})
	if err != nil {
		return nil // not one object that says something once
	}
	if m := sub.find(name); m == nil || m.value.Kind() != '{' {
		return nil
	}
	return sub
}

// jobChunk accepts one item of a stream: an object with a member output. The item is kept
// byte for byte, without surrounding white space. Without an item that can never be taken the
// result would not be whole, so the job fails. Metrics that are not an object are
// dropped, so that readers always get an object. The output is kept, because the user waits
// for it, and the answer says what was dropped.
func jobChunk(c *call) error {
	op := c.report(queue.OpChunk)
	body, err := c.body(maxReport)
	switch {
	case problem.KindOf(err) == problem.TooLarge:
		return c.never(op, about("a chunk of the worker's result", err))
	case err != nil:
		return err
	}
	o, err := readReport(body, "output")
	if err != nil {
		return c.never(op, about("a chunk of the worker's result", err))
	}
	op.Payload = bytes.TrimSpace(body)
	wrong := o.hasWrongMetrics()
	if wrong {
		op.Payload = o.without("metrics")
	}
	err = c.Jobs.Report(c.r.Context(), op)
	if err == nil && wrong {
		return c.acceptedWithout("/metrics: must be an object, and was left out")
	}
	return c.accepted(err)
}

// workerMetrics serves some clients instead of health. It names workers only for those who may
// list them.
func workerMetrics(c *call) error {
	endpoint := c.r.PathValue("endpoint")
	h, err := c.Jobs.Health(c.r.Context(), endpoint)
	if err != nil {
		return err
	}
	ready := []serverless.WorkerID{}
	seen, err := c.seesWorkers(endpoint)
	if err != nil {
		return err
	}
	if seen {
		ready = append(ready, c.Jobs.ReadyWorkers(endpoint)...)
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Workers      workerCounts          `json:"workers"`
		ReadyWorkers []serverless.WorkerID `json:"readyWorkers"`
	}{workerCounts(h.Workers), ready})
}

// seesWorkers reports whether the caller may list the workers of an endpoint
// (docs/decisions.md 13).
func (c *call) seesWorkers(endpoint string) (bool, error) {
	if c.id.Operator() {
		return true, nil
	}
	e, err := c.Jobs.Endpoint(c.r.Context(), endpoint)
	if err != nil {
		return false, err
	}
	return e.Owner != "" && e.Owner == c.owner && c.id.Can(Permission{Area: "endpoints", Level: Read}), nil
}
