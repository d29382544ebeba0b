package httpapi

import (
	"context"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/fleet"
)

func endpointWorkerOperations() []operation {
	return group(APIControl, AreaEndpoints,
		op("listEndpointReleases", "GET /v2/serverless/{id}/releases", ScopeEndpointsRead, listReleases, paginated),
		op("listEndpointWorkers", "GET /v2/serverless/{id}/workers", ScopeEndpointsRead, listWorkers),
		op("stopWorker", "DELETE /v2/serverless/{id}/workers/{workerId}", ScopeEndpointsWrite, stopWorker, added),
		op("getWorkerLogs", "GET /v2/serverless/{id}/workers/{workerId}/logs", ScopeEndpointsRead, workerLogs, staysOpen(budget.Streams)),
		op("listDecisions", "GET /v2/serverless/{id}/decisions", ScopeEndpointsRead, listDecisions, added),
	)
}

func (b *describer) describeEndpointWorkers() map[string]description {
	version := func() *openapi.Schema { return openapi.OrNull(openapi.Of("integer")) }
	workers := fields(map[string]*openapi.Schema{
		"workers": openapi.List(openapi.For[workerBody](&b.Builder)), "summary": openapi.For[workerSummary](&b.Builder), "endpointVersion": version(),
	}, "endpointVersion", "summary", "workers")
	releases := fields(map[string]*openapi.Schema{
		"endpointVersion": version(), "rollout": openapi.For[rolloutBody](&b.Builder), "releases": openapi.List(openapi.For[releaseBody](&b.Builder)),
	}, "endpointVersion", "releases", "rollout")
	word := openapi.Of("string")
	why := fields(map[string]*openapi.Schema{"why": word}, "why")
	return map[string]description{
		"listEndpointReleases": {summary: "List the releases of an endpoint, newest first", answers: ok(withPagination(releases))},
		"listEndpointWorkers":  {summary: "List the workers of an endpoint", answers: ok(workers)},
		"stopWorker":           {summary: "End a worker after its jobs", text: "It gets no more jobs. Another one is started if one is needed. 409 for a worker that the service did not start.", answers: gone()},
		"getWorkerLogs":        {summary: "Follow the log of a worker", text: aboutLogs, params: logParams(), answers: ok(word), media: "text/event-stream"},
		"listDecisions": {
			summary: "List what the scaler decided, or say why a job waits", params: []*openapi.Parameter{inQuery("jobId", openapi.Of("string").NotEmpty(), "A job: the answer says what it waits for.")},
			answers: ok(&openapi.Schema{AnyOf: []*openapi.Schema{b.list("decisions", openapi.For[decisionBody](&b.Builder), false), why}}),
		},
	}
}

// A workerBody is a worker on the wire.
type workerBody struct {
	ID            serverless.WorkerID     `json:"id"`
	Status        serverless.WorkerStatus `json:"status"`
	IsStale       bool                    `json:"isStale"`
	Version       *int                    `json:"version"`
	GPUCount      int                     `json:"gpuCount"`
	Image         *string                 `json:"image"`
	UptimeSeconds *int64                  `json:"uptimeSeconds"`
	GPUTypeID     *string                 `json:"gpuTypeId"`
	DataCenterID  *string                 `json:"dataCenterId"`
	StartedAt     *wireTime               `json:"startedAt"`
}

type workerSummary struct {
	Running      int `json:"running"`
	Idle         int `json:"idle"`
	Initializing int `json:"initializing"`
	Throttled    int `json:"throttled"`
	Unhealthy    int `json:"unhealthy"`
	Total        int `json:"total"`
}

func listWorkers(c *call) error {
	e, err := c.managed()
	if err != nil {
		return err
	}
	list, err := c.Jobs.WorkerList(c.r.Context(), e.ID)
	if err != nil {
		return err
	}
	sum, now, l := workerSummary{Total: len(list)}, c.clock.Now(), c.list("workers")
	for i := range list {
		sum.count(list[i].Status)
		if l.next(""); !l.addJSON(workerOf(&list[i], e, now)) {
			return l.stopped()
		}
	}
	return l.endWith(struct {
		Summary         workerSummary `json:"summary"`
		EndpointVersion *int          `json:"endpointVersion"`
	}{sum, orNone(e.Version)})
}

func (s *workerSummary) count(st serverless.WorkerStatus) {
	switch st {
	case serverless.StatusRunning:
		s.Running++
	case serverless.StatusIdle:
		s.Idle++
	case serverless.StatusInitializing:
		s.Initializing++
	case serverless.StatusThrottled:
		s.Throttled++
	case serverless.StatusUnhealthy:
		s.Unhealthy++
	}
}

func workerOf(w *serverless.WorkerInfo, e *serverless.Endpoint, now time.Time) workerBody {
	b := workerBody{
		ID: w.ID, Status: w.Status, IsStale: isStale(w, e), Version: orNone(w.Release), GPUCount: w.GPUs,
		Image: orNull(w.Image), GPUTypeID: orNull(w.GPUType), DataCenterID: orNull(w.DataCenter),
	}
	if !w.Started.IsZero() {
		at, up := wireTime(w.Started), int64(max(0, now.Sub(w.Started))/time.Second)
		b.StartedAt, b.UptimeSeconds = &at, &up
	}
	return b
}

// isStale reports whether a worker's version is known and is not the endpoint's.
func isStale(w *serverless.WorkerInfo, e *serverless.Endpoint) bool {
	return w.Release != 0 && w.Release != e.Version
}

// orNone returns nil for an unknown version.
func orNone(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// A rolloutBody is the progress of the current version's rollout.
type rolloutBody struct {
	InProgress      bool `json:"inProgress"`
	WorkersOnLatest int  `json:"workersOnLatest"`
	WorkersTotal    int  `json:"workersTotal"`
	PercentOnLatest int  `json:"percentOnLatest"`
}

func listReleases(c *call) error {
	e, err := c.endpoint()
	if err != nil {
		return err
	}
	list, err := c.Jobs.WorkerList(c.r.Context(), e.ID)
	if err != nil {
		return err
	}
	running := map[int]int{}
	for i := range list {
		running[list[i].Release]++
	}
	// The newest comes first, so a release's place is the later the smaller its version is.
	releases, err := page(c, releasesOf(e, running), func(r releaseBody) place { return place{time.Unix(int64(-r.Version), 0), r.ID} })
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		EndpointVersion *int          `json:"endpointVersion"`
		Rollout         rolloutBody   `json:"rollout"`
		Releases        []releaseBody `json:"releases"`
		Pagination      pagination    `json:"pagination"`
	}{orNone(e.Version), rolloutOf(list, e), releases, c.pagination()})
}

func rolloutOf(list []serverless.WorkerInfo, e *serverless.Endpoint) rolloutBody {
	r := rolloutBody{WorkersTotal: len(list)}
	for i := range list {
		if isStale(&list[i], e) {
			r.InProgress = true
		} else {
			r.WorkersOnLatest++
		}
	}
	if len(list) > 0 {
		r.PercentOnLatest = 100 * r.WorkersOnLatest / len(list)
	}
	return r
}

// stopWorker answers before the worker has ended: it may have jobs.
func stopWorker(c *call) error {
	e, err := c.managed()
	if err != nil {
		return err
	}
	return c.noContent(c.Jobs.StopWorker(c.r.Context(), e.ID, serverless.WorkerID(c.r.PathValue("workerId"))))
}

// workerLogs streams the log of a worker until the worker ends or the client disconnects.
func workerLogs(c *call) error {
	e, err := c.managed()
	if err != nil {
		return err
	}
	read := func(ctx context.Context, q pods.LogQuery) (iter.Seq2[fleet.LogLine, error], error) {
		return c.Jobs.WorkerLog(ctx, e.ID, serverless.WorkerID(c.r.PathValue("workerId")), fleet.LogQuery(q))
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	if _, err := read(ctx, pods.LogQuery{}); err != nil {
		return err
	}
	return c.streamLog(func(ctx context.Context, src pods.LogSource, q pods.LogQuery) (iter.Seq2[pods.LogLine, error], error) {
		seq, err := read(ctx, q)
		if err != nil {
			return nil, err
		}
		return linesOf(seq, src), nil
	})
}

// linesOf returns a worker's log as one source of a stream. All lines of a worker are its
// container's. The system log has no lines, and ends with the container log.
func linesOf(seq iter.Seq2[fleet.LogLine, error], src pods.LogSource) iter.Seq2[pods.LogLine, error] {
	return func(yield func(pods.LogLine, error) bool) {
		for l, err := range seq {
			if src == pods.SystemLog && err == nil {
				continue
			}
			if !yield(pods.LogLine(l), err) {
				return
			}
		}
	}
}

// A decisionBody is a decision of the scaler. The scaler records one when something
// changed.
type decisionBody struct {
	At     wireTime              `json:"at"`
	Want   int                   `json:"want"`
	Start  int                   `json:"start"`
	Stop   []serverless.WorkerID `json:"stop"`
	Drain  []serverless.WorkerID `json:"drain"`
	Reason string                `json:"reason"`
	Next   *wireTime             `json:"next"`
}

func decisionOf(d fleet.Decision) decisionBody {
	b := decisionBody{
		At: wireTime(d.At.Time()), Want: d.Want, Start: d.Start, Stop: orEmpty(d.Stop), Drain: orEmpty(d.Drain), Reason: d.Reason,
	}
	if d.Next != 0 {
		t := wireTime(d.Next.Time())
		b.Next = &t
	}
	return b
}

// listDecisions lists the scaler's decisions on an endpoint, newest first. With jobId, it
// says what a job of the caller waits for.
func listDecisions(c *call) error {
	e, err := c.endpoint()
	if err != nil {
		return err
	}
	id, err := c.queryText("jobId")
	if err != nil {
		return err
	}
	if id != "" {
		return c.why(serverless.Ref{Endpoint: e.ID, ID: serverless.JobID(id)})
	}
	if _, err := c.managed(); err != nil {
		return err
	}
	list, err := c.Jobs.Decisions(c.r.Context(), e.ID)
	if err != nil {
		return err
	}
	list = slices.Clone(list)
	slices.Reverse(list)
	return writeJSON(c.w, http.StatusOK, struct {
		Decisions []decisionBody `json:"decisions"`
	}{bodies(list, decisionOf, all)})
}

// why answers what a job waits for.
func (c *call) why(ref serverless.Ref) error {
	why, err := c.Jobs.Why(c.r.Context(), c.owner, ref)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Why string `json:"why"`
	}{why})
}
