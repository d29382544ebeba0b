package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMemoryOfConnections prints what connections cost the server: idle ones, long polls and
// followers of a log. It needs PODYARD_LONG. Each thousand is from an address of its own.
func TestMemoryOfConnections(t *testing.T) {
	if os.Getenv("PODYARD_LONG") == "" {
		t.Skip("it prints figures: set PODYARD_LONG")
	}
	for _, row := range []struct {
		what  string
		count int
		ask   func(n *tenant, i int) string
	}{
		{"idle connections with a key", 10_000, func(n *tenant, _ int) string { return n.head("GET", "/v2/echo/health") }},
		{"long polls", 2000, func(n *tenant, i int) string { return n.head("GET", fmt.Sprintf("/v2/%s/job-take/w%d", n.endpoint, i)) }},
		{"followers of a log", 2000, func(n *tenant, _ int) string { return n.head("GET", "/v2/pods/"+n.pod+"/logs") }},
	} {
		t.Run(row.what, func(t *testing.T) {
			in := start(t, "-runtime", "process", "-config", file(t, strings.TrimSuffix(neighbourConfig("victim"), "}")+`,"budgets":{"streams":2000}}`))
			n := newTenant(t, in, "victim", "127.0.0.1")
			n.owns()
			before := in.resident()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			opened := 0
			go func() {
				defer close(done)
				for i := range row.count {
					n.from = fmt.Sprintf("127.0.3.%d", i/1000+1)
					if c := n.dial(ctx, row.ask(n, i)); c != nil {
						defer c.Close()
						opened++
					}
				}
				time.Sleep(time.Second)
				after := in.resident()
				t.Logf("%d %s: %d MB, %d KB each", opened, row.what, after>>20, (after-before)>>10/int64(max(opened, 1)))
			}()
			<-done
			cancel()
		})
	}
}
