package prometheus_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/prometheus"
	"github.com/podyard/podyard/serverless"
)

func Example() {
	ctx := context.Background()
	m := prometheus.New(nil)
	jobs := serverless.New(memory.NewJobs(), memory.NewEndpoints(), &serverless.Options{Observer: m.Jobs()})
	m.SetSources(prometheus.Sources{Jobs: jobs})
	if err := jobs.EnsureEndpoint(ctx, "shout"); err != nil {
		log.Fatal(err)
	}
	if _, err := jobs.Submit(ctx, "alice", "shout", serverless.Request{Input: []byte(`{}`)}); err != nil {
		log.Fatal(err)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, `"shout",kind="run"`) || strings.Contains(line, `"shout",priority="5"`) {
			fmt.Print(line)
		}
	}
	// Output:
	// podyard_jobs_queued{endpoint="shout",priority="5"} 1
	// podyard_jobs_submitted_total{endpoint="shout",kind="run"} 1
}
