package prometheus

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	podevents "github.com/podyard/podyard/pods/telemetry"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
)

// begin makes the series of an endpoint that few jobs change, so that rates begin at 0.
func (m *Metrics) begin(id string) {
	for _, s := range []queue.State{
		{Status: queue.Failed}, {Status: queue.Cancelled}, {Status: queue.Failed, Reason: queue.WorkersLost}, {Status: queue.Failed, Reason: queue.TooManyRestarts},
		{Status: queue.Failed, Reason: queue.Damaged}, {Status: queue.TimedOut, Reason: queue.ExecutionTimedOut},
	} {
		m.finished.WithLabelValues(id, s.Status.String(), reasonOf(&s))
	}
	for _, c := range []telemetry.Cause{telemetry.Lost, telemetry.Released, telemetry.Snoozed, telemetry.Retry, telemetry.Restart} {
		m.requeued.WithLabelValues(id, string(c))
	}
	for _, result := range []string{telemetry.StartOK, telemetry.StartNoRoom, telemetry.StartFailed} {
		m.starts.WithLabelValues(id, result)
	}
	for _, action := range []string{"start", "stop", "drain"} {
		m.scaled.WithLabelValues(id, action)
	}
	m.lost.WithLabelValues(id)
}

// beginAll does the same for series of the server.
func (m *Metrics) beginAll() {
	for _, code := range []string{"2xx", "3xx", "4xx", "5xx", "none"} {
		m.hookAttempts.WithLabelValues(code)
		m.hookSeconds.WithLabelValues(code)
	}
	for _, cause := range []string{podevents.ByUser, podevents.ByExit, podevents.ByError, podevents.ByOOM, podevents.ByImage, podevents.ByHost} {
		m.podEnds.WithLabelValues(cause)
	}
	for _, limit := range []string{"minute", "hour", "day", "rate", "concurrency"} {
		m.limits.WithLabelValues(limit)
	}
	for _, reason := range []string{"missing", "malformed", "invalid", "forbidden"} {
		m.auth.WithLabelValues(reason)
	}
	for _, loop := range []string{telemetry.LoopExpire, telemetry.LoopScaler, telemetry.LoopOutbox, podevents.LoopPods} {
		m.loopErrors.WithLabelValues(loop)
	}
}

// Jobs returns the observer for serverless.Options.
func (m *Metrics) Jobs() telemetry.Observer { return jobObserver{m} }

// Pods returns the observer for pods.Options.
func (m *Metrics) Pods() podevents.Observer { return podObserver{m} }

type jobObserver struct{ m *Metrics }

// Job implements telemetry.Observer.
func (o jobObserver) Job(e telemetry.JobEvent) {
	x := o.m.endpointOf(e.Endpoint)
	switch e.Change {
	case telemetry.JobSubmitted:
		x.inputs[kindOf(e.State.Flags)].add(int64(e.Bytes))
	case telemetry.JobClaimed:
		x.delay.addSpan(e.State.Queued, e.State.Started, e.Trace.Parent)
		if e.Trace.Parent != "" || x.joined.Load() != nil {
			x.claim(e.State.Worker, e.Trace.Parent)
		}
	case telemetry.JobEnded:
		if e.State.Started != 0 {
			x.execution.addSpan(e.State.Started, e.State.Finished, e.Trace.Parent)
		}
		if e.State.Status == queue.Completed {
			x.outputs.add(int64(e.Bytes))
			return
		}
		o.failed(x, e.State, e.Bytes)
	case telemetry.JobRequeued:
		o.requeued(x, e.Cause)
	case telemetry.JobExpired:
		x.expired.Inc()
	case telemetry.JobChunk:
		x.chunks.Inc()
	}
}

// failed counts a job that has ended, but is not completed.
func (o jobObserver) failed(x *endpoint, s *queue.State, size int) {
	reason := reasonOf(s)
	o.m.finished.WithLabelValues(x.id, s.Status.String(), reason).Inc()
	if reason == "worker" {
		x.failures.add(int64(size))
	}
}

func (o jobObserver) requeued(x *endpoint, c telemetry.Cause) {
	o.m.requeued.WithLabelValues(x.id, string(c)).Inc()
}

// kindOf returns how a job was submitted, as an index of kinds.
func kindOf(f queue.Flags) int {
	switch {
	case f&queue.OpenAI != 0:
		return 2
	case f&queue.Sync != 0:
		return 1
	}
	return 0
}

// reasonOf returns what has ended a job.
func reasonOf(s *queue.State) string {
	switch {
	case s.Status == queue.Cancelled:
		return "user"
	case s.Reason == queue.WorkersLost:
		return "workers_lost"
	case s.Reason == queue.ExecutionTimedOut:
		return "over_time"
	case s.Reason == queue.TooManyRestarts:
		return "too_many_crash"
	case s.Reason == queue.Damaged:
		return "damaged"
	}
	return "worker"
}

// observe adds a duration, with the trace as its exemplar if the trace is sampled.
func observe(h prometheus.Observer, d time.Duration, parent string) {
	seconds := max(d, 0).Seconds()
	if id := sampledTrace(parent); id != "" {
		h.(prometheus.ExemplarObserver).ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": id})
		return
	}
	h.Observe(seconds)
}

// sampledTrace returns the id of the trace of a traceparent if its flags have the bit of sampling.
func sampledTrace(parent string) string {
	if len(parent) < 55 {
		return ""
	}
	if flags, err := strconv.ParseUint(parent[53:55], 16, 8); err != nil || flags&1 == 0 {
		return ""
	}
	return parent[3:35]
}

// Worker implements telemetry.Observer.
func (o jobObserver) Worker(e telemetry.WorkerEvent) {
	x := o.m.endpointOf(e.Endpoint)
	switch e.Change {
	case telemetry.Scaled:
		o.m.wanted.WithLabelValues(x.id).Set(float64(e.Want))
		for action, n := range map[string]int{"start": e.Start, "stop": e.Stop, "drain": e.Drain} {
			o.m.scaled.WithLabelValues(x.id, action).Add(float64(n))
		}
	case telemetry.WorkerStarted:
		o.m.starts.WithLabelValues(x.id, e.Result).Inc()
	case telemetry.WorkerJoined:
		x.join(&e)
	case telemetry.WorkerLost:
		o.m.lost.WithLabelValues(x.id).Inc()
	}
}

// Webhook implements telemetry.Observer.
func (o jobObserver) Webhook(e telemetry.WebhookEvent) {
	code := "none"
	if e.Status >= 100 && e.Status < 600 {
		code = strconv.Itoa(e.Status/100) + "xx"
	}
	o.m.hookAttempts.WithLabelValues(code).Inc()
	observe(o.m.hookSeconds.WithLabelValues(code), e.Took, e.Trace.Parent)
	if e.Dropped {
		o.m.hookDropped.Inc()
	}
}

// Loop implements telemetry.Observer.
func (o jobObserver) Loop(e telemetry.LoopEvent) { o.m.loop(e.Loop, e.Lag, e.Err) }

func (m *Metrics) loop(name string, lag time.Duration, err error) {
	if err != nil {
		m.loopErrors.WithLabelValues(name).Inc()
		return
	}
	m.loopLag.WithLabelValues(name).Set(lag.Seconds())
}

type podObserver struct{ m *Metrics }

// Pod implements telemetry.Observer.
func (o podObserver) Pod(e podevents.PodEvent) {
	if e.Change == podevents.Started {
		o.m.podStart.WithLabelValues(o.m.hostOf(e.Host)).Observe(e.Took.Seconds())
		return
	}
	o.m.podEnds.WithLabelValues(e.Cause).Inc()
}

// Call implements telemetry.Observer.
func (o podObserver) Call(e podevents.CallEvent) {
	host, result := o.m.hostOf(e.Host), "ok"
	if e.Err != nil {
		result = "error"
	}
	o.m.calls.WithLabelValues(host, e.Call, result).Inc()
	o.m.callSeconds.WithLabelValues(host, e.Call, result).Observe(e.Took.Seconds())
}

// Loop implements telemetry.Observer.
func (o podObserver) Loop(e podevents.LoopEvent) {
	if e.Loop == podevents.LoopWatch {
		o.m.watchRestarts.WithLabelValues(o.m.hostOf(e.Host)).Inc()
		return
	}
	o.m.loop(e.Loop, e.Lag, e.Err)
}

// A requestKey identifies the series of a request.
type requestKey struct {
	area, operation string
	status          int
}

// request has the series of a requestKey.
type request struct {
	count   prometheus.Counter
	seconds prometheus.Observer
}

// RequestBegan implements httpapi.Observer.
func (m *Metrics) RequestBegan(area string) { m.flight(area).Inc() }

func (m *Metrics) flight(area string) prometheus.Gauge {
	if g, ok := m.inFlight.Load(area); ok {
		return g.(prometheus.Gauge)
	}
	g := m.httpInFlight.WithLabelValues(area)
	m.inFlight.Store(area, g)
	return g
}

// RequestEnded implements httpapi.Observer.
func (m *Metrics) RequestEnded(area, operation string, status int, took time.Duration, traceparent string) {
	m.flight(area).Dec()
	k := requestKey{area, operation, status}
	r, ok := m.requests.Load(k)
	if !ok {
		r = &request{m.httpRequests.WithLabelValues(area, operation, codeOf(status)), m.httpSeconds.WithLabelValues(area, operation)}
		m.requests.Store(k, r)
	}
	r.(*request).count.Inc()
	observe(r.(*request).seconds, took, traceparent)
}

// codeOf returns the label of a status. Workers of load-balancing endpoints choose theirs: one
// that no standard has is other.
func codeOf(status int) string {
	switch {
	case status == 0:
		return "none"
	case status < 100 || status > 599:
		return other
	}
	return strconv.Itoa(status)
}

// RequestLimited implements httpapi.Observer.
func (m *Metrics) RequestLimited(limit string) { m.limits.WithLabelValues(limit).Inc() }

// KeyRefused implements httpapi.Observer.
func (m *Metrics) KeyRefused(reason string) { m.auth.WithLabelValues(reason).Inc() }

// StoreCommitted implements disk.Observer.
func (m *Metrics) StoreCommitted(took time.Duration, changes int) {
	m.commitSeconds.Observe(took.Seconds())
	m.commitOps.Observe(float64(changes))
}
