package queue_test

import (
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

func TestAHoldMadeWhenTheClockWasAheadHasEnded(t *testing.T) {
	const now, year = queue.Instant(1_780_000_000_000), queue.Instant(365 * 24 * 3_600_000)
	h := (&queue.Op{Hold: time.Second}).HoldUntil(now + year)
	if end := h.Ends(&queue.Rules{}, now); end != 0 {
		t.Errorf("it ends in %v, want that it has ended: none lasts longer than %v", time.Duration(end-now)*time.Millisecond, queue.MaxHold)
	}
	if h := (&queue.Op{Hold: queue.MaxHold}).HoldUntil(now + 1000); h.Ends(&queue.Rules{}, now) != h.Until {
		t.Error("a hold of a day by a server whose clock is a second ahead has ended, want that it lasts")
	}
}
