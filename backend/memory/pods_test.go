package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
)

func TestPods(t *testing.T) {
	podstest.TestStore(t, func(*testing.T) pods.PodStore { return memory.NewPods() })
}
