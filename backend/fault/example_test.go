package fault_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
)

// A plan makes the second submit fail, and no other call.
func Example() {
	ctx := context.Background()
	plan := fault.NewPlan(1, fault.Rule{Call: "jobs.Enqueue", Kind: fault.Before, Skip: 1, Times: 1})
	s := serverless.New(fault.Jobs(memory.NewJobs(), plan), memory.NewEndpoints(), nil)
	if err := s.EnsureEndpoint(ctx, "echo"); err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		_, err := s.Submit(ctx, "alice", "echo", serverless.Request{Input: []byte(`{}`)})
		fmt.Println(errors.Is(err, fault.ErrInjected))
	}
	// Output:
	// false
	// true
	// false
}
