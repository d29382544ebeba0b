package postgres_test

import (
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
)

func TestPodsOfSeveralServers(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	empty(t, url)
	first, second := openURL(t, url), openURL(t, url)
	podstest.TestServers(t, podstest.Servers{
		Stores: [2]pods.PodStore{first.Pods(), second.Pods()}, Leases: first.Servers(),
		Runtimes: [2]pods.Runtime{quickRuntime(), quickRuntime()},
	})
}

// quickRuntime is a runtime whose containers are healthy at once.
func quickRuntime() pods.Runtime {
	return memory.NewRuntime(&memory.RuntimeOptions{Scripts: []memory.Script{{Image: "img", Stages: []memory.Stage{
		{Phase: pods.PhaseStarting}, {Phase: pods.PhaseHealthy, After: 100 * time.Millisecond},
	}}}})
}
