package billing_test

import (
	"context"
	"fmt"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
)

// A service keeps what pods, volumes and workers use, and reports it in buckets of time.
func Example() {
	ctx := context.Background()
	s := billing.New(memory.NewBilling(), nil)
	end := time.Now().UTC().Truncate(time.Hour)
	err := s.Record(ctx, []pods.Usage{{
		Kind: pods.PodUsage, ID: "p1", Owner: "alice", From: end.Add(-2 * time.Hour), To: end, GPU: 1.5,
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := s.Report(ctx, "alice", billing.Query{Kind: pods.PodUsage, Start: end.Add(-24 * time.Hour), End: end, Size: billing.Hour})
	fmt.Println(len(r.Records), err)
	// Output: 2 <nil>
}
