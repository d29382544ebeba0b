package memory_test

import (
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
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
