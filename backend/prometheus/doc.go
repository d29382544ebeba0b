// Package prometheus keeps the metrics of a server and serves them to Prometheus
// (docs/metrics.md).
//
// A [Metrics] observes jobs, pods, requests and the store: it is the Observer of their options.
// Counters and histograms change with what happens. Gauges are read from the [Sources] at a
// scrape, at most once a second.
//
// Users cannot create series: of what users make, only the ids of endpoints are labels. The
// first [MaxEndpoints] endpoints have a label each, and all others share the label "other".
package prometheus
