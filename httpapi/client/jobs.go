package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Jobs has the operations on the jobs of one endpoint.
type Jobs struct {
	c        *Client
	endpoint string
}

// Jobs returns the operations on the jobs of an endpoint.
func (c *Client) Jobs(endpoint string) *Jobs { return &Jobs{c, endpoint} }

// A JobStatus is the status of a job (docs/interface.md 3.2).
type JobStatus string

// The statuses of jobs, and the actions on them (docs/interface.md 4.2).
const (
	InQueue    JobStatus = "IN_QUEUE"
	InProgress JobStatus = "IN_PROGRESS"
	Completed  JobStatus = "COMPLETED"
	Failed     JobStatus = "FAILED"
	Cancelled  JobStatus = "CANCELLED"
	TimedOut   JobStatus = "TIMED_OUT"

	ActionCancel Action = "cancel" // jobs that have not ended
	ActionRetry  Action = "retry"  // FAILED and TIMED_OUT jobs
	ActionStart  Action = "start"  // delayed jobs: now
	ActionDelete Action = "delete" // jobs that have ended
)

// Ended reports whether a job with this status has ended.
func (s JobStatus) Ended() bool { return s != InQueue && s != InProgress }

// A Job is a job as the server answers it (docs/interface.md 2.8).
type Job struct {
	ID            string          `json:"id"`
	Status        JobStatus       `json:"status"`
	DelayTime     Millis          `json:"delayTime"`     // in the queue
	ExecutionTime Millis          `json:"executionTime"` // from start to end
	WorkerID      string          `json:"workerId"`
	Output        json.RawMessage `json:"output"` // the result, or the last progress
	Error         string          `json:"error"`
	Input         json.RawMessage `json:"input"` // only in a list that asks for it
	Owner         string          `json:"-"`     // only for operators: see Client.As
	Existing      bool            `json:"-"`     // of a submit: it made no job, because this one holds its key (JobUnique)
	// FailedAt and ExpiresAt are those of a dead letter.
	FailedAt  time.Time `json:"-"`
	ExpiresAt time.Time `json:"-"`
}

func (j *Job) own(owner string) { j.Owner = owner }

// Err returns a *JobError if the job has ended without a result, else nil.
func (j *Job) Err() error {
	if !j.Status.Ended() || j.Status == Completed {
		return nil
	}
	return &JobError{*j}
}

// A JobError is a job that has ended without a result.
type JobError struct{ Job Job }

func (e *JobError) Error() string {
	s := fmt.Sprintf("client: job %s is %s", e.Job.ID, e.Job.Status)
	if e.Job.Error != "" {
		s += ": " + e.Job.Error
	}
	return s
}

// Millis is a duration that is written as an integer of milliseconds.
type Millis time.Duration

// Duration returns m as a time.Duration.
func (m Millis) Duration() time.Duration { return time.Duration(m) }

// MarshalJSON writes milliseconds.
func (m Millis) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Duration(m).Milliseconds(), 10), nil
}

// UnmarshalJSON reads milliseconds.
func (m *Millis) UnmarshalJSON(b []byte) error {
	var ms float64
	err := json.Unmarshal(b, &ms)
	*m = Millis(time.Duration(ms) * time.Millisecond)
	return err
}

// A JobRequest is a job to submit. What is absent has the server's default.
type JobRequest struct {
	Input    any            `json:"input"` // a JSON object; of a json.RawMessage only white space changes
	Webhook  string         `json:"webhook,omitempty"`
	Policy   *JobPolicy     `json:"policy,omitempty"`
	S3Config map[string]any `json:"s3Config,omitempty"` // for the worker only
	Queue    *JobQueue      `json:"queue,omitempty"`    // an addition

	// TraceParent and TraceState are a W3C trace context, which the worker and the receiver of
	// the webhook get. They are an addition.
	TraceParent, TraceState string `json:"-"`
	// Wait is how long RunSync holds one request. Default: the server's, 90 s.
	Wait time.Duration `json:"-"`
	// IdempotencyKey is an addition: for 24 hours, a job with the same key and body is this
	// job. Default: one for each call if Options.Additions is set, else none.
	IdempotencyKey string `json:"-"`
}

// A JobPolicy has the limits of a job (docs/interface.md 8.1).
type JobPolicy struct {
	ExecutionTimeout Millis `json:"executionTimeout,omitempty"`
	TTL              Millis `json:"ttl,omitempty"`
	LowPriority      bool   `json:"lowPriority,omitempty"` // no worker is started for the job
}

// A JobQueue says when a job runs and how often (docs/decisions.md 39).
type JobQueue struct {
	Priority   *int       `json:"priority,omitempty"` // 0 to 9, which goes first
	Key        string     `json:"key,omitempty"`      // jobs with other keys take turns with it
	StartAfter Millis     `json:"startAfter,omitempty"`
	StartAt    time.Time  `json:"-"` // instead of StartAfter
	Retry      *JobRetry  `json:"retry,omitempty"`
	Unique     *JobUnique `json:"unique,omitempty"` // that there is no other job with its key
	Retain     Millis     `json:"retain,omitempty"` // how long the result is kept from the end, also past the ttl
}

// MarshalJSON writes StartAt as startAfter.
func (q JobQueue) MarshalJSON() ([]byte, error) {
	type plain JobQueue
	if q.StartAt.IsZero() {
		return json.Marshal(plain(q))
	}
	return json.Marshal(struct {
		plain
		StartAfter time.Time `json:"startAfter"`
	}{plain(q), q.StartAt})
}

// A JobUnique makes a job the only one of the user on the endpoint with a key (docs/decisions.md 60). A
// submit then may answer with a job that was there: Job.Existing.
type JobUnique struct {
	Key        string `json:"key"`
	While      string `json:"while"`                // queued, active or period: for how long the job holds the key
	Period     Millis `json:"period,omitempty"`     // of period, from the submission
	OnConflict string `json:"onConflict,omitempty"` // keep (the default), or replace: the job that is queued gets this input
}

// A JobRetry says how a job is repeated that has failed (docs/decisions.md 39).
type JobRetry struct {
	Attempts int      `json:"attempts,omitempty"` // in all
	Delay    Millis   `json:"delay,omitempty"`
	Factor   float64  `json:"factor,omitempty"`
	MaxDelay Millis   `json:"maxDelay,omitempty"`
	Jitter   *float64 `json:"jitter,omitempty"`
	Timeouts bool     `json:"timeouts,omitempty"` // also after TIMED_OUT
}

// to returns a request to an operation. name is its path below the endpoint.
func (j *Jobs) to(method string, query url.Values, name ...string) *request {
	return to(j.c.jobs, method, join("/v2/"+url.PathEscape(j.endpoint), name...), query)
}

func (j *Jobs) job(ctx context.Context, r *request) (job Job, err error) {
	h, err := j.c.do(ctx, r, &job)
	ownerOf(&job, h)
	job.Existing = h.Get("Podyard-Existing") == "true"
	return job, err
}

// Submit puts a job into the queue and does not wait for it.
func (j *Jobs) Submit(ctx context.Context, r JobRequest) (Job, error) {
	return j.submit(ctx, "run", nil, r)
}

func (j *Jobs) submit(ctx context.Context, name string, query url.Values, r JobRequest) (Job, error) {
	if r.Input == nil {
		r.Input = struct{}{}
	}
	q, err := j.to(http.MethodPost, query, name).with(r)
	if err != nil {
		return Job{}, err
	}
	q.trace = [2]string{r.TraceParent, r.TraceState}
	j.c.keyed(q, r.IdempotencyKey)
	return j.job(ctx, q)
}

// RunSync puts a job into the queue and waits until it has ended or ctx ends, however long
// that takes. A job that failed is no error: see Job.Err.
func (j *Jobs) RunSync(ctx context.Context, r JobRequest) (Job, error) {
	job, err := j.submit(ctx, "runsync", waitQuery(r.Wait), r)
	if err != nil || job.Status.Ended() {
		return job, err
	}
	return j.Wait(ctx, job.ID)
}

func waitQuery(wait time.Duration) url.Values {
	if wait == 0 {
		return nil
	}
	return url.Values{"wait": {strconv.FormatInt(wait.Milliseconds(), 10)}}
}

// Wait waits until a job has ended or ctx ends.
func (j *Jobs) Wait(ctx context.Context, id string) (Job, error) {
	for {
		asked := time.Now()
		job, err := j.job(ctx, j.to(http.MethodGet, nil, "status-sync", id))
		if err != nil || job.Status.Ended() {
			return job, err
		}
		if err := pace(ctx, asked); err != nil {
			return job, err
		}
	}
}

// Get returns a job as it is.
func (j *Jobs) Get(ctx context.Context, id string) (Job, error) {
	return j.job(ctx, j.to(http.MethodGet, nil, "status", id))
}

// Extend sets when a job is deleted, from now, and returns the job.
func (j *Jobs) Extend(ctx context.Context, id string, ttl time.Duration) (Job, error) {
	return j.job(ctx, j.to(http.MethodGet, url.Values{"ttl": {strconv.FormatInt(ttl.Milliseconds(), 10)}}, "status", id))
}

// Cancel ends a job. One that has ended keeps its status.
func (j *Jobs) Cancel(ctx context.Context, id string) (Job, error) {
	r := j.to(http.MethodPost, nil, "cancel", id)
	r.again = always
	return j.job(ctx, r)
}

// Retry runs a FAILED or TIMED_OUT job again.
func (j *Jobs) Retry(ctx context.Context, id string) (Job, error) {
	return j.job(ctx, j.to(http.MethodPost, nil, "retry", id))
}

// A JobHistory is what a job has behind it, oldest first: the attempts of its last run, and the last
// ten leases of all runs after which it was queued again. A lease is the time in which a worker had it.
type JobHistory struct {
	Attempts []struct {
		Number                 int
		Status                 JobStatus
		Error, Worker          string
		StartedAt, CompletedAt *time.Time // CompletedAt is nil while it runs
		Delay                  *Millis    // until the next one was ready; nil: it is the last one
	}
	Leases []struct {
		Run                int // from 0; a retry of the user begins the next one
		Attempt            int
		Worker             string
		StartedAt, EndedAt time.Time
		FirstChunkAt       *time.Time // nil: it has reported none
		End                string     // lost, released, failed, timed_out or restarted
		ReadyAt            time.Time  // when the job could be claimed again
	}
	LeaseCount   int        // how many there were, the ten included; 241: more than 240
	FirstChunkAt *time.Time // of the present lease, which is not in Leases; nil: it has reported none
}

// History returns the attempts and leases of a job.
func (j *Jobs) History(ctx context.Context, id string) (h JobHistory, err error) {
	_, err = j.c.do(ctx, j.to(http.MethodGet, nil, "attempts", id), &h)
	return h, err
}

// A JobLog is what the runs of a job have printed, oldest first.
type JobLog struct {
	ID    string
	Lines []struct {
		Time    time.Time
		Level   string // as the worker says it, such as INFO; may be empty
		Message string
	}
	Dropped int // lines before the first that are no longer kept
}

// Log returns the lines that workers have printed with the id of a job: the newest 64 KB. A line is
// there within about a second.
func (j *Jobs) Log(ctx context.Context, id string) (l JobLog, err error) {
	_, err = j.c.do(ctx, j.to(http.MethodGet, nil, "log", id), &l)
	return l, err
}

// A deadLetter is a copy of a job that failed for good.
type deadLetter struct {
	FailedAt, ExpiresAt time.Time
	Job                 Job
}

func (d *deadLetter) own(owner string) { d.Job.Owner = owner }

func (d *deadLetter) job() Job {
	d.Job.FailedAt, d.Job.ExpiresAt = d.FailedAt, d.ExpiresAt
	return d.Job
}

// DeadLetters returns the dead letters, copies of jobs that failed for good, newest first, without
// input and output.
func (j *Jobs) DeadLetters(ctx context.Context) ([]Job, error) {
	var out struct{ Dead json.RawMessage }
	r := j.to(http.MethodGet, j.ofOwner(url.Values{}), "dead")
	if _, err := j.c.do(ctx, r, &out); err != nil {
		return nil, err
	}
	list, err := records[deadLetter](j.c, out.Dead)
	jobs := make([]Job, 0, len(list))
	for i := range list {
		jobs = append(jobs, list[i].job())
	}
	return jobs, r.failed(err)
}

// DeadLetter returns the dead letter of a job, with input and output.
func (j *Jobs) DeadLetter(ctx context.Context, id string) (Job, error) {
	var d deadLetter
	h, err := j.c.do(ctx, j.to(http.MethodGet, nil, "dead", id), &d)
	ownerOf(&d, h)
	return d.job(), err
}

// Redrive submits the job of a dead letter again, as a new job, and deletes the dead letter.
func (j *Jobs) Redrive(ctx context.Context, id string) (Job, error) {
	return j.job(ctx, j.to(http.MethodPost, nil, "dead", id, "redrive"))
}

// DeleteDeadLetter deletes the dead letter of a job.
func (j *Jobs) DeleteDeadLetter(ctx context.Context, id string) error {
	_, err := j.c.do(ctx, j.to(http.MethodDelete, nil, "dead", id), nil)
	return err
}

// Purge cancels the queued jobs, and returns how many.
func (j *Jobs) Purge(ctx context.Context) (int, error) {
	var out struct{ Removed int }
	_, err := j.c.do(ctx, j.to(http.MethodPost, j.ofOwner(url.Values{}), "purge-queue"), &out)
	return out.Removed, err
}

// An Action is what Act does with jobs.
type Action string

// A JobFilter selects jobs that match all of its members. At least one must be set.
type JobFilter struct {
	IDs    []string    `json:"ids,omitempty"` // at most 1000
	Status []JobStatus `json:"status,omitempty"`
	Key    *string     `json:"key,omitempty"`
	Batch  string      `json:"batch,omitempty"`    // the requests of this batch
	Prefix string      `json:"idPrefix,omitempty"` // the id begins with this
	Before *time.Time  `json:"before,omitempty"`   // submitted before
	After  *time.Time  `json:"after,omitempty"`    // not submitted before
}

// An ActionResult is the result of Act.
type ActionResult struct {
	Matched, Done int
	Failed        []struct{ ID, Error string }
}

// Act does an action on the jobs that a filter selects, or on all for nil. With preview it
// only counts. It makes as many requests as there are pages of jobs; an error ends it, and the
// result is then that of the pages before. It is an addition.
func (j *Jobs) Act(ctx context.Context, a Action, filter *JobFilter, preview bool) (sum ActionResult, err error) {
	body := struct {
		Action  Action     `json:"action"`
		Filter  *JobFilter `json:"filter,omitempty"`
		All     bool       `json:"all,omitempty"`
		Preview bool       `json:"preview,omitempty"`
		Cursor  string     `json:"cursor,omitempty"`
	}{Action: a, Filter: filter, All: filter == nil, Preview: preview}
	for more := true; more; {
		var page struct {
			ActionResult
			Cursor string
		}
		r, err := j.to(http.MethodPost, j.ofOwner(url.Values{}), "actions").with(body)
		if err != nil {
			return sum, err
		}
		if _, err = j.c.do(ctx, r, &page); err != nil {
			return sum, err
		}
		sum.Matched, sum.Done, sum.Failed = sum.Matched+page.Matched, sum.Done+page.Done, append(sum.Failed, page.Failed...)
		body.Cursor, more = page.Cursor, page.Cursor != ""
	}
	return sum, nil
}

func (j *Jobs) ofOwner(q url.Values) url.Values {
	if j.c.owner != "" {
		q.Set("owner", j.c.owner)
	}
	return q
}

// A Health counts the jobs and the workers of an endpoint.
type Health struct {
	Jobs struct {
		Completed  int `json:"completed"`
		Failed     int `json:"failed"`
		InProgress int `json:"inProgress"`
		InQueue    int `json:"inQueue"`
		Retried    int `json:"retried"`
	} `json:"jobs"`
	Workers struct {
		Idle         int `json:"idle"`
		Initializing int `json:"initializing"`
		Ready        int `json:"ready"`
		Running      int `json:"running"`
		Throttled    int `json:"throttled"`
		Unhealthy    int `json:"unhealthy"`
	} `json:"workers"`
}

// Health counts jobs and workers.
func (j *Jobs) Health(ctx context.Context) (h Health, err error) {
	_, err = j.c.do(ctx, j.to(http.MethodGet, nil, "health"), &h)
	return h, err
}

// Metrics counts workers by their state ("running"), and returns the ids of those that are
// ready.
func (j *Jobs) Metrics(ctx context.Context) (counts map[string]int, ready []string, err error) {
	var out struct {
		Workers      map[string]int
		ReadyWorkers []string
	}
	_, err = j.c.do(ctx, j.to(http.MethodGet, nil, "metrics"), &out)
	return out.Workers, out.ReadyWorkers, err
}

// A JobsQuery selects jobs. The zero value selects all, without input and output.
type JobsQuery struct {
	Status []JobStatus // with one of these; empty: all
	Full   bool        // with input and output
}

// List iterates over jobs, newest first. An error ends it. A job that ends or is deleted
// meanwhile may be missed or be there twice.
func (j *Jobs) List(ctx context.Context, q JobsQuery) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for offset, more := 0, true; more; {
			var list []Job
			var err error
			if list, more, err = j.listFrom(ctx, q, offset); err != nil {
				yield(Job{}, err)
				return
			}
			for _, job := range list {
				if !yield(job, nil) {
					return
				}
			}
			offset += len(list)
			more = more && len(list) > 0
		}
	}
}

func (j *Jobs) listFrom(ctx context.Context, q JobsQuery, offset int) (list []Job, more bool, err error) {
	query := j.ofOwner(url.Values{"limit": {"100"}, "offset": {strconv.Itoa(offset)}})
	for _, s := range q.Status {
		query.Add("status", string(s))
	}
	if q.Full {
		query.Set("full", "true")
	}
	var out struct {
		Requests json.RawMessage
		HasMore  bool
	}
	r := j.to(http.MethodGet, query, "requests")
	if _, err := j.c.do(ctx, r, &out); err != nil {
		return nil, false, err
	}
	list, err = records[Job](j.c, out.Requests)
	return list, out.HasMore, r.failed(err)
}

// OpenAI makes a request to the OpenAI interface of a worker: "v1/chat/completions". body is
// JSON, or nil for a GET. The caller reads and closes the body of the answer, which is an
// event stream if the request asks for one.
func (j *Jobs) OpenAI(ctx context.Context, route string, body any) (io.ReadCloser, error) {
	path := strings.Split(strings.Trim(route, "/"), "/")
	r := j.to(http.MethodGet, nil, append([]string{"openai"}, path...)...)
	if body != nil {
		r.method, r.again = http.MethodPost, ifRefused
		if _, err := r.with(body); err != nil {
			return nil, err
		}
	}
	res, err := j.c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// Run runs one job, waits until it has ended or ctx ends, and decodes its output. A job
// without a result is a *JobError.
func Run[In, Out any](ctx context.Context, j *Jobs, in In) (out Out, err error) {
	job, err := j.RunSync(ctx, JobRequest{Input: in})
	if err == nil {
		err = job.Err()
	}
	if err == nil && len(job.Output) > 0 {
		err = json.Unmarshal(job.Output, &out)
	}
	return out, err
}
