package console

import (
	"fmt"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless"
)

func TestAUserWithManyEndpointsLeavesOthersTheirHistory(t *testing.T) {
	var all []*serverless.Endpoint
	for i := range 500 {
		all = append(all, &serverless.Endpoint{ID: fmt.Sprint("a", i), Owner: "alice"})
	}
	all = append(all, &serverless.Endpoint{ID: "b0", Owner: "bob"}, &serverless.Endpoint{ID: "b1", Owner: "bob"})
	of := map[string]int{}
	for _, e := range fairly(all, maxEndpoints) {
		of[e.Owner]++
	}
	if of["bob"] != 2 || of["alice"] != maxEndpoints-2 {
		t.Errorf("the history has %v endpoints, want both of bob and %d of alice", of, maxEndpoints-2)
	}
}

func TestFailuresOfTheLastHourCountFromTheFirstJobOfANewEndpoint(t *testing.T) {
	var h history
	h.init()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, failed := range []int64{7, 9} {
		h.add(now, now.Add(-time.Minute), "new", sample{failed: failed})
		h.add(now, now.Add(-24*time.Hour), "old", sample{failed: failed})
	}
	if got := h.failedLately("new"); got != 9 {
		t.Errorf("a new endpoint has %d failures, want all 9", got)
	}
	if got := h.failedLately("old"); got != 2 {
		t.Errorf("an old endpoint has %d failures, want the 2 since the first sample", got)
	}
	for range sampleCount {
		h.add(now, now, "new", sample{failed: 10})
	}
	if got := h.failedLately("new"); got != 0 {
		t.Errorf("an hour later a new endpoint has %d failures, want 0", got)
	}
}
