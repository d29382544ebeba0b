package mixin

import (
	"fmt"
	"strings"
)

// An Alert is a rule that fires while Expr has results for the time For.
type Alert struct {
	Name, Expr, For    string
	Severity           string // critical: somebody must act now; warning: today; empty: the label of Expr says it
	Summary, Operating string // Operating is the page with a section of the alert's name
}

// runbook is where the sections of alerts are.
const runbook = "https://github.com/podyard/podyard/blob/main/docs/trouble.md#"

// named adds the name of the endpoint to the results of an expression with the labels instance and endpoint.
// Those of an endpoint whose name is not known stay without.
func named(expr string) string {
	return fmt.Sprintf(`(%[1]s) * on (instance, endpoint) group_left (name) (podyard_workers_max >= bool 0) or (%[1]s) unless on (instance, endpoint) podyard_workers_max`, expr)
}

// Alerts returns the alerts.
func Alerts() []Alert {
	list := []Alert{
		{
			Name: "PodyardIncident", For: "1m", Summary: "{{ $labels.cause }} {{ $labels.name }}: podyard top, or the overview of the console, has who is affected and what to do.",
			Expr: `max by (cause, id, name, severity) (podyard_incident) > 0`,
		},
		{
			Name: "PodyardFailureRate", For: "1m", Severity: "warning", Summary: "{{ $value | humanizePercentage }} of the jobs of {{ or $labels.name $labels.endpoint }} fail.",
			Expr: named(`sum by (instance, endpoint) (increase(podyard_jobs_finished_total{status=~"FAILED|TIMED_OUT"}[10m])) / sum by (instance, endpoint) (increase(podyard_jobs_finished_total[10m])) > 0.1 and on (instance, endpoint) sum by (instance, endpoint) (increase(podyard_jobs_finished_total[10m])) >= 20`),
		},
		{
			Name: "PodyardWorkersLost", For: "0m", Severity: "warning", Summary: "Workers of {{ or $labels.name $labels.endpoint }} end by themselves.",
			Expr: named(`increase(podyard_workers_lost_total[10m]) > 5 unless on (endpoint) label_replace(podyard_incident{cause=~"crashLoop|image"}, "endpoint", "$1", "id", "(.*)")`),
		},
		{
			Name: "PodyardColdStartSlow", For: "30m", Severity: "warning", Summary: "Workers of {{ or $labels.name $labels.endpoint }} take {{ $value | humanizeDuration }} to start.",
			Expr: named(`histogram_quantile(0.9, sum by (le, instance, endpoint) (rate(podyard_worker_cold_start_seconds_bucket[30m]))) > 120`),
		},
		{
			Name: "PodyardStoreDamaged", For: "0m", Severity: "critical", Summary: "Records of the store of {{ $labels.instance }} are damaged.",
			Expr: `podyard_store_damage_total > 0`,
		},
		{
			Name: "PodyardRuntimeUnreachable", For: "10m", Severity: "critical", Summary: "The host {{ $labels.host }} does not answer.",
			Expr: `increase(podyard_runtime_watch_restarts_total[10m]) > 5 or on (instance, host) sum by (instance, host) (rate(podyard_runtime_calls_total{result="error"}[10m])) / sum by (instance, host) (rate(podyard_runtime_calls_total[10m])) > 0.5`,
		},
		{
			Name: "PodyardServerErrors", For: "5m", Severity: "warning", Summary: "{{ $value | humanizePercentage }} of the requests to {{ $labels.instance }} end in errors of the server.",
			Expr: `sum by (instance) (rate(podyard_http_requests_total{code=~"5.."}[5m])) / sum by (instance) (rate(podyard_http_requests_total[5m])) > 0.05 and on (instance) sum by (instance) (increase(podyard_http_requests_total{code=~"5.."}[5m])) >= 10 unless on (instance) podyard_incident{cause=~"database|store|disk"}`,
		},
		{
			Name: "PodyardServerDown", For: "2m", Severity: "critical", Summary: "The server {{ $labels.instance }} is not scraped.",
			Expr: `up == 0 and on (instance) max_over_time(podyard_build_info[1d]) or absent(podyard_build_info)`,
		},
	}
	for i := range list {
		list[i].Operating = runbook + strings.ToLower(list[i].Name)
	}
	return list
}

// A Rule records the value of Expr as Name.
type Rule struct{ Name, Expr string }

// Rules returns the recording rules.
func Rules() []Rule {
	return []Rule{
		{"endpoint:podyard_jobs_finished:rate5m", `sum by (endpoint, status) (rate(podyard_jobs_finished_total[5m]))`},
		{"endpoint:podyard_job_delay_seconds:p90_5m", `histogram_quantile(0.9, sum by (le, endpoint) (rate(podyard_job_delay_seconds_bucket[5m])))`},
		{"endpoint:podyard_job_execution_seconds:p90_5m", `histogram_quantile(0.9, sum by (le, endpoint) (rate(podyard_job_execution_seconds_bucket[5m])))`},
		{"endpoint:podyard_job_failures:ratio1h", `sum by (endpoint) (increase(podyard_jobs_finished_total{status=~"FAILED|TIMED_OUT"}[1h])) / sum by (endpoint) (increase(podyard_jobs_finished_total[1h]))`},
	}
}

// AlertsYAML returns the alerts as Prometheus reads them.
func AlertsYAML() []byte {
	b := []byte("groups:\n  - name: podyard.alerts\n    rules:\n")
	for _, a := range Alerts() {
		b = fmt.Appendf(b, "      - alert: %s\n        expr: %q\n        for: %s\n", a.Name, a.Expr, a.For)
		if a.Severity != "" {
			b = fmt.Appendf(b, "        labels:\n          severity: %s\n", a.Severity)
		}
		b = fmt.Appendf(b, "        annotations:\n          summary: %q\n          runbook_url: %q\n", a.Summary, a.Operating)
	}
	return b
}

// RulesYAML returns the recording rules as Prometheus reads them.
func RulesYAML() []byte {
	b := []byte("groups:\n  - name: podyard.rules\n    rules:\n")
	for _, r := range Rules() {
		b = fmt.Appendf(b, "      - record: %s\n        expr: %q\n", r.Name, r.Expr)
	}
	return b
}
