package console

import (
	"testing"
	"time"
)

func TestAClockThatIsSetBackKeepsNoKeyOut(t *testing.T) {
	var all tries
	ahead := time.Date(2030, 1, 1, 13, 0, 0, 0, time.UTC)
	for range maxSignIns {
		all.take(ahead, "key k", maxSignIns)
	}
	if wait := all.take(ahead, "key k", maxSignIns); wait != time.Minute {
		t.Errorf("one too many waits %v, want a minute", wait)
	}
	if wait := all.take(ahead.Add(-time.Hour), "key k", maxSignIns); wait != 0 {
		t.Errorf("after the clock was set back by an hour a key waits %v, want 0", wait)
	}
}
