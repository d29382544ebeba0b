package prometheus_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/podyard/podyard/backend/memory"
	metrics "github.com/podyard/podyard/backend/prometheus"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	podevents "github.com/podyard/podyard/pods/telemetry"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
)

// labels are the labels of each metric, without the prefix podyard_.
func labels() map[string]string {
	return map[string]string{
		"jobs_submitted_total": "endpoint kind", "jobs_claimed_total": "endpoint", "jobs_finished_total": "endpoint reason status",
		"jobs_requeued_total": "cause endpoint", "jobs_expired_total": "endpoint", "jobs_queued": "endpoint priority", "jobs_waiting": "endpoint state", "jobs_running": "endpoint",
		"jobs_oldest_queued_seconds": "endpoint", "job_delay_seconds": "endpoint", "job_execution_seconds": "endpoint",
		"job_input_bytes": "", "job_output_bytes": "", "stream_chunks_total": "endpoint", "stream_undrained_bytes": "",
		"workers": "endpoint state", "workers_wanted": "endpoint", "workers_max": "endpoint name", "scaler_actions_total": "action endpoint",
		"worker_starts_total": "endpoint result", "worker_cold_start_seconds": "endpoint", "workers_lost_total": "endpoint",
		"webhook_attempts_total": "code", "webhook_seconds": "code", "webhook_pending": "", "webhook_oldest_seconds": "", "webhook_dropped_total": "",
		"pods": "compute status", "pod_start_seconds": "host", "pod_ends_total": "cause", "pods_waiting": "",
		"host_capacity": "host resource", "host_claimed": "host resource",
		"runtime_calls_total": "call host result", "runtime_call_seconds": "call host result", "runtime_watch_restarts_total": "host",
		"http_requests_total": "area code operation", "http_request_seconds": "area operation", "http_in_flight": "area",
		"incident":             "cause id name severity",
		"limits_refused_total": "limit", "auth_failures_total": "reason",
		"store_commit_seconds": "", "store_commit_ops": "", "store_bytes": "", "store_dead_bytes": "", "store_damage_total": "", "store_writable": "",
		"loop_errors_total": "loop", "loop_lag_seconds": "loop", "leader": "", "build_info": "go version",
	}
}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// filled returns metrics with every series that a server with n endpoints can have, except that
// it has few hosts.
func filled(t testing.TB, n int) (*metrics.Metrics, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewRegistry()
	m := metrics.New(&metrics.Options{Version: "1", Registry: r})
	eps := memory.NewEndpoints()
	jobs := serverless.New(memory.NewJobs(), eps, &serverless.Options{Observer: m.Jobs()})
	for i := range n {
		id := fmt.Sprint("endpoint", i)
		if err := eps.Create(t.Context(), &serverless.Endpoint{ID: id, Name: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.Submit(t.Context(), "alice", id, serverless.Request{Input: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
		everyJobEvent(m.Jobs(), id)
	}
	for status := range 10 {
		m.Jobs().Webhook(telemetry.WebhookEvent{Status: status * 100, Failed: true, Dropped: status == 5})
	}
	everyPodEvent(m.Pods())
	everyRequest(m)
	m.StoreCommitted(time.Millisecond, 3)
	for _, loop := range []string{telemetry.LoopExpire, telemetry.LoopScaler, telemetry.LoopOutbox} {
		m.Jobs().Loop(telemetry.LoopEvent{Loop: loop})
		m.Jobs().Loop(telemetry.LoopEvent{Loop: loop, Err: errors.New("away")})
	}
	cat := catalog.Sample()
	service, err := pods.New(memory.NewPods(), cat, pods.SimulatedHosts(cat, memory.NewRuntime(nil))[:4], nil)
	if err != nil {
		t.Fatal(err)
	}
	m.SetSources(metrics.Sources{
		Jobs: jobs, Pods: service, Ready: func() error { return errors.New("full") },
		Size: func() int64 { return 1 }, Dead: func() int64 { return 1 }, Damages: func() int64 { return 1 },
		Incidents: func() []metrics.Incident {
			return []metrics.Incident{{Cause: "crashLoop", ID: "e", Name: "sdxl", Severity: "warning"}}
		},
	})
	return m, r
}

// everyJobEvent reports all that can happen on an endpoint.
func everyJobEvent(o telemetry.Observer, endpoint string) {
	ref, none := &queue.Ref{Endpoint: endpoint, ID: "j"}, &queue.Trace{}
	for _, f := range []queue.Flags{0, queue.Sync, queue.OpenAI} {
		o.Job(telemetry.JobEvent{Change: telemetry.JobSubmitted, Ref: ref, State: &queue.State{Flags: f}, Trace: none, Bytes: 100})
	}
	o.Job(telemetry.JobEvent{Change: telemetry.JobClaimed, Ref: ref, State: &queue.State{Queued: 1, Started: 2}, Trace: &queue.Trace{Parent: traceparent}})
	for _, c := range []telemetry.Cause{telemetry.Lost, telemetry.Released, telemetry.Snoozed, telemetry.Retry, telemetry.Restart} {
		o.Job(telemetry.JobEvent{Change: telemetry.JobRequeued, Ref: ref, State: &queue.State{}, Trace: none, Cause: c})
	}
	o.Job(telemetry.JobEvent{Change: telemetry.JobExpired, Ref: ref, State: &queue.State{}, Trace: none})
	o.Job(telemetry.JobEvent{Change: telemetry.JobChunk, Ref: ref, State: &queue.State{}, Trace: none, Bytes: 1})
	for _, s := range []queue.State{
		{Status: queue.Completed}, {Status: queue.Failed}, {Status: queue.Cancelled}, {Status: queue.Failed, Reason: queue.WorkersLost},
		{Status: queue.Failed, Reason: queue.TooManyRestarts}, {Status: queue.Failed, Reason: queue.Damaged}, {Status: queue.TimedOut, Reason: queue.ExecutionTimedOut},
	} {
		s.Started, s.Finished = 1, 5
		o.Job(telemetry.JobEvent{Change: telemetry.JobEnded, Ref: ref, State: &s, Trace: &queue.Trace{Parent: traceparent}})
	}
	o.Worker(telemetry.WorkerEvent{Change: telemetry.Scaled, Endpoint: endpoint, Want: 1, Start: 1})
	for _, result := range []string{telemetry.StartOK, telemetry.StartNoRoom, telemetry.StartFailed} {
		o.Worker(telemetry.WorkerEvent{Change: telemetry.WorkerStarted, Endpoint: endpoint, Result: result})
	}
	o.Worker(telemetry.WorkerEvent{Change: telemetry.WorkerJoined, Endpoint: endpoint, Took: time.Second})
	o.Worker(telemetry.WorkerEvent{Change: telemetry.WorkerLost, Endpoint: endpoint})
}

func everyPodEvent(o podevents.Observer) {
	for i := range 4 {
		host := fmt.Sprint("host", i)
		o.Pod(podevents.PodEvent{Change: podevents.Started, Host: host, Took: time.Second})
		for _, call := range []string{"ensure", "stop", "remove", "list"} {
			o.Call(podevents.CallEvent{Call: call, Host: host})
			o.Call(podevents.CallEvent{Call: call, Host: host, Err: errors.New("away")})
		}
		o.Loop(podevents.LoopEvent{Loop: podevents.LoopWatch, Host: host, Err: errors.New("away")})
	}
	for _, cause := range []string{podevents.ByUser, podevents.ByExit, podevents.ByError, podevents.ByOOM, podevents.ByImage, podevents.ByHost} {
		o.Pod(podevents.PodEvent{Change: podevents.Ended, Cause: cause})
	}
	o.Loop(podevents.LoopEvent{Loop: podevents.LoopPods})
}

// everyRequest reports requests of as many operations as the interface has, with three answers
// each.
func everyRequest(m *metrics.Metrics) {
	for op := range 120 {
		area, name := fmt.Sprint("area", op%18), fmt.Sprint("operation", op)
		for _, status := range []int{200, 401, 404} {
			m.RequestBegan(area)
			m.RequestEnded(area, name, status, time.Millisecond, traceparent)
		}
	}
	for _, limit := range []string{"minute", "hour", "day", "rate", "concurrency"} {
		m.RequestLimited(limit)
	}
	for _, reason := range []string{"missing", "malformed", "invalid", "forbidden"} {
		m.KeyRefused(reason)
	}
}

func gather(t testing.TB, r prometheus.Gatherer) []*dto.MetricFamily {
	t.Helper()
	list, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestEachMetricHasExactlyItsLabels(t *testing.T) {
	_, r := filled(t, 2)
	got := map[string]string{}
	for _, f := range gather(t, r) {
		for _, x := range f.GetMetric() {
			var names []string
			for _, l := range x.GetLabel() {
				names = append(names, l.GetName())
			}
			slices.Sort(names)
			got[strings.TrimPrefix(f.GetName(), "podyard_")] = strings.Join(names, " ")
		}
	}
	if diff := cmp.Diff(labels(), got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestNamesAndHelpAreAsPrometheusWantsThem(t *testing.T) {
	_, r := filled(t, 2)
	problems, err := promlint.NewWithMetricFamilies(gather(t, r)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// series counts the lines of the text format.
func series(t testing.TB, h http.Handler, accept string) (lines int, body string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	b, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "#") {
			lines++
		}
	}
	return lines, string(b)
}

const (
	maxSeries = 17_800
	maxScrape = 150 * time.Millisecond
)

func TestManyEndpointsShareOneLabelAndTheNumberOfSeriesHasABound(t *testing.T) {
	n := 1000
	if suite.Long() {
		n = 10_000
	}
	m, _ := filled(t, n)
	_, body := series(t, m.Handler(), "")
	for _, want := range []string{
		`podyard_jobs_claimed_total{endpoint="endpoint199"} 1`, fmt.Sprintf(`podyard_jobs_claimed_total{endpoint="other"} %d`, n-metrics.MaxEndpoints),
		`podyard_workers_max{endpoint="endpoint0",name="endpoint0"} 0`, `podyard_workers_max{endpoint="other",name="other"} 0`,
		fmt.Sprintf(`podyard_jobs_queued{endpoint="other",priority="5"} %d`, n-metrics.MaxEndpoints), `podyard_jobs_queued{endpoint="endpoint0",priority="5"} 1`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(body, `"endpoint200"`) {
		t.Error("the 201st endpoint has a series of its own")
	}
	lines, _ := series(t, m.Handler(), "")
	if lines > maxSeries {
		t.Errorf("%d series, want at most %d", lines, maxSeries)
	}
	if os.Getenv("PODYARD_LONG") == "" { // a bound of time is for a machine that does nothing else
		return
	}
	best := time.Hour
	for range 5 {
		time.Sleep(1100 * time.Millisecond) // gauges are kept for a second
		began := time.Now()
		series(t, m.Handler(), "")
		best = min(best, time.Since(began))
	}
	if t.Logf("%d series, the fastest of 5 scrapes took %v", lines, best); best > maxScrape {
		t.Errorf("a scrape took %v, want at most %v", best, maxScrape)
	}
}

func TestJobTimesAreThoseOfTheHistogramsOfAnEndpoint(t *testing.T) {
	m := metrics.New(&metrics.Options{Registry: prometheus.NewRegistry()})
	ref := queue.Ref{Endpoint: "e", ID: "j"}
	for _, x := range []struct{ waited, ran queue.Instant }{{3, 40}, {3, 5_000}} {
		s := queue.State{Queued: 1_000_000, Started: 1_000_000 + x.waited, Finished: 1_000_000 + x.waited + x.ran, Status: queue.Completed}
		m.Jobs().Job(telemetry.JobEvent{Change: telemetry.JobClaimed, Ref: &ref, State: &s, Trace: &queue.Trace{}})
		m.Jobs().Job(telemetry.JobEvent{Change: telemetry.JobEnded, Ref: &ref, State: &s, Trace: &queue.Trace{}})
	}
	ends, waited, ran := m.JobTimes("e")
	count := func(counts []uint64, from, to int64) (n uint64) {
		for i, end := range ends {
			if end >= from && end <= to {
				n += counts[i]
			}
		}
		return n
	}
	if len(waited) != len(ends)+1 || len(ran) != len(ends)+1 || !slices.IsSorted(ends) {
		t.Fatalf("%d and %d counts of %d times", len(waited), len(ran), len(ends))
	}
	if got := [3]uint64{count(waited, 3, 4), count(ran, 40, 45), count(ran, 5_000, 5_600)}; got != [3]uint64{2, 1, 1} {
		t.Errorf("jobs that waited 3 ms, ran 40 ms and ran 5 s: %v, want 2, 1 and 1", got)
	}
	if ends, waited, ran := m.JobTimes("none"); ends != nil || waited != nil || ran != nil {
		t.Error("an endpoint that is not known has times")
	}
}

func TestQueuedJobsAreCountedByWhatTheyWaitFor(t *testing.T) {
	eps, rate := memory.NewEndpoints(), queue.Rate{Limit: 1, Per: time.Hour}
	for id, settings := range map[string]*endpoints.QueueSettings{"free": nil, "paused": {Paused: true}, "rated": {Rate: rate}, "ordered": {PerKey: 1}} {
		if err := eps.Create(t.Context(), &serverless.Endpoint{ID: id, Queue: settings}); err != nil {
			t.Fatal(err)
		}
	}
	s := serverless.New(memory.NewJobs(), eps, nil)
	for id, n := range map[string]int{"free": 2, "paused": 2, "rated": 3, "ordered": 3} {
		for i := range n {
			r := serverless.Request{Input: []byte(`{}`)}
			key := "k"
			if r.Queue.Key = &key; i == 0 && id == "free" {
				later := time.Hour
				r.Queue.StartAfter = &later
			}
			if _, err := s.Submit(t.Context(), "alice", id, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	m := metrics.New(&metrics.Options{Registry: prometheus.NewRegistry()})
	m.SetSources(metrics.Sources{Jobs: s})
	_, body := series(t, m.Handler(), "")
	for id, want := range map[string][4]int{"free": {1, 1, 0, 0}, "paused": {0, 0, 2, 0}, "rated": {1, 0, 0, 2}, "ordered": {1, 0, 2, 0}} {
		for i, state := range []string{"ready", "delayed", "blocked", "held"} {
			if line := fmt.Sprintf("podyard_jobs_waiting{endpoint=%q,state=%q} %d\n", id, state, want[i]); !strings.Contains(body, line) {
				t.Errorf("the metrics lack %s", line)
			}
		}
	}
}

func TestOpenMetricsHaveTheTracesOfSampledRequestsAsExemplars(t *testing.T) {
	m, _ := filled(t, 1)
	_, body := series(t, m.Handler(), "application/openmetrics-text")
	for _, name := range []string{"podyard_job_delay_seconds_bucket", "podyard_job_execution_seconds_bucket", "podyard_http_request_seconds_bucket"} {
		found := false
		for line := range strings.Lines(body) {
			found = found || strings.HasPrefix(line, name) && strings.Contains(line, `# {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"}`)
		}
		if !found {
			t.Errorf("%s has no exemplar", name)
		}
	}
}

// A worker asks for its first job and gets it; the scaler may see that before or after the claim.
func TestAColdStartHasTheTraceOfTheFirstJobOfItsWorker(t *testing.T) {
	const exemplar = `podyard_worker_cold_start_seconds_bucket{endpoint="e",le="5.0"} 1 # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 2.0`
	join := func(o telemetry.Observer) {
		o.Worker(telemetry.WorkerEvent{Change: telemetry.WorkerJoined, Endpoint: "e", Worker: "new", Took: 2 * time.Second})
	}
	claim := func(w queue.WorkerID, parent string) func(telemetry.Observer) {
		return func(o telemetry.Observer) {
			o.Job(telemetry.JobEvent{Change: telemetry.JobClaimed, Ref: &queue.Ref{Endpoint: "e", ID: "j"}, State: &queue.State{Worker: w}, Trace: &queue.Trace{Parent: parent}})
		}
	}
	elsewhere := strings.Replace(traceparent, "4bf9", "0000", 1)
	for name, x := range map[string]struct {
		events []func(telemetry.Observer)
		want   bool
	}{
		"the claim is seen first":           {[]func(telemetry.Observer){claim("old", elsewhere), claim("new", traceparent), join}, true},
		"the claim is seen last":            {[]func(telemetry.Observer){claim("old", elsewhere), join, claim("old", elsewhere), claim("new", traceparent)}, true},
		"later jobs change nothing":         {[]func(telemetry.Observer){claim("new", traceparent), claim("new", elsewhere), join, claim("new", elsewhere)}, true},
		"another worker got the traced job": {[]func(telemetry.Observer){claim("old", traceparent), join}, false},
		"the trace is not sampled":          {[]func(telemetry.Observer){join, claim("new", strings.TrimSuffix(traceparent, "1")+"0")}, false},
		"the first job has no trace":        {[]func(telemetry.Observer){join, claim("new", ""), claim("new", traceparent)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := metrics.New(&metrics.Options{Registry: prometheus.NewRegistry()})
			for _, event := range x.events {
				event(m.Jobs())
			}
			_, body := series(t, m.Handler(), "application/openmetrics-text")
			if !strings.Contains(body, `podyard_worker_cold_start_seconds_count{endpoint="e"} 1`) {
				t.Error("the cold start is not counted")
			}
			if got := strings.Contains(body, exemplar); got != x.want {
				t.Errorf("the exemplar is there: %t, want %t", got, x.want)
			}
		})
	}
}

func TestAStatusThatNoStandardHasIsNoLabel(t *testing.T) {
	r := prometheus.NewRegistry()
	m := metrics.New(&metrics.Options{Registry: r})
	m.RequestBegan("balance")
	m.RequestEnded("balance", "balance", 999, time.Second, "")
	if _, body := series(t, m.Handler(), ""); !strings.Contains(body, `podyard_http_requests_total{area="balance",code="other",operation="balance"} 1`) {
		t.Errorf("status 999 is not counted as other")
	}
}

func TestThePageOfMetricsHasEachMetric(t *testing.T) {
	_, r := filled(t, 1)
	want := map[string]string{}
	for _, f := range gather(t, r) {
		names := strings.Fields(labels()[strings.TrimPrefix(f.GetName(), "podyard_")])
		for i := range names {
			names[i] = "`" + names[i] + "`"
		}
		want[f.GetName()] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(names, ", "), f.GetHelp())
	}
	b, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	page, missing := string(b), ""
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !strings.Contains(page, want[name]) {
			missing += want[name]
		}
	}
	if missing != "" {
		t.Errorf("docs/metrics.md lacks these rows:\n%s", missing)
	}
	for line := range strings.Lines(page) {
		if name, ok := strings.CutPrefix(line, "| `podyard_"); ok {
			name, _, _ = strings.Cut(name, "`")
			if want["podyard_"+name] != line {
				t.Errorf("docs/metrics.md has a row that no metric has: %s", line)
			}
		}
	}
}

func TestAnyRegistererTakesTheCollectors(t *testing.T) {
	r := prometheus.NewRegistry()
	m := metrics.New(&metrics.Options{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"app": "shop"}, r)})
	m.RequestBegan("jobs")
	m.RequestEnded("jobs", "run", 200, time.Second, "")
	labelled := 0
	for _, f := range gather(t, r) {
		if !strings.HasPrefix(f.GetName(), "podyard_") {
			t.Errorf("%s was registered, too", f.GetName())
		}
		for _, x := range f.GetMetric() {
			for _, l := range x.GetLabel() {
				if l.GetName() == "app" && l.GetValue() == "shop" {
					labelled++
				}
			}
		}
	}
	if labelled == 0 {
		t.Error("no series has the label of the program")
	}
	own := prometheus.NewRegistry()
	m = metrics.New(&metrics.Options{Registerer: own, Version: "7"})
	if _, body := series(t, m.Handler(), ""); !strings.Contains(body, `version="7"`) {
		t.Error("the handler does not serve what a Registerer gathers")
	}
}

// Users choose the names of endpoints, and no name may spoil a scrape.
func TestNamesOfEndpointsAreCutInLabels(t *testing.T) {
	m, eps := metrics.New(nil), memory.NewEndpoints()
	for id, name := range map[string]string{"a": "sdxl \"turbo\"\n", "b": strings.Repeat("ä", 100), "c": "", "d": "\xff"} {
		if err := eps.Create(t.Context(), &serverless.Endpoint{ID: id, Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	m.SetSources(metrics.Sources{Jobs: serverless.New(memory.NewJobs(), eps, nil)})
	_, body := series(t, m.Handler(), "")
	for id, name := range map[string]string{"a": `sdxl \"turbo\"\n`, "b": strings.Repeat("ä", 39) + "…", "c": "c", "d": "?"} {
		if want := fmt.Sprintf("podyard_workers_max{endpoint=%q,name=\"%s\"} 0", id, name); !strings.Contains(body, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
}
