package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless/queue"
)

// A queue in memory has everything that one on disk has, and ends with the process.
func ExampleNewJobs() {
	ctx := context.Background()
	q := memory.NewJobs()
	now := queue.At(time.Now())
	job := queue.Job{
		Ref: queue.Ref{Endpoint: "echo", ID: "j1"}, Owner: "alice", Input: []byte(`{}`),
		State: queue.State{Submitted: now, Queued: now, Expires: now.Add(time.Hour), Terms: queue.Terms{ExecTimeout: time.Minute}},
	}
	if err := q.Enqueue(ctx, []queue.Job{job}); err != nil {
		fmt.Println(err)
		return
	}
	jobs, err := q.Claim(ctx, now, []queue.Slot{{Endpoint: "echo", Worker: "w", N: 1, Until: now.Add(30 * time.Second)}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(jobs[0].ID, jobs[0].Status)
	// Output: j1 IN_PROGRESS
}
