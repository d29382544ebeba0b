package queue_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// A backend that stores the numbers must lose nothing, also of members that a state gets later.
func TestEveryMemberOfAStateIsAmongItsNumbers(t *testing.T) {
	var s queue.State
	suite.Fill(t, &s)
	n := s.Numbers()
	got := queue.State{Seq: s.Seq, Worker: s.Worker, Lost: s.Lost, Terms: queue.Terms{Unique: queue.Unique{Key: s.Unique.Key}}}
	if got.SetNumbers(&n); got != s {
		t.Errorf("%+v comes back as %+v", s, got)
	}
	seen := map[int64]bool{}
	for i, v := range n {
		if v == 0 || v != 1 && seen[v] {
			t.Errorf("number %d is %d, want one of its own", i, v)
		}
		seen[v] = true
	}
}

// Stored states have the numbers at their places, so a new one comes last.
func TestNumbersOfAStateKeepTheirPlaces(t *testing.T) {
	s := queue.State{
		Status: queue.Failed, Flags: 1, Reason: 2, Deliveries: 4, Restarts: 5, Priority: 6, Attempt: 7, Delayed: true, Run: 9, Token: 10,
		Submitted: 11, Queued: 12, Started: 13, Finished: 14, LeaseUntil: 15, RunUntil: 16, Expires: 17,
		Chunks: 20, Drained: 21, Stream: 22, InBytes: 30, OutBytes: 31, Leases: 32, FirstChunk: 33,
		Releases: 34, Returned: true, LostStarted: 36, Snoozes: 39,
		Terms: queue.Terms{
			Unique:      queue.Unique{While: 37, Period: 38 * time.Millisecond},
			ExecTimeout: 18 * time.Millisecond, Retain: 19 * time.Millisecond, DeadLetter: 29 * time.Millisecond,
			Retry: queue.RetryPolicy{Attempts: 23, Timeouts: true, Factor: 1.5, Jitter: 0.5, Delay: 27 * time.Millisecond, MaxDelay: 28 * time.Millisecond},
		},
	}
	want := []int64{
		3, 1, 2, 4, 5, 6, 7, 1, 0, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
		23, 1, 0x3fc00000, 0x3f000000, 27, 28, 29, 30, 31, 32, 33, 34, 1, 36, 37, 38, 39,
	}
	n := s.Numbers()
	if diff := cmp.Diff(want, n[:len(want)]); diff != "" {
		t.Errorf("numbers of a state (-want +got):\n%s", diff)
	}
}
