package main

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
)

// A gate is closed when the server stops. Then it lets through only what workers that
// are other processes need to finish the jobs they have.
type gate struct {
	next   http.Handler
	closed atomic.Bool
}

var errStopping = problem.New(problem.Unavailable, "the server is stopping")

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.closed.Load() && !finishes(r.URL.Path) {
		w.Header().Set("Connection", "close")
		httpapi.WriteProblem(w, errStopping)
		return
	}
	g.next.ServeHTTP(w, r)
}

// finishes reports whether a path is of the worker protocol, and not for taking jobs.
func finishes(path string) bool {
	part := strings.Split(path, "/")
	if len(part) < 5 {
		return false
	}
	switch part[3] {
	case "job-done", "job-stream", "job-stop", "ping":
		return true
	}
	return false
}

// finish returns when no job is in progress, or when ctx ends.
func (v *server) finish(ctx context.Context) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for v.working(ctx) {
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
}

// working reports whether a job is in progress, as far as the store can be asked.
func (v *server) working(ctx context.Context) bool {
	for e, err := range v.jobs.Endpoints().List(ctx) {
		if err != nil || ctx.Err() != nil {
			return false
		}
		if h, err := v.jobs.Health(ctx, e.ID); err == nil && h.Jobs.Running > 0 {
			return true
		}
	}
	return false
}
