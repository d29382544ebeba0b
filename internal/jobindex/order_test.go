package jobindex

import (
	"fmt"
	"testing"

	"github.com/podyard/podyard/serverless/queue"
)

// addReady adds a ready job, whose Seq is its number.
func addReady(t *testing.T, x *Index, owner, key string, priority uint8) uint32 {
	t.Helper()
	i, ok := x.Add(queue.Ref{Endpoint: "e", ID: queue.JobID(fmt.Sprint("job-", x.Len()))}, owner, key, priority)
	if !ok {
		t.Fatal("Add failed")
	}
	x.Show(i, &queue.State{Seq: uint64(i), Expires: 1 << 50, Priority: priority})
	return i
}

func TestAHeldLineIsSkippedUntilItsTime(t *testing.T) {
	const lines, until = 10_000, queue.Instant(1000)
	x := New()
	first := addReady(t, x, "user", "key-0", 5)
	for n := 1; n < lines; n++ {
		addReady(t, x, "user", fmt.Sprint("key-", n), 5)
	}
	free := addReady(t, x, "user", "free", 5)
	for _, l := range x.lines[1:] {
		if x.names.text(l.key.name) != "free" {
			x.hold(l, until)
		}
	}
	slot := queue.Slot{Endpoint: "e", Worker: "w"}
	before := x.Reads()
	if got := x.NextReady(until-1, &slot); got != free {
		t.Errorf("NextReady = job %d while all other lines are held, want job %d", got, free)
	}
	if got := x.NextReady(until-1, &slot); got != 0 {
		t.Errorf("NextReady = job %d while all lines are held, want none", got)
	}
	if n := x.Reads() - before; n != 1 {
		t.Errorf("%d jobs were looked at beside %d held lines, want 1", n, lines)
	}
	if got := x.NextReady(until, &slot); got != first {
		t.Errorf("NextReady = job %d when no line is held any more, want the oldest one, %d", got, first)
	}
}
