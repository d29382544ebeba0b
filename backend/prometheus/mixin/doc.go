// Package mixin has dashboards for Grafana, and alerts and recording rules for Prometheus, over
// the metrics of package prometheus. The files beside this one are what it makes, for those
// who copy them; a test keeps them equal.
//
//   - dashboards/overview.json, endpoint.json, pods.json and server.json
//   - alerts.yaml, of which each alert has a section in docs/trouble.md
//   - rules.yaml
package mixin
