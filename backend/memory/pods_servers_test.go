package memory_test

import (
	"testing"
	"testing/synctest"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
)

func TestPodsOfSeveralServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewPods()
		podstest.TestServers(t, podstest.Servers{
			Stores: [2]pods.PodStore{store, store}, Leases: memory.NewServers(),
			Runtimes: [2]pods.Runtime{memory.NewRuntime(nil), memory.NewRuntime(nil)},
		})
	})
}
