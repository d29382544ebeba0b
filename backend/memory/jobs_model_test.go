package memory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// Random operations in random order have the same results in the queue and in the model.
func TestJobsAnswerAsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := serverlesstest.Walk{
			Queue: memory.NewJobs(), Steps: rapid.IntRange(1, 40).Draw(t, "steps"), Batch: 8,
			Draw: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "draw") },
		}
		if err := w.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// The same with thousands of jobs, so that pages of records and parts of queues fill up, empty,
// are freed and are used again.
func TestThousandsOfJobsAnswerAsTheModel(t *testing.T) {
	for _, c := range []struct {
		seed         uint64
		steps, batch int
	}{{1, 1500, 8}, {2, 200, 400}, {3, 60, 1500}} {
		t.Run(fmt.Sprintf("seed=%d,batch=%d", c.seed, c.batch), func(t *testing.T) {
			t.Parallel()
			q := memory.NewJobs()
			w := serverlesstest.Walk{Queue: q, Steps: c.steps, Batch: c.batch, Draw: rand.New(rand.NewPCG(c.seed, 0)).IntN}
			if err := w.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := q.Len(); n != 0 {
				t.Errorf("Len = %d when every ttl has passed, want 0", n)
			}
		})
	}
}
