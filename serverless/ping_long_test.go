package serverless_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
)

// pingTime is how long the pings of a worker take that lists so many jobs of others.
func pingTime(t *testing.T, jobs int) time.Duration {
	t.Helper()
	ids := make([]serverless.JobID, jobs)
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
	return time.Since(began)
}

// Every worker needs the registry's mutex: none may hold it for long by what it lists.
func TestAPingThatListsManyForeignJobsDelaysNobody(t *testing.T) {
	const few, times = 3000, 10
	var short, long time.Duration
	for range 3 { // the machine may do other things too
		short = 0
		for range times {
			short += pingTime(t, few)
		}
		// It is about as much work in one list. With a look through the list for each job it would be
		// so many times as much.
		if long = pingTime(t, times*few); long < times/2*short {
			return
		}
	}
	t.Errorf("pings with %d ids took %v for %d times, and %v with so many at once", few, short, times, long)
}
