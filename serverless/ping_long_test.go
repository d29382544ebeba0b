package serverless_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
)

// Every worker needs the registry's mutex: none may hold it for long by what it lists.
func TestAPingThatListsManyForeignJobsDelaysNobody(t *testing.T) {
	ids := make([]serverless.JobID, 100_000)
	for i := range ids {
		ids[i] = serverless.JobID("none-" + strconv.Itoa(i))
	}
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		s := serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil)
		for range 3 {
			pingLost(t, s, "w", ids...)
			time.Sleep(20 * time.Second) // more than a third of a lease, and less than one
		}
	})
	// It is about half a second; looking through the list for each of them is a minute.
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("three pings with %d ids took %v", len(ids), d)
	}
}
