package mixin

import "encoding/json"

// A Query is an expression of a panel, and how its series are named.
type Query struct{ Expr, Legend string }

// A Panel is a graph.
type Panel struct {
	Title   string
	Unit    string // of Grafana: s, bytes, reqps, short, percentunit
	Queries []Query
}

// A Dashboard is a page of panels. Its queries may use the variables datasource, instance and
// Variable.
type Dashboard struct {
	UID, Title string
	Variable   string // a label that is chosen: endpoint or host; empty: none
	Of         string // the metric that has the values of Variable
	Panels     []Panel
}

// Dashboards returns the dashboards by the names of their files.
func Dashboards() map[string]Dashboard {
	return map[string]Dashboard{"overview": overview(), "endpoint": endpoint(), "pods": podsPage(), "server": serverPage()}
}

func panel(title, unit string, queries ...string) Panel {
	p := Panel{Title: title, Unit: unit}
	for i := 0; i < len(queries); i += 2 {
		p.Queries = append(p.Queries, Query{queries[i], queries[i+1]})
	}
	return p
}

func overview() Dashboard {
	return Dashboard{UID: "podyard-overview", Title: "Podyard / Overview", Panels: []Panel{
		panel("Queued jobs", "short", `sum by (endpoint) (podyard_jobs_queued{instance=~"$instance"})`, "{{endpoint}}"),
		panel("Oldest job that waits", "s", `max by (endpoint) (podyard_jobs_oldest_queued_seconds{instance=~"$instance"})`, "{{endpoint}}"),
		panel("Jobs that end", "ops", `sum by (status) (rate(podyard_jobs_finished_total{instance=~"$instance"}[$__rate_interval]))`, "{{status}}"),
		panel("Failures", "percentunit",
			`sum by (endpoint) (rate(podyard_jobs_finished_total{instance=~"$instance",status=~"FAILED|TIMED_OUT"}[$__rate_interval])) / sum by (endpoint) (rate(podyard_jobs_finished_total{instance=~"$instance"}[$__rate_interval]))`, "{{endpoint}}"),
		panel("Workers", "short", `sum by (state) (podyard_workers{instance=~"$instance"})`, "{{state}}"),
		panel("Pods", "short", `sum by (status) (podyard_pods{instance=~"$instance"})`, "{{status}}"),
		panel("Requests", "reqps", `sum by (code) (rate(podyard_http_requests_total{instance=~"$instance"}[$__rate_interval]))`, "{{code}}"),
		panel("Webhooks", "short", `sum(podyard_webhook_pending{instance=~"$instance"})`, "pending", `sum(rate(podyard_webhook_dropped_total{instance=~"$instance"}[$__rate_interval]))`, "given up each second"),
	}}
}

// quantiles returns the queries of a histogram of an endpoint.
func quantiles(metric string) []string {
	var list []string
	for _, q := range []string{"0.5", "0.9", "0.98"} {
		list = append(list, `histogram_quantile(`+q+`, sum by (le) (rate(`+metric+`_bucket{instance=~"$instance",endpoint=~"$endpoint"}[$__rate_interval])))`, "P"+q[2:])
	}
	return list
}

func endpoint() Dashboard {
	const of = `{instance=~"$instance",endpoint=~"$endpoint"}`
	return Dashboard{UID: "podyard-endpoint", Title: "Podyard / Endpoint", Variable: "endpoint", Of: "podyard_jobs_running", Panels: []Panel{
		panel("Queued jobs by what they wait for", "short", `sum by (state) (podyard_jobs_waiting`+of+`)`, "{{state}}"),
		panel("Queued jobs by priority", "short", `sum by (priority) (podyard_jobs_queued`+of+`)`, "{{priority}}"),
		panel("Running jobs", "short", `sum(podyard_jobs_running`+of+`)`, "running"),
		panel("Submitted, claimed, ended", "ops",
			`sum by (kind) (rate(podyard_jobs_submitted_total`+of+`[$__rate_interval]))`, "submitted {{kind}}",
			`sum(rate(podyard_jobs_claimed_total`+of+`[$__rate_interval]))`, "claimed",
			`sum by (status, reason) (rate(podyard_jobs_finished_total`+of+`[$__rate_interval]))`, "{{status}} {{reason}}"),
		panel("Queued again and expired", "ops",
			`sum by (cause) (rate(podyard_jobs_requeued_total`+of+`[$__rate_interval]))`, "{{cause}}",
			`sum(rate(podyard_jobs_expired_total`+of+`[$__rate_interval]))`, "expired"),
		panel("Delay", "s", quantiles("podyard_job_delay_seconds")...),
		panel("Execution", "s", quantiles("podyard_job_execution_seconds")...),
		panel("Workers", "short",
			`sum by (state) (podyard_workers`+of+`)`, "{{state}}",
			`sum(podyard_workers_wanted`+of+`)`, "wanted", `sum(podyard_workers_max`+of+`)`, "max"),
		panel("Starts and losses of workers", "ops",
			`sum by (result) (rate(podyard_worker_starts_total`+of+`[$__rate_interval]))`, "start {{result}}",
			`sum(rate(podyard_workers_lost_total`+of+`[$__rate_interval]))`, "lost",
			`sum by (action) (rate(podyard_scaler_actions_total`+of+`[$__rate_interval]))`, "decided: {{action}}"),
		panel("Cold starts", "s", quantiles("podyard_worker_cold_start_seconds")...),
		panel("Chunks of streams", "ops", `sum(rate(podyard_stream_chunks_total`+of+`[$__rate_interval]))`, "chunks"),
	}}
}

func podsPage() Dashboard {
	const of = `{instance=~"$instance",host=~"$host"}`
	return Dashboard{UID: "podyard-pods", Title: "Podyard / Pods and hosts", Variable: "host", Of: "podyard_host_capacity", Panels: []Panel{
		panel("Pods", "short", `sum by (status, compute) (podyard_pods{instance=~"$instance"})`, "{{status}} {{compute}}", `sum(podyard_pods_waiting{instance=~"$instance"})`, "waiting for a host"),
		panel("Hosts in use", "percentunit", `sum by (host, resource) (podyard_host_claimed`+of+`) / sum by (host, resource) (podyard_host_capacity`+of+`)`, "{{host}} {{resource}}"),
		panel("Starts", "s", `histogram_quantile(0.9, sum by (le, host) (rate(podyard_pod_start_seconds_bucket`+of+`[$__rate_interval])))`, "P90 {{host}}"),
		panel("Ends", "ops", `sum by (cause) (rate(podyard_pod_ends_total{instance=~"$instance"}[$__rate_interval]))`, "{{cause}}"),
		panel("Calls of runtimes", "ops", `sum by (host, call, result) (rate(podyard_runtime_calls_total`+of+`[$__rate_interval]))`, "{{host}} {{call}} {{result}}"),
		panel("How long they take", "s", `histogram_quantile(0.9, sum by (le, call) (rate(podyard_runtime_call_seconds_bucket`+of+`[$__rate_interval])))`, "P90 {{call}}"),
		panel("Watches that began again", "ops", `sum by (host) (rate(podyard_runtime_watch_restarts_total`+of+`[$__rate_interval]))`, "{{host}}"),
	}}
}

func serverPage() Dashboard {
	const of = `{instance=~"$instance"}`
	return Dashboard{UID: "podyard-server", Title: "Podyard / Server", Panels: []Panel{
		panel("Requests", "reqps", `sum by (area, code) (rate(podyard_http_requests_total`+of+`[$__rate_interval]))`, "{{area}} {{code}}"),
		panel("How long they take", "s", `histogram_quantile(0.9, sum by (le, area) (rate(podyard_http_request_seconds_bucket`+of+`[$__rate_interval])))`, "P90 {{area}}"),
		panel("Requests in flight", "short", `sum by (area) (podyard_http_in_flight`+of+`)`, "{{area}}"),
		panel("Refused", "ops", `sum by (limit) (rate(podyard_limits_refused_total`+of+`[$__rate_interval]))`, "limit: {{limit}}", `sum by (reason) (rate(podyard_auth_failures_total`+of+`[$__rate_interval]))`, "key: {{reason}}"),
		panel("Commits", "s", `histogram_quantile(0.9, sum by (le) (rate(podyard_store_commit_seconds_bucket`+of+`[$__rate_interval])))`, "P90", `histogram_quantile(0.98, sum by (le) (rate(podyard_store_commit_seconds_bucket`+of+`[$__rate_interval])))`, "P98"),
		panel("Changes in a commit", "short", `sum(rate(podyard_store_commit_ops_sum`+of+`[$__rate_interval])) / sum(rate(podyard_store_commit_ops_count`+of+`[$__rate_interval]))`, "mean"),
		panel("Store", "bytes", `sum(podyard_store_bytes`+of+`)`, "files", `sum(podyard_store_dead_bytes`+of+`)`, "of deleted payloads", `sum(podyard_stream_undrained_bytes`+of+`)`, "chunks not read"),
		panel("State of the store", "short", `min(podyard_store_writable`+of+`)`, "writable", `sum(podyard_store_damage_total`+of+`)`, "damages"),
		panel("Incidents", "short", `max by (cause, name, severity) (podyard_incident)`, "{{severity}}: {{cause}} {{name}}"),
		panel("Webhooks", "ops", `sum by (code) (rate(podyard_webhook_attempts_total`+of+`[$__rate_interval]))`, "{{code}}"),
		panel("How long they take and wait", "s",
			`histogram_quantile(0.9, sum by (le) (rate(podyard_webhook_seconds_bucket`+of+`[$__rate_interval])))`, "P90 of an attempt",
			`max(podyard_webhook_oldest_seconds`+of+`)`, "oldest that waits"),
		panel("Loops", "s", `max by (loop) (podyard_loop_lag_seconds`+of+`)`, "{{loop}} late"),
		panel("Failed rounds", "ops", `sum by (loop) (rate(podyard_loop_errors_total`+of+`[$__rate_interval]))`, "{{loop}}"),
		panel("Sizes of inputs and outputs", "bytes",
			`histogram_quantile(0.9, sum by (le) (rate(podyard_job_input_bytes_bucket`+of+`[$__rate_interval])))`, "P90 of inputs",
			`histogram_quantile(0.9, sum by (le) (rate(podyard_job_output_bytes_bucket`+of+`[$__rate_interval])))`, "P90 of outputs"),
		panel("Process", "bytes", `sum(process_resident_memory_bytes{instance=~"$instance"} and on (instance) podyard_build_info)`, "memory"),
		panel("CPU", "percentunit", `sum(rate(process_cpu_seconds_total{instance=~"$instance"}[$__rate_interval]) and on (instance) podyard_build_info)`, "cores"),
		panel("Servers", "short", `sum by (version) (podyard_build_info`+of+`)`, "{{version}}", `sum(podyard_leader`+of+`)`, "leaders"),
	}}
}

// JSON returns the dashboard as Grafana imports it.
func (d Dashboard) JSON() ([]byte, error) {
	datasource := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	variables := []any{
		map[string]any{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
		d.choice("instance", "podyard_build_info", datasource),
	}
	if d.Variable != "" {
		variables = append(variables, d.choice(d.Variable, d.Of, datasource))
	}
	var panels []any
	for i, p := range d.Panels {
		panels = append(panels, p.object(i, datasource))
	}
	b, err := json.MarshalIndent(map[string]any{
		"uid": d.UID, "title": d.Title, "tags": []string{"podyard"}, "schemaVersion": 39, "version": 1, "editable": true,
		"refresh": "30s", "time": map[string]any{"from": "now-1h", "to": "now"}, "timezone": "browser",
		"templating": map[string]any{"list": variables}, "panels": panels, "annotations": map[string]any{"list": []any{}},
	}, "", "  ")
	return append(b, '\n'), err
}

// choice returns a variable whose values are those of a label.
func (d Dashboard) choice(label, metric string, datasource any) map[string]any {
	return map[string]any{
		"name": label, "label": label, "type": "query", "datasource": datasource, "query": "label_values(" + metric + ", " + label + ")",
		"refresh": 2, "includeAll": true, "multi": true, "allValue": ".*", "sort": 1,
		"current": map[string]any{"text": "All", "value": "$__all"},
	}
}

// object returns the panel number i of its page, two in a row.
func (p *Panel) object(i int, datasource any) map[string]any {
	var targets []any
	for k, q := range p.Queries {
		targets = append(targets, map[string]any{"refId": string(rune('A' + k)), "expr": q.Expr, "legendFormat": q.Legend, "datasource": datasource})
	}
	const width, height = 12, 8
	return map[string]any{
		"id": i + 1, "title": p.Title, "type": "timeseries", "datasource": datasource, "targets": targets,
		"gridPos":     map[string]any{"x": i % 2 * width, "y": i / 2 * height, "w": width, "h": height},
		"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.Unit, "min": 0}, "overrides": []any{}},
		"options":     map[string]any{"tooltip": map[string]any{"mode": "multi"}, "legend": map[string]any{"displayMode": "list", "placement": "bottom"}},
	}
}
