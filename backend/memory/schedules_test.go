package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless/schedules"
	"github.com/podyard/podyard/serverless/schedules/schedulestest"
)

func TestSchedules(t *testing.T) {
	schedulestest.TestStore(t, func(*testing.T) schedules.Store { return memory.NewSchedules() })
}
