package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withRudeWorkers gives the server the load-balancing endpoint "web" of rude workers.
func withRudeWorkers(t *testing.T, s *settingsOf) []string {
	s.Images["test/rude"] = map[string]any{"command": []string{openProgram(t)}, "env": map[string]string{rudeWorkerEnv: "1"}}
	s.Endpoints = append(s.Endpoints, map[string]any{
		"id": "web", "type": "LOAD_BALANCER", "image": "test/rude", "cpu": []any{map[string]any{"id": "host", "vcpuCount": 2}},
		"workers": map[string]int{"min": 1, "max": 1}, "scaling": map[string]any{"type": "REQUEST_COUNT", "requestCount": 1000},
	})
	return nil
}

// openProgram is this test binary where every user of the machine may run it: pods may have another user
// than the tests.
func openProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	dir := t.TempDir()
	program := filepath.Join(dir, "rude")
	if err = errors.Join(err, os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.Link(self, program)); err != nil {
		t.Fatal(err)
	}
	return program
}

// rude waits until the rude worker answers.
func (n *tenant) rude() {
	eventually(n.t, "the rude worker answers", func() bool {
		status, _ := n.do(n.t.Context(), "GET", "/lb/web/", "")
		return status == 200
	})
}

// unread makes requests whose answers nobody reads, and waits until the abuse is over.
func (n *tenant) unread(ctx context.Context, count int, request string) {
	for range count {
		if c := n.dial(ctx, request); c != nil {
			defer c.Close()
		}
	}
	select { // who answers needs a moment to send it
	case <-ctx.Done():
		return
	case <-time.After(2 * time.Second):
	}
	n.bites()
	<-ctx.Done()
}

// ofWorker is an abuse by an answer of a worker that some clients wait for and nobody reads.
func ofWorker(name, path string, clients int) abuse {
	return abuse{door: "`/lb/` answers", name: name, slow: true, server: withRudeWorkers, prepare: (*tenant).rude, do: func(ctx context.Context, n *tenant) {
		n.unread(ctx, clients, n.head("GET", "/lb/web"+path))
	}}
}

// Abuses by workers of load-balancing endpoints, and of requests to them.
var abusesOfWorkers = []abuse{
	ofWorker("a worker with one huge header", "/headers", 80),
	ofWorker("a worker with 900,000 header fields", "/lines", 60),
	ofWorker("a worker that sends early hints without end", "/early", 40),
	ofWorker("a worker with a body without end", "/endless", 100),
	ofWorker("a worker with 200,000 trailers", "/trailers", 20),
	{door: "`/lb/` answers", name: "a worker with a status that is none", server: withRudeWorkers, prepare: (*tenant).rude, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 4, func(i int) { n.do(ctx, "GET", "/lb/web"+[...]string{"/000", "/099", "/1000"}[i%3], "") })
	}},
	{door: "`/lb/` answers", name: "a worker with huge headers for those who read them", server: withRudeWorkers, prepare: (*tenant).rude, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 8, func(int) { n.do(ctx, "GET", "/lb/web/headers", "") })
	}},
	{door: "`/lb/` requests", name: "requests to a worker that never answers", slow: true, refused: true, server: withRudeWorkers, prepare: (*tenant).rude, do: func(ctx context.Context, n *tenant) {
		go func() {
			for <-n.bitten; ctx.Err() == nil; { // beyond the limit
				n.do(ctx, "GET", "/lb/web/", "")
				time.Sleep(50 * time.Millisecond)
			}
		}()
		n.silent(ctx, 1200, func(int) string { return n.head("GET", "/lb/web/silent") })
	}},
	{door: "`/lb/` requests", name: "uploads of many header fields to a worker", server: withRudeWorkers, prepare: (*tenant).rude, do: func(ctx context.Context, n *tenant) {
		fields := manyFields(7000)
		everywhere(ctx, 16, func(int) {
			if c := n.dial(ctx, n.head("GET", "/lb/web/", strings.TrimSuffix(fields, "\r\n"))); c != nil {
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				_, _ = io.CopyN(io.Discard, c, 12)
				_ = c.Close()
			}
		})
	}},
}
