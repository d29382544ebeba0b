package jobindex

import (
	"testing"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// Members that a state gets later must be kept, too.
func TestEveryMemberOfAStateIsInTheIndex(t *testing.T) {
	x := New()
	var s queue.State
	suite.Fill(t, &s)
	s.Priority = queue.MaxPriority
	for _, status := range []queue.Status{queue.InQueue, queue.Failed} {
		s.Status, s.Delayed = status, status == queue.InQueue
		s.Started, s.LostStarted, s.Finished, s.Snoozes = 20, 0, 22, 0
		if status == queue.InQueue { // a job that waits has no Started and no Finished, and one that has ended no Snoozes
			s.Started, s.LostStarted, s.Finished, s.Snoozes = 0, 21, 0, 23
		}
		i, ok := x.Add(queue.Ref{Endpoint: "e", ID: queue.JobID(status.String())}, "user", "", s.Priority)
		if !ok {
			t.Fatal("Add failed")
		}
		x.Load(i, &s)
		if got := x.State(i); got != s {
			t.Errorf("%+v is read as %+v", s, got)
		}
	}
}

func TestDueJobsAreFoundAfterTheClockWasSetBack(t *testing.T) {
	const start, hour = queue.Instant(1_780_000_000_000), queue.Instant(3_600_000)
	x := New()
	add := func(id queue.JobID, seq uint64, submitted queue.Instant) uint32 {
		i, ok := x.Add(queue.Ref{Endpoint: "e", ID: id}, "user", "", 0)
		if !ok {
			t.Fatalf("Add of %q failed", id)
		}
		x.Show(i, &queue.State{Seq: seq, Submitted: submitted, Expires: submitted + hour})
		return i
	}
	// due is the job that is due, which is gone then; 0 for none.
	due := func(now queue.Instant) uint32 {
		budget := 10
		i := x.TakeDue(now, &budget)
		if i != 0 {
			x.Commit(i, &queue.State{}, queue.Delete)
		}
		return i
	}
	early := add("early", 1, start)
	late := add("late", 2, start+20_000*hour)
	for _, want := range []uint32{early, 0} {
		if got := due(start + 10_000*hour); got != want {
			t.Fatalf("a year on job %d is due, want %d", got, want)
		}
	}
	next := add("next", 3, start+hour)
	if got := due(start + hour); got != 0 {
		t.Errorf("job %d is due before its time, want none", got)
	}
	if got := x.NextDue(); got > start+2*hour || got <= start+hour {
		t.Errorf("Next = %d, want one up to %d", got, start+2*hour)
	}
	for _, want := range []uint32{next, 0} {
		if got := due(start + 2*hour); got != want {
			t.Errorf("job %d is due, want %d", got, want)
		}
	}
	if got := due(start + 20_001*hour); got != late {
		t.Errorf("job %d is due, want %d", got, late)
	}
}
