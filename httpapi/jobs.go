package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/serverless"
)

// jobsAPI is the jobs API with the routes whose errors have another form beside it.
func (a *api) jobsAPI() http.Handler {
	jobs, openai := a.jobs(), a.openai()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.SplitN(r.URL.Path, "/", 5)
		if len(parts) == 5 && parts[1] == "v2" && parts[3] == "openai" {
			openai.ServeHTTP(w, r)
			return
		}
		jobs.ServeHTTP(w, r)
	})
}

// jobs is the routes of the jobs API (section 4.2). GET and POST both serve what clients
// ask with either; cancel, retry and purge take whatever body comes.
func (a *api) jobs() *area {
	x := a.area(flavor{bareKeys: true, errors: true})
	if a.Jobs == nil {
		return x
	}
	run := func(l ratelimit.Operation, do func(*call) error) operation {
		return operation{access: onEndpoint(Run), do: limitedBy(l, do)}
	}
	read := func(l ratelimit.Operation, effects bool, do func(*call) error) map[string]operation {
		op := operation{access: onEndpoint(Read), effects: effects, do: limitedBy(l, do)}
		return map[string]operation{http.MethodGet: op, http.MethodPost: op}
	}
	post := func(op operation) map[string]operation { return map[string]operation{http.MethodPost: op} }

	x.handle("/v2/{endpoint}/run", post(run(ratelimit.Run, runJob)))
	x.handle("/v2/{endpoint}/runsync", post(run(ratelimit.RunSync, runJobSync)))
	x.handle("/v2/{endpoint}/status/{job}", read(ratelimit.Status, false, jobStatus))
	x.handle("/v2/{endpoint}/status-sync/{job}", read(ratelimit.Status, true, jobStatusSync))
	x.handle("/v2/{endpoint}/stream/{job}", read(ratelimit.Stream, true, streamJob))
	x.handle("/v2/{endpoint}/cancel/{job}", post(run(ratelimit.Cancel, cancelJob)))
	x.handle("/v2/{endpoint}/retry/{job}", post(run(ratelimit.Unlimited, retryJob)))
	x.handle("/v2/{endpoint}/purge-queue", post(run(ratelimit.PurgeQueue, purgeQueue)))
	x.handle("/v2/{endpoint}/health", map[string]operation{http.MethodGet: {do: limitedBy(ratelimit.Unlimited, health)}})
	x.handle("/v2/{endpoint}/requests", map[string]operation{
		http.MethodGet: {access: onEndpoint(Read), do: limitedBy(ratelimit.Requests, listRequests)},
	})
	x.metricsRoute()
	x.workerRoutes()
	return x
}

// limitedBy has an operation find its endpoint, which is the caller's or shared, and keep
// to the rate and concurrency of section 8.3.
func limitedBy(op ratelimit.Operation, do func(*call) error) func(*call) error {
	return func(c *call) error {
		id := c.r.PathValue("endpoint")
		if err := c.Jobs.CheckEndpoint(c.r.Context(), c.id.User, id); err != nil {
			return err
		}
		if op != ratelimit.Unlimited && !c.id.Exempt {
			who := ratelimit.Caller{User: c.id.User, Endpoint: id, Operation: op}
			pass, d := c.rates.Enter(c.clock.Now(), who, c.Jobs.RunningWorkers(id))
			if !d.OK {
				setLimits(c.w.Header(), d)
				return limited(d)
			}
			defer pass.Release()
		}
		return do(c)
	}
}

// ref is the job that the path names.
func (c *call) ref() serverless.Ref {
	return serverless.Ref{Endpoint: c.r.PathValue("endpoint"), ID: serverless.JobID(c.r.PathValue("job"))}
}

func runJob(c *call) error {
	r, err := c.runRequest(maxRunBody)
	if err != nil {
		return err
	}
	j, err := c.Jobs.Submit(c.r.Context(), c.id.User, c.r.PathValue("endpoint"), r)
	if err != nil {
		return err
	}
	return c.receipt(&j)
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
	ctx, cancel := c.hold(wait)
	defer cancel()
	j, err := c.Jobs.SubmitAndWait(ctx, c.id.User, c.r.PathValue("endpoint"), r)
	if err != nil {
		return err
	}
	return c.job(&j)
}

// runRequest reads the body of run and runsync. Only the envelope is strict: members it
// does not know are ignored, and the input is kept as the bytes that came.
func (c *call) runRequest(limit int64) (r serverless.Request, err error) {
	body, err := c.body(limit)
	if err != nil {
		return r, err
	}
	o, err := parse(body, envelope, &r.Faults)
	if err != nil {
		return r, err
	}
	for _, name := range [...]string{"policy", "s3Config"} {
		if err := o.checkNames(name); err != nil {
			return r, err
		}
	}
	r.Checked = true
	r.Input = o.take("input", "a JSON object", "{")
	if 2*len(r.Input) < len(body) {
		r.Input = append([]byte(nil), r.Input...) // do not keep the rest for its sake
	}
	if !o.isNull("webhook") {
		r.Webhook = o.text("webhook")
		if r.Webhook == "" && o.has("webhook") {
			r.Faults.Add(problem.Invalid, "/webhook", "must be an absolute http or https URL")
		}
	}
	if !o.isNull("policy") {
		r.Policy = o.policy()
	}
	if !o.isNull("s3Config") {
		r.Extra = o.s3Config()
	}
	return r, nil
}

// policy takes section 8.1.
func (o *object) policy() (p serverless.Policy) {
	sub := o.object("policy")
	if sub == nil {
		return p
	}
	p.ExecutionTimeout = sub.millis("executionTimeout")
	p.TTL = sub.millis("ttl")
	if !sub.isNull("lowPriority") {
		if low := sub.flag("lowPriority"); low != nil {
			p.LowPriority = *low
		}
	}
	return p
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

// s3Config checks that the members it has are strings and keeps it as it came.
func (o *object) s3Config() []byte {
	v := o.take("s3Config", "an object", "{")
	if v == nil {
		return nil
	}
	sub := o.nested("s3Config", v)
	for _, name := range [...]string{"accessId", "accessSecret", "bucketName", "endpointUrl"} {
		if !sub.isNull(name) {
			sub.str(name)
		}
	}
	b := append([]byte(`{"s3Config":`), v...)
	return append(b, '}')
}

// receipt is the answer of run, cancel and retry.
func (c *call) receipt(j *serverless.Job) error {
	b := append([]byte(`{"id":"`), j.ID...)
	b = append(b, `","status":"`...)
	b = append(b, j.Status.String()...)
	b = append(b, `"}`...)
	writeBody(c.w, http.StatusOK, "application/json", b)
	return nil
}

// job is the answer of runsync, status and status-sync.
func (c *call) job(j *serverless.Job) error {
	b := j.AppendJSON(make([]byte, 0, 256+len(j.Output)), false)
	writeBody(c.w, http.StatusOK, "application/json", b)
	return nil
}

func jobStatus(c *call) error {
	if c.query("ttl") == "" || c.r.Method == http.MethodHead { // HEAD changes nothing
		j, err := c.Jobs.Get(c.r.Context(), c.id.User, c.ref())
		if err != nil {
			return err
		}
		return c.job(&j)
	}
	if !c.id.Can(onEndpoint(Run)(c)) {
		return errForbidden
	}
	if _, err := c.Jobs.Get(c.r.Context(), c.id.User, c.ref()); err != nil {
		return err
	}
	ttl, err := c.queryMillis("ttl", 0, serverless.CheckTTL)
	if err != nil {
		return err
	}
	j, err := c.Jobs.SetTTL(c.r.Context(), c.id.User, c.ref(), ttl)
	if err != nil {
		return err
	}
	return c.job(&j)
}

func jobStatusSync(c *call) error {
	wait, err := c.jobWait(serverless.DefaultWait)
	if err != nil {
		return err
	}
	ctx, cancel := c.hold(wait)
	defer cancel()
	j, err := c.Jobs.Wait(ctx, c.id.User, c.ref(), wait)
	if err != nil {
		return err
	}
	return c.job(&j)
}

// jobWait is the parameter wait of an operation on a job.
func (c *call) jobWait(def time.Duration) (time.Duration, error) {
	wait, err := c.queryMillis("wait", def, serverless.CheckWait)
	return wait, c.ofJob(err)
}

// ofJob is what is wrong with a parameter of an operation on a job, which must exist:
// existence comes first.
func (c *call) ofJob(err error) error {
	if err == nil {
		return nil
	}
	if _, e := c.Jobs.Get(c.r.Context(), c.id.User, c.ref()); e != nil {
		return e
	}
	return err
}

func cancelJob(c *call) error {
	j, err := c.Jobs.Cancel(c.r.Context(), c.id.User, c.ref())
	if err != nil {
		return err
	}
	return c.receipt(&j)
}

func retryJob(c *call) error {
	j, err := c.Jobs.Retry(c.r.Context(), c.id.User, c.ref())
	if err != nil {
		return err
	}
	return c.receipt(&j)
}

// reach is whose jobs purge and requests cover: the caller's own, or everyone's for a key
// that may change endpoints.
func (c *call) reach() string {
	if c.id.Can(Permission{Area: "endpoints", Level: Write}) {
		return serverless.Everyone
	}
	return c.id.User
}

func purgeQueue(c *call) error {
	n, err := c.Jobs.Purge(c.r.Context(), c.reach(), c.r.PathValue("endpoint"))
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Removed int    `json:"removed"`
		Status  string `json:"status"`
	}{n, "completed"})
}

// A healthBody is section 2.8, with all six counters of workers.
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

// workerCounts are always all six: some clients refuse fewer.
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
	var b healthBody
	b.Jobs.Completed, b.Jobs.Failed, b.Jobs.Retried = h.Jobs.Completed, h.Jobs.Failed, h.Jobs.Retried
	b.Jobs.InProgress, b.Jobs.InQueue = h.Jobs.Running, h.Jobs.Queued
	b.Workers = workerCounts(h.Workers)
	return writeJSON(c.w, http.StatusOK, b)
}

// Bounds of a page of requests.
const (
	defaultPage = 20
	maxPage     = 100
)

func listRequests(c *call) error {
	q, err := c.requestsQuery()
	if err != nil {
		return err
	}
	page, err := c.Jobs.Requests(c.r.Context(), c.reach(), c.r.PathValue("endpoint"), q)
	if err != nil {
		return err
	}
	b := []byte(`{"requests":[`)
	for i := range page.Jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = page.Jobs[i].AppendJSON(b, true)
	}
	b = append(b, `],"total":`...)
	b = strconv.AppendInt(b, int64(page.Total), 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, int64(q.Offset), 10)
	b = append(b, `,"limit":`...)
	b = strconv.AppendInt(b, int64(q.Limit), 10)
	b = append(b, `,"hasMore":`...)
	b = strconv.AppendBool(b, q.Offset+q.Limit < page.Total)
	b = append(b, '}')
	writeBody(c.w, http.StatusOK, "application/json", b)
	return nil
}

func (c *call) requestsQuery() (q serverless.RequestsQuery, err error) {
	for _, s := range c.queryList("status") {
		st, ok := serverless.ParseStatus(s)
		if !ok {
			return q, problem.Newf(problem.Invalid, "status must be one of IN_QUEUE, IN_PROGRESS, COMPLETED, FAILED, CANCELLED, TIMED_OUT")
		}
		q.Status = append(q.Status, st)
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
