package queue_test

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A backend reads a state, applies an operation and stores what it left, in one atomic
// step. The effects say what else belongs to that step.
func ExampleState_Apply() {
	now := queue.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s := queue.State{Submitted: now, Queued: now, Expires: now.Add(time.Hour), Terms: queue.Terms{ExecTimeout: 10 * time.Minute}}

	_, err := s.Apply(now, &queue.Op{Kind: queue.OpClaim, Worker: "w", Token: 1, Until: now.Add(30 * time.Second)})
	fmt.Println(s.Status, s.Worker, err)

	// The lease is not renewed: the job is queued again, and another worker may have it.
	effect, err := s.Apply(now.Add(30*time.Second), &queue.Op{Kind: queue.OpTick})
	fmt.Println(s.Status, "lost by", s.Lost, effect&queue.Requeued != 0, err)

	// A result of the worker that lost the job is refused.
	_, err = s.Apply(now.Add(31*time.Second), &queue.Op{Kind: queue.OpFinish, Worker: "w", Token: 1, Status: queue.Completed})
	fmt.Println(s.Status, err)
	// Output:
	// IN_PROGRESS w <nil>
	// IN_QUEUE lost by w true <nil>
	// IN_QUEUE the lease is no longer held
}

// An Instant is Unix milliseconds. 0 is never.
func ExampleInstant() {
	i := queue.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	fmt.Println(i, i.Add(1500*time.Millisecond).Time(), queue.Instant(0).Time().IsZero())
	// Output: 1767225600000 2026-01-01 00:00:01.5 +0000 UTC true
}

func ExampleParseStatus() {
	s, ok := queue.ParseStatus("TIMED_OUT")
	fmt.Println(s, s.Terminal(), ok)
	// Output: TIMED_OUT true true
}
