package queue_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/serverless/queue"
)

func TestTheLogOfLeasesSaysHowEachEnded(t *testing.T) {
	running := stateRetried(sRunning)
	running.Run = 2
	running.Retry.Timeouts = true
	third := deliveredTimes(running, queue.MaxDeliveries)
	over := func(st queue.Status, why queue.Reason) queue.State {
		s := running
		s.Status, s.Reason, s.Finished = st, why, during-100
		return s
	}
	retry, adopts := newOp(queue.OpRetry), func(o *queue.Op) { o.Adopt = true }
	for _, c := range []struct {
		name       string
		s          queue.State
		now        queue.Instant
		op         queue.Op
		end        queue.LeaseEnd
		from, to   queue.Instant
		ready      queue.Instant
		firstChunk queue.Instant
	}{
		{"its lease was over", running, leaseEnd, newOp(queue.OpTick), queue.LeaseLost, started, leaseEnd, leaseEnd, 2_500},
		{"its worker is gone", running, during, newOp(queue.OpWorkerLost), queue.LeaseLost, started, during, during, 2_500},
		{"its third worker is gone", third, during, newOp(queue.OpWorkerLost), queue.LeaseLost, started, during, afterward, 2_500},
		{"it was handed back", running, during, newOp(queue.OpRelease), queue.LeaseReleased, started, during, during, 2_500},
		{"its server is gone", running, during, newOp(queue.OpRecover), queue.LeaseRestarted, started, during, during, 2_500},
		{"it failed", running, during, newOp(queue.OpFinish, func(o *queue.Op) { o.Status = sFailed }), queue.LeaseFailed, started, during, afterward, 2_500},
		{"it took too long", running, overtime, newOp(queue.OpTick), queue.LeaseTimedOut, started, overtime, overtime + 2_000, 2_500},
		{"the loser adopts and hands back", stateLost(), during, newOp(queue.OpRelease, adopts), queue.LeaseReleased, started, during, during, 0},
		{"its worker has no result", running, during, newOp(queue.OpNoResult), queue.LeaseLost, started, during, during, 2_500},
		{"the user retries a failure", over(sFailed, queue.NoReason), during, retry, queue.LeaseFailed, started, during - 100, during, 2_500},
		{"the user retries a timeout", over(sTimedOut, queue.ExecutionTimedOut), during, retry, queue.LeaseTimedOut, started, during - 100, during, 2_500},
		{"the user retries what three workers lost", over(sFailed, queue.WorkersLost), during, retry, queue.LeaseLost, started, during - 100, during, 2_500},
		{"the user retries what ten servers lost", over(sFailed, queue.TooManyRestarts), during, retry, queue.LeaseRestarted, started, during - 100, during, 2_500},
	} {
		after := c.s
		eff, err := after.Apply(c.now, &c.op)
		if err != nil || eff&queue.PutLease == 0 || after.Leases != 1 || after.FirstChunk != 0 {
			t.Fatalf("%s: Apply = %b, %v, and %d leases, first chunk at %d; want one in the log, and no chunk", c.name, eff, err, after.Leases, after.FirstChunk)
		}
		want := queue.JobLease{
			Run: c.s.Run, Attempt: 1, Worker: "w", Started: c.from, FirstChunk: c.firstChunk, Finished: c.to, End: c.end, Ready: c.ready,
		}
		if diff := cmp.Diff(want, c.s.EndedLease(c.now, &after, &c.op)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// However often a job is handed back, each lease takes the place of the oldest one that is kept.
func TestALeaseTakesThePlaceOfTheOldestOne(t *testing.T) {
	var s queue.State
	places := map[uint8]int{} // the number of the lease there
	for n := 1; n <= 1000; n++ {
		s.Status, s.Worker, s.Started, s.Expires, s.LeaseUntil, s.RunUntil, s.Deliveries = sRunning, "w", started, expires, leaseEnd, overtime, 1
		op := newOp(queue.OpRelease, func(o *queue.Op) { o.Token = 0 })
		if eff, err := s.Apply(during, &op); err != nil || eff&queue.PutLease == 0 {
			t.Fatalf("release %d = %b, %v", n, eff, err)
		}
		list := s.LeasePlaces()
		places[s.LeasePlace()] = n
		for i, p := range list {
			if want := n - len(list) + 1 + i; places[p] != want {
				t.Fatalf("after %d leases the log has number %d at its %d. place, want %d", n, places[p], i, want)
			}
		}
		if len(list) != min(n, queue.MaxLeases) || n <= 240 && int(s.Leases) != n || n > 240 && s.Leases <= 240 {
			t.Fatalf("after %d leases there are %d in the log, of %d", n, len(list), s.Leases)
		}
	}
}
