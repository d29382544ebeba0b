package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/batches/batchestest"
)

func TestBatches(t *testing.T) {
	batchestest.TestStore(t, func(*testing.T) batches.Store { return memory.NewBatches() })
}
