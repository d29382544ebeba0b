package prometheus

import "github.com/prometheus/client_golang/prometheus"

const prefix = "podyard_"

// Bounds of histograms, in seconds and bytes. Native histograms have finer ones.
var (
	jobSeconds   = []float64{.005, .025, .1, .5, 1, 5, 15, 60, 300, 3600}
	startSeconds = []float64{1, 5, 15, 60, 300}
	callSeconds  = []float64{.01, .1, 1, 10, 60}
	httpSeconds  = []float64{.005, .05, .5, 5, 60}
	hookSeconds  = []float64{.05, .25, 1, 5, 30}
	diskSeconds  = []float64{.0005, .001, .005, .01, .05, .1, .5, 1}
	groupSizes   = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
	bodyBytes    = []float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 10 << 20, 20 << 20}
)

const finishedHelp = "Jobs that have ended, by status and by what ended them."

// vectors are the counters and histograms, and the gauges that are set by events.
type vectors struct {
	finished, requeued, expired, chunks *prometheus.CounterVec
	wanted                              *prometheus.GaugeVec
	scaled, starts, lost                *prometheus.CounterVec
	hookAttempts                        *prometheus.CounterVec
	hookSeconds                         *prometheus.HistogramVec
	hookDropped                         prometheus.Counter
	podStart                            *prometheus.HistogramVec
	podEnds, calls, watchRestarts       *prometheus.CounterVec
	callSeconds                         *prometheus.HistogramVec
	httpRequests                        *prometheus.CounterVec
	httpSeconds                         *prometheus.HistogramVec
	httpInFlight                        *prometheus.GaugeVec
	limits, auth                        *prometheus.CounterVec
	commitSeconds, commitOps            prometheus.Histogram
	loopErrors                          *prometheus.CounterVec
	loopLag                             *prometheus.GaugeVec
	leader                              prometheus.Gauge
	buildInfo                           *prometheus.GaugeVec
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help}, labels)
}

func buckets(name, help string, bounds []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: prefix + name, Help: help, Buckets: bounds,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
	}
}

func histogram(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(buckets(name, help, bounds), labels)
}

func newVectors() vectors {
	return vectors{
		finished: counter("jobs_finished_total", finishedHelp, "endpoint", "status", "reason"),
		requeued: counter("jobs_requeued_total", "Jobs that were queued again.", "endpoint", "cause"),
		expired:  counter("jobs_expired_total", "Jobs whose ttl passed before they had ended.", "endpoint"),
		chunks:   counter("stream_chunks_total", "Chunks that workers have added to streams.", "endpoint"),

		wanted: gauge("workers_wanted", "Workers that the scaler wants.", "endpoint"),
		scaled: counter("scaler_actions_total", "Workers that the scaler has decided to start, stop or drain.", "endpoint", "action"),
		starts: counter("worker_starts_total", "Answers of the fleet to starts of workers.", "endpoint", "result"),
		lost:   counter("workers_lost_total", "Workers that ended by themselves, or are not heard of any more.", "endpoint"),

		hookAttempts: counter("webhook_attempts_total", "Attempts to deliver webhooks, by class of the answer.", "code"),
		hookSeconds:  histogram("webhook_seconds", "How long attempts to deliver webhooks took.", hookSeconds, "code"),
		hookDropped:  prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "webhook_dropped_total", Help: "Webhooks that were given up after their last attempt."}),

		podStart:      histogram("pod_start_seconds", "Time from the first call for a run of a pod to a healthy container.", startSeconds, "host"),
		podEnds:       counter("pod_ends_total", "Ends of containers of pods, by cause.", "cause"),
		calls:         counter("runtime_calls_total", "Calls of runtimes.", "host", "call", "result"),
		callSeconds:   histogram("runtime_call_seconds", "How long calls of runtimes took.", callSeconds, "host", "call", "result"),
		watchRestarts: counter("runtime_watch_restarts_total", "Times that the watch of a runtime had to begin again.", "host"),

		httpRequests: counter("http_requests_total", "Requests that were answered, or whose client went away before that (code 499).", "area", "operation", "code"),
		httpSeconds:  histogram("http_request_seconds", "How long requests took, waiting included.", httpSeconds, "area", "operation"),
		httpInFlight: gauge("http_in_flight", "Requests in flight.", "area"),
		limits:       counter("limits_refused_total", "Requests that a limit has refused.", "limit"),
		auth:         counter("auth_failures_total", "Requests whose key was refused.", "reason"),

		commitSeconds: prometheus.NewHistogram(buckets("store_commit_seconds", "How long commits of the store took.", diskSeconds)),
		commitOps:     prometheus.NewHistogram(buckets("store_commit_ops", "Changes that shared a commit of the store.", groupSizes)),

		loopErrors: counter("loop_errors_total", "Failed rounds of loops.", "loop"),
		loopLag:    gauge("loop_lag_seconds", "How late the last round of a loop began.", "loop"),
		leader:     prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "leader", Help: "1 for the server that does the work that only one server does."}),
		buildInfo:  gauge("build_info", "1, with the version of the program and of Go.", "version", "go"),
	}
}

// all returns what is registered.
func (v *vectors) all() []prometheus.Collector {
	return []prometheus.Collector{
		v.requeued, v.expired, v.chunks,
		v.wanted, v.scaled, v.starts, v.lost, v.hookAttempts, v.hookSeconds, v.hookDropped,
		v.podStart, v.podEnds, v.calls, v.callSeconds, v.watchRestarts, v.httpRequests, v.httpSeconds, v.httpInFlight,
		v.limits, v.auth, v.commitSeconds, v.commitOps, v.loopErrors, v.loopLag, v.leader, v.buildInfo,
	}
}
