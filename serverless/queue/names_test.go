package queue_test

import (
	"fmt"
	"testing"

	"github.com/podyard/podyard/serverless/queue"
)

// The last name of each list belongs to the last constant, so no name is missing.
func TestNumbersThatPeoplePrintHaveNames(t *testing.T) {
	for _, row := range []struct {
		got  fmt.Stringer
		want string
	}{
		{queue.OpClaim, "claim"}, {queue.OpReplace, "replace"}, {queue.OpReplace + 1, "OpKind(21)"},
		{queue.EventReady, "ready"}, {queue.EventGap, "gap"}, {queue.EventGap + 1, "EventKind(5)"},
		{queue.NoReason, "none"}, {queue.SnoozedTooLong, "snoozed-too-long"}, {queue.SnoozedTooLong + 1, "Reason(6)"},
		{queue.InQueue, "IN_QUEUE"}, {queue.TimedOut, "TIMED_OUT"}, {queue.TimedOut + 1, "Status(6)"},
	} {
		if got := row.got.String(); got != row.want {
			t.Errorf("%#v is %q, want %q", row.got, got, row.want)
		}
	}
}
