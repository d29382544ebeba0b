package mixin

import (
	"fmt"
	"strings"
)

// An Alert is a rule that fires while Expr has results for the time For.
type Alert struct {
	Name, Expr, For    string
	Severity           string // critical: somebody must act now; warning: today
	Summary, Operating string // Operating is the page with a section of the alert's name
}

// runbook is where the sections of alerts are.
const runbook = "https://github.com/podyard/podyard/blob/main/docs/trouble.md#"

// Alerts returns the alerts.
func Alerts() []Alert {
	list := []Alert{
		{
			Name: "PodyardQueueStuck", For: "5m", Severity: "critical", Summary: "Jobs of {{ $labels.endpoint }} wait and none is claimed.",
			Expr: `podyard_jobs_oldest_queued_seconds > 300 and on (instance, endpoint) rate(podyard_jobs_claimed_total[5m]) == 0`,
		},
		{
			Name: "PodyardNoWorkers", For: "10m", Severity: "critical", Summary: "Jobs of {{ $labels.endpoint }} wait and no worker takes them.",
			Expr: `sum by (instance, endpoint) (podyard_jobs_queued) > 0 and on (instance, endpoint) podyard_workers_wanted > 0 and on (instance, endpoint) sum by (instance, endpoint) (podyard_workers{state=~"idle|running"}) == 0`,
		},
		{
			Name: "PodyardWorkersThrottled", For: "15m", Severity: "warning", Summary: "More than half of the workers of {{ $labels.endpoint }} have no capacity.",
			Expr: `sum by (instance, endpoint) (podyard_workers{state="throttled"}) / on (instance, endpoint) (podyard_workers_wanted > 0) > 0.5`,
		},
		{
			Name: "PodyardFailureRate", For: "10m", Severity: "warning", Summary: "{{ $value | humanizePercentage }} of the jobs of {{ $labels.endpoint }} fail.",
			Expr: `sum by (instance, endpoint) (increase(podyard_jobs_finished_total{status=~"FAILED|TIMED_OUT"}[10m])) / sum by (instance, endpoint) (increase(podyard_jobs_finished_total[10m])) > 0.1 and on (instance, endpoint) sum by (instance, endpoint) (increase(podyard_jobs_finished_total[10m])) >= 20`,
		},
		{
			Name: "PodyardWorkersLost", For: "0m", Severity: "warning", Summary: "Workers of {{ $labels.endpoint }} end by themselves.",
			Expr: `increase(podyard_workers_lost_total[10m]) > 5`,
		},
		{
			Name: "PodyardColdStartSlow", For: "30m", Severity: "warning", Summary: "Workers of {{ $labels.endpoint }} take {{ $value | humanizeDuration }} to start.",
			Expr: `histogram_quantile(0.9, sum by (le, instance, endpoint) (rate(podyard_worker_cold_start_seconds_bucket[30m]))) > 120`,
		},
		{
			Name: "PodyardWebhookBacklog", For: "10m", Severity: "warning", Summary: "A webhook of {{ $labels.instance }} waits since {{ $value | humanizeDuration }}.",
			Expr: `podyard_webhook_oldest_seconds > 900`,
		},
		{
			Name: "PodyardStoreNotWritable", For: "0m", Severity: "critical", Summary: "The store of {{ $labels.instance }} refuses new work.",
			Expr: `podyard_store_writable == 0`,
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
			Name: "PodyardHostsFull", For: "30m", Severity: "warning", Summary: "{{ $value }} pods of {{ $labels.instance }} wait for a host with room.",
			Expr: `podyard_pods_waiting > 0`,
		},
		{
			Name: "PodyardServerDown", For: "5m", Severity: "critical", Summary: "No server is scraped.",
			Expr: `absent(podyard_build_info)`,
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
		b = fmt.Appendf(b, "      - alert: %s\n        expr: %q\n        for: %s\n        labels:\n          severity: %s\n        annotations:\n          summary: %q\n          runbook_url: %q\n",
			a.Name, a.Expr, a.For, a.Severity, a.Summary, a.Operating)
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
