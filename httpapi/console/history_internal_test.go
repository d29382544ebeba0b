package console

import (
	"testing"
	"time"
)

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
