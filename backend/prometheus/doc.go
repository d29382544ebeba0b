// Package prometheus keeps the metrics of a server and serves them to Prometheus
// (docs/metrics.md).
//
// A [Metrics] observes jobs, pods, requests and the store: it is the Observer of their options.
// Counters and histograms change with what happens. Gauges are read from the [Sources] at a
// scrape, at most once a second.
//
// No label has what a user chooses or makes, except the ids of endpoints, and of those at most
// [MaxEndpoints]: all others share the label "other". So the number of series has a bound.
package prometheus
