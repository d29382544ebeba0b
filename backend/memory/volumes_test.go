package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/pods/volumes/volumestest"
)

func TestVolumes(t *testing.T) {
	volumestest.TestStore(t, func(*testing.T) volumes.Store { return memory.NewVolumes() })
}
