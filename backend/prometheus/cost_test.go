package prometheus_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podyard/podyard/backend/memory"
	metrics "github.com/podyard/podyard/backend/prometheus"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
)

const (
	// minShare is what is left of the jobs a second of a service when it has the observer.
	minShare = 0.97
	pairs    = 2001
)

// cycled runs jobs from their submit to their end, and returns how long one took.
func cycled(t *testing.T, to telemetry.Observer, n int) time.Duration {
	t.Helper()
	eps := memory.NewEndpoints()
	s := serverless.New(memory.NewJobs(), eps, &serverless.Options{Observer: to})
	if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "echo", Name: "echo"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range n {
		if _, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
		jobs, err := s.Take(t.Context(), "echo", "w", 1)
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		op := queue.Op{Ref: jobs[0].Ref, Kind: queue.OpFinish, Worker: "w", Token: jobs[0].Token, Status: queue.Completed, Payload: []byte(`{}`)}
		if err := s.Report(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(began) / time.Duration(n)
}

// Short rounds with and without the observer alternate, and each pair is compared by itself, so that
// other work of the machine is in both.
func TestTheObserverCostsAServiceLittle(t *testing.T) {
	if os.Getenv("PODYARD_LONG") == "" {
		t.Skip("a measurement: it runs with PODYARD_LONG")
	}
	m := metrics.New(&metrics.Options{Registry: prometheus.NewRegistry()})
	var shares []float64
	for i := range pairs {
		first, second := telemetry.Observer(nil), m.Jobs()
		if i%2 == 1 {
			first, second = second, first
		}
		a, b := cycled(t, first, 1000), cycled(t, second, 1000)
		if i%2 == 1 {
			a, b = b, a
		}
		shares = append(shares, float64(a)/float64(b))
	}
	slices.Sort(shares)
	share := shares[len(shares)/2]
	t.Logf("%d rounds, of 1000 jobs each with and without the observer: a share of %.3f of the jobs a second is left (%.3f to %.3f in the middle half)",
		pairs, share, shares[pairs/4], shares[3*pairs/4])
	if share < minShare {
		t.Errorf("a share of %.3f of the jobs a second is left, want %v", share, minShare)
	}
}
