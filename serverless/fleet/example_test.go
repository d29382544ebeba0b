package fleet_test

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
)

// Decide is the whole scaler: a pure function with a reason in words.
func ExampleDecide() {
	now := queue.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	e := &endpoints.Endpoint{
		ID: "resize", Workers: endpoints.WorkerLimits{Max: 2, Idle: 10 * time.Second},
		Scaling: endpoints.Scaling{Type: endpoints.QueueDelay, Delay: 4 * time.Second},
	}
	d := fleet.Decide(now, e, fleet.Demand{Queued: 5, Oldest: now}, nil, fleet.Backoff{})
	fmt.Println("start", d.Start, "because", d.Reason)

	busy := []fleet.WorkerView{{ID: "a", State: fleet.Busy}}
	d = fleet.Decide(now, e, fleet.Demand{Queued: 5, Running: 1, Oldest: now.Add(-4 * time.Second)}, busy, fleet.Backoff{})
	fmt.Println("start", d.Start, "because", d.Reason)
	// Output:
	// start 1 because the first worker starts for the first job
	// start 1 because a job has waited for 4s: there is to be a worker for each that waits
}

// Workers that fail to start are tried again after longer and longer pauses.
func ExampleBackoff_After() {
	now := queue.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var b fleet.Backoff
	for range 3 {
		b = b.After(now, now, false, "the image has no such command")
		fmt.Println(b.Until.Time().Sub(now.Time()))
		now = b.Until
	}
	// Output:
	// 1s
	// 2s
	// 4s
}
