package prometheus_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podyard/podyard/backend/postgres"
	metrics "github.com/podyard/podyard/backend/prometheus"
	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

var postgresql = postgrestest.Server{Prepare: func(ctx context.Context, url string) error {
	s, err := postgres.Open(ctx, url, nil)
	if err == nil {
		s.Close()
	}
	return err
}}

func TestMain(m *testing.M) { os.Exit(postgresql.Main(m)) }

// The gauges of a queue in a database are those of any other, and cost a round trip for all endpoints,
// not one for each.
func TestAScrapeOverADatabaseHasTheSameGauges(t *testing.T) {
	suite.SkipUnlessLong(t)
	n := 300
	if os.Getenv("PODYARD_LONG") != "" {
		n = 10_000
	}
	store, err := postgres.Open(t.Context(), postgresql.Database(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	m := metrics.New(&metrics.Options{Version: "1", Registry: prometheus.NewRegistry()})
	eps := store.Endpoints()
	jobs := serverless.New(store.Jobs(), eps, &serverless.Options{Observer: m.Jobs()})
	for i := range n {
		e := &serverless.Endpoint{ID: fmt.Sprint("endpoint", i), Name: "e", Workers: endpoints.WorkerLimits{Max: 1}}
		switch i {
		case 1:
			e.Queue = &endpoints.QueueSettings{Paused: true}
		case 2:
			e.Queue = &endpoints.QueueSettings{Total: 1}
		}
		if err := eps.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.Submit(t.Context(), "alice", e.ID, serverless.Request{Input: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := jobs.Take(t.Context(), "endpoint0", "w", 1); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	m.SetSources(metrics.Sources{Jobs: jobs})
	time.Sleep(1100 * time.Millisecond) // the oldest job is a second old
	_, body := series(t, m.Handler(), "")
	for _, want := range []string{
		`podyard_jobs_running{endpoint="endpoint0"} 1`, `podyard_jobs_queued{endpoint="endpoint0",priority="5"} 0`, `podyard_jobs_queued{endpoint="endpoint3",priority="5"} 1`,
		`podyard_jobs_oldest_queued_seconds{endpoint="endpoint0"} 0`, `podyard_jobs_oldest_queued_seconds{endpoint="endpoint1"} 0`, `podyard_workers_max{endpoint="endpoint3"} 1`,
		fmt.Sprintf(`podyard_jobs_queued{endpoint="other",priority="5"} %d`, n-metrics.MaxEndpoints),
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("%q is missing", want)
		}
	}
	for _, endpoint := range []string{"endpoint2", "endpoint3", "other"} {
		if strings.Contains(body, fmt.Sprintf("podyard_jobs_oldest_queued_seconds{endpoint=%q} 0\n", endpoint)) {
			t.Errorf("the oldest job of %s has no age", endpoint)
		}
	}
	if n < 10_000 {
		return
	}
	best := time.Hour
	for range 5 {
		time.Sleep(1100 * time.Millisecond) // gauges are kept for a second
		began := time.Now()
		series(t, m.Handler(), "")
		best = min(best, time.Since(began))
	}
	if t.Logf("over a database the fastest of 5 scrapes took %v", best); best > 2*maxScrape { // the records of all endpoints are read, too
		t.Errorf("a scrape took %v, want at most %v", best, 2*maxScrape)
	}
}
