package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/joblog/joblogtest"
)

func TestJobLogs(t *testing.T) {
	joblogtest.TestStore(t, func(*testing.T) joblog.Store { return memory.NewJobLogs() })
}
