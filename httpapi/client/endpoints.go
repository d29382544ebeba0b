package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Endpoints has the operations on endpoints. Those on their jobs are in Jobs.
type Endpoints struct{ c *Client }

// An Endpoint is an endpoint as the server answers it (docs/interface.md 2.12).
type Endpoint struct {
	ID             string            `json:"id"`
	Name           string            `json:"name"`
	Type           string            `json:"type"`
	RequestURLs    map[string]string `json:"requestUrls"`
	Image          string            `json:"image"`
	Args           string            `json:"args"`
	Entrypoint     []string          `json:"entrypoint"`
	Cmd            []string          `json:"cmd"`
	Disk           int               `json:"disk"` // GB
	Ports          []string          `json:"ports"`
	Env            map[string]string `json:"env"`
	Registry       string            `json:"registry"`
	GPU            *EndpointGPU      `json:"gpu"`
	CPU            []CPU             `json:"cpu"`
	Workers        WorkerLimits      `json:"workers"`
	Scaling        Scaling           `json:"scaling"`
	DataCenterIDs  []string          `json:"dataCenterIds"`
	NetworkVolumes []string          `json:"networkVolumes"`
	Timeout        Millis            `json:"timeout"`
	FlashBoot      string            `json:"flashboot"`
	CreatedAt      time.Time         `json:"createdAt"`
	Owner          string            `json:"-"` // only for operators: see Client.As
}

func (e *Endpoint) own(owner string) { e.Owner = owner }

// An EndpointGPU says which GPUs workers may have.
type EndpointGPU struct {
	Pools               []string `json:"pools,omitempty"`
	ExcludedTypes       []string `json:"excludedTypes,omitempty"`
	Count               int      `json:"count,omitempty"`
	AllowedCUDAVersions []string `json:"allowedCudaVersions,omitempty"`
	MinCUDAVersion      string   `json:"minCudaVersion,omitempty"`
}

// WorkerLimits bound the number of workers.
type WorkerLimits struct {
	Min         *int `json:"min,omitempty"`
	Max         *int `json:"max,omitempty"`
	IdleTimeout *int `json:"idleTimeout,omitempty"` // seconds
}

// Scaling says what decides on the number of workers. QueueDelay is for the type
// QUEUE_DELAY, RequestCount for REQUEST_COUNT.
type Scaling struct {
	Type         string  `json:"type"`
	QueueDelay   float64 `json:"queueDelay,omitempty"` // seconds
	RequestCount int     `json:"requestCount,omitempty"`
}

// EndpointSettings are the settings of a new endpoint, or those to change. Nil and zero: the
// default, or as it is.
type EndpointSettings struct {
	Type           string            `json:"type,omitempty"` // QUEUE; required of a new one
	Name           *string           `json:"name,omitempty"`
	Image          *string           `json:"image,omitempty"`
	TemplateID     string            `json:"templateId,omitempty"`
	GPU            *EndpointGPU      `json:"gpu,omitempty"`
	CPU            []CPU             `json:"cpu,omitempty"`
	Args           *string           `json:"args,omitempty"`
	Entrypoint     []string          `json:"entrypoint,omitzero"` // empty: the image's
	Cmd            []string          `json:"cmd,omitzero"`
	Disk           *int              `json:"disk,omitempty"`
	Ports          []string          `json:"ports,omitzero"`
	Env            map[string]string `json:"env,omitzero"`
	Registry       *string           `json:"-"` // empty: none
	Workers        *WorkerLimits     `json:"workers,omitempty"`
	Scaling        *Scaling          `json:"scaling,omitempty"`
	DataCenterIDs  []string          `json:"dataCenterIds,omitzero"`
	NetworkVolumes []string          `json:"networkVolumes,omitzero"`
	Timeout        Millis            `json:"timeout,omitempty"`
	FlashBoot      string            `json:"flashboot,omitempty"`
}

// MarshalJSON writes the settings.
func (s EndpointSettings) MarshalJSON() ([]byte, error) {
	type plain EndpointSettings
	return json.Marshal(struct {
		plain
		Registry json.RawMessage `json:"registry,omitempty"`
	}{plain(s), orNull(s.Registry)})
}

// All iterates over the caller's endpoints and the shared ones. An error ends it.
func (e *Endpoints) All(ctx context.Context) iter.Seq2[Endpoint, error] {
	return pages[Endpoint](ctx, e.c, "/v2/serverless", "endpoints", nil)
}

// List returns the caller's endpoints and the shared ones.
func (e *Endpoints) List(ctx context.Context) ([]Endpoint, error) { return collect(e.All(ctx)) }

// Create creates an endpoint.
func (e *Endpoints) Create(ctx context.Context, s EndpointSettings) (Endpoint, error) {
	return change[Endpoint](ctx, e.c, http.MethodPost, "/v2/serverless", s)
}

// Get returns an endpoint.
func (e *Endpoints) Get(ctx context.Context, id string) (Endpoint, error) {
	return find[Endpoint](ctx, e.c, join("/v2/serverless", id))
}

// Update changes an endpoint.
func (e *Endpoints) Update(ctx context.Context, id string, s EndpointSettings) (Endpoint, error) {
	return change[Endpoint](ctx, e.c, http.MethodPatch, join("/v2/serverless", id), s)
}

// Delete deletes an endpoint. Its workers end, and its jobs are cancelled.
func (e *Endpoints) Delete(ctx context.Context, id string) error {
	return e.c.remove(ctx, join("/v2/serverless", id))
}

// A Worker is a worker of an endpoint.
type Worker struct {
	ID            string     `json:"id"`
	Status        string     `json:"status"`  // RUNNING, IDLE, INITIALIZING, THROTTLED, UNHEALTHY
	IsStale       bool       `json:"isStale"` // of an earlier release
	Version       int        `json:"version"` // 0: not known
	GPUCount      int        `json:"gpuCount"`
	Image         string     `json:"image"`
	UptimeSeconds int64      `json:"uptimeSeconds"`
	GPUTypeID     string     `json:"gpuTypeId"`
	DataCenterID  string     `json:"dataCenterId"`
	StartedAt     *time.Time `json:"startedAt"` // nil: the server did not start it
}

// Workers lists the workers of an endpoint.
func (e *Endpoints) Workers(ctx context.Context, id string) ([]Worker, error) {
	out, err := get[struct{ Workers []Worker }](ctx, e.c, join("/v2/serverless", id, "workers"), nil)
	return out.Workers, err
}

// StopWorker ends a worker after its jobs. It is an addition.
func (e *Endpoints) StopWorker(ctx context.Context, id, worker string) error {
	return e.c.remove(ctx, join("/v2/serverless", id, "workers", worker))
}

// WorkerLogs iterates over the log of a worker until the worker ends or ctx ends, which is an
// error. o may be nil.
func (e *Endpoints) WorkerLogs(ctx context.Context, id, worker string, o *LogOptions) iter.Seq2[LogLine, error] {
	return logs(ctx, e.c, join("/v2/serverless", id, "workers", worker, "logs"), o)
}

// A Release is a version of the settings of an endpoint.
type Release struct {
	ID              string
	Version         int
	Source          string
	CreatedByUserID string
	WorkerCount     int
	CreatedAt       time.Time
	Diff            []struct {
		Field    string
		Old, New json.RawMessage
	}
}

// Releases lists the releases of an endpoint, newest first.
func (e *Endpoints) Releases(ctx context.Context, id string) ([]Release, error) {
	out, err := get[struct{ Releases []Release }](ctx, e.c, join("/v2/serverless", id, "releases"), nil)
	return out.Releases, err
}

// An EndpointJob is a job as Endpoints.Jobs lists it.
type EndpointJob struct {
	ID          string     `json:"id"`
	Status      JobStatus  `json:"status"`
	CreatedAt   time.Time  `json:"createdAt"`
	DurationMs  int64      `json:"durationMs"`
	CompletedAt *time.Time `json:"completedAt"`
	Input       string     `json:"input"` // JSON
	Output      string     `json:"output"`
	Owner       string     `json:"-"` // only for operators: see Client.As
}

func (j *EndpointJob) own(owner string) { j.Owner = owner }

// Jobs iterates over the caller's jobs on an endpoint with one of these statuses, or with any,
// newest first. It is an addition.
func (e *Endpoints) Jobs(ctx context.Context, id string, status ...JobStatus) iter.Seq2[EndpointJob, error] {
	query := url.Values{}
	for _, s := range status {
		query.Add("status", string(s))
	}
	return pages[EndpointJob](ctx, e.c, join("/v2/serverless", id, "jobs"), "jobs", query)
}

// A Decision is what the scaler decided on an endpoint.
type Decision struct {
	At     time.Time  `json:"at"`
	Want   int        `json:"want"`
	Start  int        `json:"start"`
	Stop   []string   `json:"stop"` // workers
	Drain  []string   `json:"drain"`
	Reason string     `json:"reason"`
	Next   *time.Time `json:"next"`
}

// Decisions lists what the scaler decided, newest first. It is an addition.
func (e *Endpoints) Decisions(ctx context.Context, id string) ([]Decision, error) {
	out, err := get[struct{ Decisions []Decision }](ctx, e.c, join("/v2/serverless", id, "decisions"), nil)
	return out.Decisions, err
}

// Why says what a job waits for. It is an addition.
func (e *Endpoints) Why(ctx context.Context, id, job string) (string, error) {
	out, err := get[struct{ Why string }](ctx, e.c, join("/v2/serverless", id, "decisions"), url.Values{"jobId": {job}})
	return out.Why, err
}

// A Queue has the settings of an endpoint's queue, and counts of its jobs (docs/decisions.md 40).
// It is an addition.
type Queue struct {
	PerKey, PerUser, Total  *int      // the most running jobs of a key, of a user and in all; nil: no limit
	Ageing                  Millis    // a job rises by one priority each time it has waited this long; 0: never
	Retry                   *JobRetry // of jobs without one; nil: none
	DeadLetter              Millis    // how long a job that failed for good is kept; 0: not at all
	Retain                  *Millis   // how long results are kept, also past the ttl; nil: 30 minutes, within the ttl
	Paused                  bool
	Ready, Delayed, Blocked int64 // jobs that could start now, that are delayed, and that the settings hold

	Rate, PerKeyRate, PerUserRate *QueueRate          // starts of the endpoint, of a key and of a user; nil: no limit
	Keys                          map[string]QueueKey // single keys with limits of their own
}

// A QueueRate bounds how many jobs start: Limit at once, refilled evenly, Limit in Per.
type QueueRate struct {
	Limit int    `json:"limit"`
	Per   Millis `json:"per"`
}

// A QueueKey has the limits of one key, instead of those of all keys.
type QueueKey struct {
	PerKey *int       `json:"perKey"`
	Rate   *QueueRate `json:"rate"`
}

// Queue returns the settings of an endpoint's queue.
func (e *Endpoints) Queue(ctx context.Context, id string) (Queue, error) {
	return get[Queue](ctx, e.c, join("/v2/serverless", id, "queue"), nil)
}

// UpdateQueue changes the members that settings has, such as {"perKey": 2, "total": nil}. Of keys it changes
// those that are named.
func (e *Endpoints) UpdateQueue(ctx context.Context, id string, settings map[string]any) (Queue, error) {
	return change[Queue](ctx, e.c, http.MethodPatch, join("/v2/serverless", id, "queue"), settings)
}

// A Delivery is an attempt to send the webhook of a job.
type Delivery struct {
	ID     string // the same for all attempts of one delivery
	At     time.Time
	Status int // 0: there was no answer
	Error  string
	Next   *time.Time // of the next attempt; nil: there is none
}

// Deliveries lists the attempts to send the webhook of a job. It is an addition.
func (e *Endpoints) Deliveries(ctx context.Context, id, job string) ([]Delivery, error) {
	out, err := get[struct{ Deliveries []Delivery }](ctx, e.c, join("/v2/serverless", id, "deliveries", job), nil)
	return out.Deliveries, err
}

// A Webhook is what became of the webhook of a job that has ended.
type Webhook struct {
	Job        string
	JobStatus  JobStatus
	FinishedAt time.Time // of the job
	State      string    // pending, delivered or failed
	Attempts   int
	Last       *Delivery // the last attempt; nil: there was none yet
	Owner      string    `json:"-"` // only for operators: see Client.As
}

func (w *Webhook) own(owner string) { w.Owner = owner }

// Webhooks iterates over the webhooks of the jobs of an endpoint that have ended and are kept,
// newest job first: those with a state, or with any if state is empty. It is an addition.
func (e *Endpoints) Webhooks(ctx context.Context, id, state string) iter.Seq2[Webhook, error] {
	query := url.Values{}
	if state != "" {
		query.Set("state", state)
	}
	return pages[Webhook](ctx, e.c, join("/v2/serverless", id, "deliveries"), "webhooks", query)
}

// Redeliver sends the webhook of a job again, and returns the id of the delivery. It is an
// addition.
func (e *Endpoints) Redeliver(ctx context.Context, id, job string) (string, error) {
	var out struct{ ID string }
	_, err := e.c.do(ctx, to(e.c.control, http.MethodPost, join("/v2/serverless", id, "deliveries", job, "redeliver"), nil), &out)
	return out.ID, err
}
