package memory_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

func TestJobs(t *testing.T) {
	serverlesstest.TestJobQueue(t, func(*testing.T) queue.JobQueue { return memory.NewJobs() })
}

func TestEndpoints(t *testing.T) {
	serverlesstest.TestEndpointStore(t, func(*testing.T) endpoints.Store { return memory.NewEndpoints() })
}

// Two servers in one process have the same value.
func TestJobsOfTwoServers(t *testing.T) {
	serverlesstest.TestShared(t, func(*testing.T) []queue.JobQueue {
		q := memory.NewJobs()
		return []queue.JobQueue{q, q}
	})
}

func TestJobsOfTwoServersThatLoseEvents(t *testing.T) {
	serverlesstest.TestShared(t, func(*testing.T) []queue.JobQueue {
		q := memory.NewJobs()
		return []queue.JobQueue{serverlesstest.Lossy(q, time.Millisecond), serverlesstest.Lossy(q, time.Millisecond)}
	})
}

// Claim sets all members of the jobs that it appends, whatever was there before.
func TestClaimIgnoresWhatWasInTheSlice(t *testing.T) {
	claim := func(out []queue.Job) []queue.Job {
		q := memory.NewJobs()
		job := queue.Job{Ref: queue.Ref{Endpoint: "echo", ID: "a"}, Owner: "user", State: queue.State{Expires: 1_000}}
		if err := q.Enqueue(t.Context(), []queue.Job{job}); err != nil {
			t.Fatal(err)
		}
		out, err := q.Claim(t.Context(), 1, []queue.Slot{{Endpoint: "echo", Worker: "worker", N: 1, Until: 2}}, out)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var ones [queue.StateNumbers]int64
	for i := range ones {
		ones[i] = 1
	}
	before := queue.Job{
		Ref: queue.Ref{Endpoint: "b", ID: "b"}, Owner: "b", Key: "b", State: queue.State{Seq: 9, Worker: "b", Lost: "b"},
		Input: []byte("b"), Output: []byte("b"), Error: "b", Webhook: "b", Extra: []byte("b"),
		Trace: queue.Trace{Parent: "b", State: "b"}, Creation: &idempotency.Record{},
	}
	before.SetNumbers(&ones)
	if got, want := claim([]queue.Job{before}[:0]), claim(nil); !reflect.DeepEqual(got, want) {
		t.Errorf("Claim gave %+v into a slice that was used before, want %+v", got, want)
	}
}
