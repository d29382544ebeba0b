package prometheus

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
)

// endpoint has what each job of an endpoint changes, so that it is looked up once. A count that a tally has
// needs no counter.
type endpoint struct {
	id              string
	began           time.Time
	inputs          [len(kinds)]*tally // sizes by kind: one for each submitted job
	delay           *tally             // one for each claim
	execution       *tally
	outputs         *tally // sizes: one for each completed job
	failures        *tally // sizes of the outputs that workers have reported with a failure
	expired, chunks prometheus.Counter
	coldStart       *tally // one for each worker that the scaler has started
	joined          atomic.Pointer[joined]
	traced          atomic.Pointer[traced]
}

// joined is the last cold start, while its worker has no job yet.
type joined struct {
	worker queue.WorkerID
	cell   int
	took   int64
	at     queue.Instant
}

// traced is the first job with a sampled trace of the last worker that has got one.
type traced struct {
	worker queue.WorkerID
	parent string
}

// join counts a cold start. Its exemplar is the trace of the first job of the worker, which the worker has got
// already, or gets soon: whichever of join and claim is later sees what the other has stored.
func (x *endpoint) join(e *telemetry.WorkerEvent) {
	j := &joined{worker: e.Worker, took: max(e.Took, 0).Milliseconds(), at: e.At}
	j.cell = x.coldStart.add(j.took)
	x.joined.Store(j)
	if t := x.traced.Load(); t != nil && t.worker == j.worker {
		x.sample(j, t.parent)
	}
}

// claim is called for a job that has a trace, and for each job while joined is set.
func (x *endpoint) claim(w queue.WorkerID, parent string) {
	if sampledTrace(parent) != "" {
		if t := x.traced.Load(); t == nil || t.worker != w {
			x.traced.Store(&traced{w, parent})
		}
	}
	if j := x.joined.Load(); j != nil && j.worker == w {
		x.sample(j, parent)
	}
}

// sample makes the trace of a job the exemplar of a cold start, if it is sampled.
func (x *endpoint) sample(j *joined, parent string) {
	if x.joined.CompareAndSwap(j, nil) {
		x.coldStart.sample(j.cell, j.took, j.at, parent)
	}
}

// kinds are how jobs are submitted.
var kinds = [3]string{"run", "runsync", "openai"}

func (m *Metrics) newEndpoint(id string) *endpoint {
	e := &endpoint{
		id: id, began: m.clock.Now(), delay: newTally(m.durations), execution: newTally(m.durations),
		outputs: newTally(m.sizes), failures: newTally(m.sizes),
		expired: m.expired.WithLabelValues(id), chunks: m.chunks.WithLabelValues(id), coldStart: newTally(m.starting),
	}
	for i := range e.inputs {
		e.inputs[i] = newTally(m.sizes)
	}
	m.begin(id)
	return e
}

// JobTimes returns how often jobs of an endpoint have waited for a claim, and run, for how long: waited[i]
// and ran[i] are of times up to ends[i] milliseconds and longer than the end before, and the last of each, one
// more than there are ends, of longer ones. They count since the process began, with what this server did.
// All are nil for an endpoint without series of its own. It may be called at any time.
func (m *Metrics) JobTimes(endpoint string) (ends []int64, waited, ran []uint64) {
	e := (*m.endpoints.Load())[endpoint]
	if e == nil {
		return nil, nil, nil
	}
	return slices.Clone(m.durations.ends), e.delay.take().counts, e.execution.take().counts
}

// jobs collects what endpoints count.
type jobs struct {
	m                                                                         *Metrics
	began                                                                     time.Time
	submitted, claimed, completed, delay, execution, input, output, coldStart *prometheus.Desc
}

func newJobs(m *Metrics) *jobs {
	return &jobs{
		m: m, began: m.clock.Now(),
		submitted: desc("jobs_submitted_total", "Jobs that were submitted.", "endpoint", "kind"),
		claimed:   desc("jobs_claimed_total", "Claims of jobs by workers.", "endpoint"),
		completed: desc("jobs_finished_total", finishedHelp, "endpoint", "status", "reason"),
		delay:     desc("job_delay_seconds", "Time from the instant at which a job is ready to its claim.", "endpoint"),
		execution: desc("job_execution_seconds", "Time from the last claim of a job to its end.", "endpoint"),
		input:     desc("job_input_bytes", "Sizes of inputs."),
		output:    desc("job_output_bytes", "Sizes of outputs that workers have reported."),
		coldStart: desc("worker_cold_start_seconds", "Time from the decision to start a worker to its first request for a job.", "endpoint"),
	}
}

// Describe implements prometheus.Collector.
func (j *jobs) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{j.submitted, j.claimed, j.completed, j.delay, j.execution, j.input, j.output, j.coldStart} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (j *jobs) Collect(to chan<- prometheus.Metric) {
	input, output := newCensus(j.m.sizes), newCensus(j.m.sizes)
	for _, e := range *j.m.endpoints.Load() {
		j.collect(to, e, input, output)
	}
	j.collect(to, j.m.rest, input, output)
	to <- input.metric(j.input, j.began)
	to <- output.metric(j.output, j.began)
	j.m.finished.Collect(to) // those that are not completed
}

// collect sends the metrics of one endpoint, and adds its sizes to those of all.
func (j *jobs) collect(to chan<- prometheus.Metric, e *endpoint, input, output *census) {
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetricWithCreatedTimestamp(d, prometheus.CounterValue, float64(n), e.began, labels...)
	}
	for i, kind := range kinds {
		c := e.inputs[i].take()
		count(j.submitted, c.total, e.id, kind)
		input.merge(c)
	}
	delay := e.delay.take()
	count(j.claimed, delay.total, e.id)
	to <- delay.metric(j.delay, e.began, e.id)
	to <- e.execution.take().metric(j.execution, e.began, e.id)
	to <- e.coldStart.take().metric(j.coldStart, e.began, e.id)
	done := e.outputs.take()
	count(j.completed, done.total, e.id, queue.Completed.String(), "worker")
	output.merge(done)
	output.merge(e.failures.take())
}
