package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

// withMetrics serves metrics and profiles on an address of their own, which a firewall should keep
// others from.
func withMetrics(*testing.T, *settingsOf) []string { return []string{"-metrics", "127.0.0.1:0"} }

// metricsURL is that address, from the log.
func (n *tenant) metricsURL() string {
	url := ""
	eventually(n.t, "the log names the address of the metrics", func() bool {
		_, rest, ok := strings.Cut(n.in.stderr.String(), `"metrics are served" addr=`)
		address, _, _ := strings.Cut(rest, "\n")
		url = "http://" + strings.TrimSpace(address)
		return ok
	})
	return url
}

// at makes requests to another address.
func (n *tenant) at(ctx context.Context, url string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return
	}
	if res, err := n.client.Do(r); err == nil {
		n.requests.Add(1)
		_ = res.Body.Close()
	}
}

// Abuses of what is for operators, by somebody who reaches it.
var abusesOfOperators = []abuse{
	{door: "Metrics", name: "scrapes without end", server: withMetrics, do: func(ctx context.Context, n *tenant) {
		url := n.metricsURL()
		everywhere(ctx, 4, func(int) { n.at(ctx, url+"/metrics") })
	}},
	{door: "Metrics", name: "scrapes with a user's key", do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 16, func(int) { n.do(ctx, "GET", "/metrics", "") })
	}},
	{door: "Profiles", name: "profiles of all goroutines", server: withMetrics, do: func(ctx context.Context, n *tenant) {
		url := n.metricsURL()
		everywhere(ctx, 2, func(int) { n.at(ctx, url+"/debug/pprof/goroutine?debug=2") })
	}},
}
