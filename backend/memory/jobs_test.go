package memory_test

import (
	"testing"

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
