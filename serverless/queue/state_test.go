package queue_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/podyard/podyard/serverless/queue"
)

// The life of the job that the table below asks about: submitted at 1000, taken by "w"
// under token 7 at 2000 until 5000, to be run until 12000, kept until 101000 or, when it
// has ended, for 50000 more. If "w" loses it, only others may claim it until 35000.
const (
	submitted queue.Instant = 1_000
	started   queue.Instant = 2_000
	during    queue.Instant = 3_000
	leaseEnd  queue.Instant = 5_000
	overtime  queue.Instant = 12_000
	barEnd    queue.Instant = 35_000
	ended     queue.Instant = 3_000
	expires   queue.Instant = 101_000
)

// stateIn is that job in a status: as it is after the shortest way there.
func stateIn(s queue.Status) queue.State {
	j := queue.State{
		InBytes: 2,
		Status:  s, Flags: queue.HasWebhook, Seq: 1, Submitted: submitted, Queued: submitted,
		Expires: expires, Terms: queue.Terms{ExecTimeout: overtime.Sub(started), Retain: 50 * time.Second},
	}
	if s != queue.InQueue {
		j.Worker, j.Token, j.Deliveries = "w", 7, 1
		j.Started, j.LeaseUntil, j.RunUntil = started, leaseEnd, overtime
		j.Chunks, j.Drained, j.Stream, j.FirstChunk = 3, 1, 20, 2_500
	}
	if s.Terminal() {
		j.Finished = ended
	}
	return j
}

// stateLost is that job queued again because "w" lost it.
func stateLost() queue.State {
	j := stateIn(queue.InQueue)
	j.Lost, j.LostStarted, j.Token, j.Deliveries, j.LeaseUntil = "w", started, 7, 1, barEnd
	return j
}

// stateReturned is that job queued again because "w" released it.
func stateReturned() queue.State {
	j := stateIn(queue.InQueue)
	j.Lost, j.LostStarted, j.Returned, j.Releases, j.Token = "w", started, true, 1, 7
	return j
}

func deliveredTimes(j queue.State, n uint8) queue.State {
	j.Deliveries = n
	return j
}

// Effects that come together.
const (
	ends     = queue.Put | queue.EvDone | queue.PutOutbox
	endsStop = ends | queue.EvStop
	requeue  = queue.Put | queue.DropOutput | queue.EvReady | queue.PutLease
	loss     = requeue | queue.Requeued | queue.EvStop
	stays    = queue.Effect(0)
)

var (
	errLease  error = queue.ErrLeaseLost
	errStatus error = queue.ErrStatus
	errGone   error = queue.ErrNotFound
)

// An answer is what one op does to the job in one status.
type answer struct {
	status queue.Status
	effect queue.Effect
	err    error
}

const (
	sQueued    = queue.InQueue
	sRunning   = queue.InProgress
	sCompleted = queue.Completed
	sFailed    = queue.Failed
	sCancelled = queue.Cancelled
	sTimedOut  = queue.TimedOut
)

// everywhere is the answer that leaves a job in any status as it is.
func everywhere(eff queue.Effect, err error) [6]answer {
	var list [6]answer
	for s := range list {
		list[s] = answer{queue.Status(s), eff, err}
	}
	return list
}

// except is list with other answers in some statuses.
func except(list [6]answer, other map[queue.Status]answer) [6]answer {
	for s, a := range other {
		list[s] = a
	}
	return list
}

// heldOnly is an op that only the worker with the lease may do.
func heldOnly(a answer) [6]answer {
	return except(everywhere(stays, errLease), map[queue.Status]answer{sRunning: a})
}

func newOp(k queue.OpKind, change ...func(*queue.Op)) queue.Op {
	o := queue.Op{Kind: k, Worker: "w", Token: 7, Until: 9_000, Status: sCompleted, Payload: []byte("12345")}
	for _, f := range change {
		f(&o)
	}
	return o
}

// TestEveryOpInEveryStatus is the state machine as a table (docs/interface.md 3.2,
// docs/decisions.md 26 to 28): for every move the answer in IN_QUEUE, IN_PROGRESS,
// COMPLETED, FAILED, CANCELLED and TIMED_OUT, at an instant at which the lease holds and
// nothing is over.
func TestEveryOpInEveryStatus(t *testing.T) {
	const put = queue.Put
	for _, c := range []struct {
		name string
		op   queue.Op
		want [6]answer
	}{
		{"claim", newOp(queue.OpClaim, func(o *queue.Op) { o.Token = 8 }),
			except(everywhere(stays, errStatus), map[queue.Status]answer{sQueued: {sRunning, put, nil}})},
		{"renew", newOp(queue.OpRenew), heldOnly(answer{sRunning, put, nil})},
		{"renew without a token", newOp(queue.OpRenew, func(o *queue.Op) { o.Token = 0 }), heldOnly(answer{sRunning, put, nil})},
		{"renew under another token", newOp(queue.OpRenew, func(o *queue.Op) { o.Token = 6 }), everywhere(stays, errLease)},
		{"renew of another worker", newOp(queue.OpRenew, func(o *queue.Op) { o.Worker = "x" }), everywhere(stays, errLease)},
		{"renew of nobody", newOp(queue.OpRenew, func(o *queue.Op) { o.Worker, o.Token = "", 0 }), everywhere(stays, errLease)},
		{"renew that may adopt", newOp(queue.OpRenew, func(o *queue.Op) { o.Adopt = true }), heldOnly(answer{sRunning, put, nil})},
		{"complete", newOp(queue.OpFinish), heldOnly(answer{sCompleted, ends | queue.PutOutput, nil})},
		{"fail", newOp(queue.OpFinish, func(o *queue.Op) { o.Status = sFailed }), heldOnly(answer{sFailed, ends | queue.PutOutput, nil})},
		{"finish as something else", newOp(queue.OpFinish, func(o *queue.Op) { o.Status = sQueued }), everywhere(stays, errStatus)},
		{"release", newOp(queue.OpRelease), heldOnly(answer{sQueued, requeue, nil})},
		{"no result", newOp(queue.OpNoResult), heldOnly(answer{sQueued, requeue | queue.Requeued, nil})},
		{"no result of another worker", newOp(queue.OpNoResult, func(o *queue.Op) { o.Worker = "x" }), everywhere(stays, errLease)},
		{"no result of another lease", newOp(queue.OpNoResult, func(o *queue.Op) { o.Token = 6 }), everywhere(stays, errLease)},
		{"chunk", newOp(queue.OpChunk), heldOnly(answer{sRunning, put | queue.AddChunk | queue.EvChunk, nil})},
		{"chunk too many", newOp(queue.OpChunk, func(o *queue.Op) { o.Payload = make([]byte, queue.MaxStream) }),
			heldOnly(answer{sRunning, stays, queue.ErrStreamFull})},
		{"progress", newOp(queue.OpProgress), heldOnly(answer{sRunning, put | queue.PutOutput, nil})},
		{"drain", newOp(queue.OpDrain, func(o *queue.Op) { o.From, o.N, o.Bytes = 1, 2, 20 }),
			except(everywhere(put|queue.DropChunks, nil), map[queue.Status]answer{sQueued: {sQueued, stays, nil}})},
		{"drain from elsewhere", newOp(queue.OpDrain, func(o *queue.Op) { o.From, o.N = 0, 1 }), everywhere(stays, nil)},
		{"drain of too many", newOp(queue.OpDrain, func(o *queue.Op) { o.From, o.N = 1, 3 }), everywhere(stays, nil)},
		{"drain of another lease", newOp(queue.OpDrain, func(o *queue.Op) { o.From, o.N, o.Token = 1, 1, 6 }), everywhere(stays, nil)},
		{"cancel", newOp(queue.OpCancel),
			except(everywhere(stays, nil), map[queue.Status]answer{sQueued: {sCancelled, ends, nil}, sRunning: {sCancelled, endsStop, nil}})},
		{"purge", newOp(queue.OpPurge),
			except(everywhere(stays, errStatus), map[queue.Status]answer{sQueued: {sCancelled, ends, nil}})},
		{"retry", newOp(queue.OpRetry),
			except(everywhere(stays, errStatus), map[queue.Status]answer{
				sFailed: {sQueued, requeue | queue.NewSeq, nil}, sTimedOut: {sQueued, requeue | queue.NewSeq, nil}})},
		{"set ttl", newOp(queue.OpSetTTL), everywhere(put, nil)},
		{"tick", newOp(queue.OpTick), everywhere(stays, nil)},
		{"recover", newOp(queue.OpRecover),
			except(everywhere(stays, nil), map[queue.Status]answer{sRunning: {sQueued, requeue, nil}})},
		{"lose", newOp(queue.OpWorkerLost), heldOnly(answer{sQueued, loss, nil})},
		{"lose of another worker", newOp(queue.OpWorkerLost, func(o *queue.Op) { o.Worker = "x" }), everywhere(stays, errLease)},
		{"redeliver", newOp(queue.OpRedeliver),
			except(everywhere(queue.PutOutbox, nil), map[queue.Status]answer{sQueued: {sQueued, stays, errStatus}, sRunning: {sRunning, stays, errStatus}})},
		{"damage", newOp(queue.OpDamage),
			except(everywhere(stays, errStatus), map[queue.Status]answer{sQueued: {sFailed, ends | queue.DropInput, nil}})},
		{"start", newOp(queue.OpStart), everywhere(stays, errStatus)},
		{"delete", newOp(queue.OpDelete), except(everywhere(queue.Delete, nil), map[queue.Status]answer{
			sQueued: {sQueued, stays, errStatus}, sRunning: {sRunning, stays, errStatus}})},
		{"drop the input that a webhook may need", newOp(queue.OpDropInput), everywhere(stays, errStatus)},
		{"an unknown op", newOp(200), everywhere(stays, errStatus)},
	} {
		for s, want := range c.want {
			checkMove(t, c.name, stateIn(queue.Status(s)), during, c.op, want)
		}
	}
}

// TestOpsAtTheEdges is what the table leaves out: when something is over, and what a job
// remembers.
func TestOpsAtTheEdges(t *testing.T) {
	adopt := func(o *queue.Op) { o.Adopt = true }
	third := deliveredTimes(stateIn(sRunning), queue.MaxDeliveries)
	ninth := stateIn(sRunning)
	ninth.Restarts = queue.MaxRestarts - 1
	plain := stateIn(sRunning)
	plain.Flags = 0
	delayed := stateIn(sQueued)
	delayed.Delayed, delayed.Queued = true, overtime
	damaged := stateIn(sFailed)
	damaged.Reason = queue.Damaged
	unbarred := stateLost()
	unbarred.LeaseUntil = 0
	streamed := stateLost()
	streamed.LostStarted = 0
	tenth := stateIn(sRunning)
	tenth.Releases = queue.MaxReleases - 1
	why := func(o *queue.Op) { o.Error, o.Payload = "it was killed", nil }
	for _, c := range []struct {
		name string
		s    queue.State
		now  queue.Instant
		op   queue.Op
		want answer
	}{
		{"no webhook, no entry", plain, during, newOp(queue.OpFinish), answer{sCompleted, queue.Put | queue.EvDone | queue.PutOutput, nil}},
		{"the lease holds to its last ms", stateIn(sRunning), leaseEnd - 1, newOp(queue.OpFinish), answer{sCompleted, ends | queue.PutOutput, nil}},
		{"the lease is over, unswept", stateIn(sRunning), leaseEnd, newOp(queue.OpFinish), answer{sRunning, stays, errLease}},
		{"the lease is over, adopted", stateIn(sRunning), leaseEnd, newOp(queue.OpFinish, adopt), answer{sCompleted, ends | queue.PutOutput, nil}},
		{"the run is over, adopted", stateIn(sRunning), overtime, newOp(queue.OpFinish, adopt), answer{sRunning, stays, errLease}},
		{"tick before the lease is over", stateIn(sRunning), leaseEnd - 1, newOp(queue.OpTick), answer{sRunning, stays, nil}},
		{"tick when the lease is over", stateIn(sRunning), leaseEnd, newOp(queue.OpTick), answer{sQueued, loss, nil}},
		{"tick when the last lease is over", third, leaseEnd, newOp(queue.OpTick), answer{sFailed, ends | queue.EvStop, nil}},
		{"tick when the run is over", stateIn(sRunning), overtime, newOp(queue.OpTick), answer{sTimedOut, endsStop, nil}},
		{"tick when the last run is over", third, overtime, newOp(queue.OpTick), answer{sTimedOut, endsStop, nil}},
		{"the third worker is lost", third, during, newOp(queue.OpWorkerLost), answer{sFailed, ends | queue.EvStop, nil}},
		{"the third worker is lost, and it is known why", third, during, newOp(queue.OpWorkerLost, why), answer{sFailed, ends | queue.EvStop | queue.PutOutput, nil}},
		{"the third worker has no result", third, during, newOp(queue.OpNoResult, why), answer{sFailed, ends | queue.PutOutput, nil}},
		{"the tenth release", tenth, during, newOp(queue.OpRelease), answer{sQueued, requeue | queue.NewSeq, nil}},
		{"who released claims", stateReturned(), during, newOp(queue.OpClaim), answer{sRunning, queue.Put, nil}},
		{"who released reports late", stateReturned(), during, newOp(queue.OpFinish, adopt), answer{sCompleted, ends | queue.PutOutput, nil}},
		{"who released reports after its run would be over", stateReturned(), overtime, newOp(queue.OpFinish, adopt), answer{sCompleted, ends | queue.PutOutput, nil}},
		{"a renewal of a lease that was released meanwhile", stateReturned(), during, newOp(queue.OpRenew, adopt), answer{sQueued, stays, errLease}},
		{"who released goes on after its run would be over", stateReturned(), overtime, newOp(queue.OpRenew, adopt), answer{sQueued, stays, errLease}},
		{"the loser goes on after its run would be over", unbarred, overtime, newOp(queue.OpChunk, adopt), answer{sQueued, stays, errLease}},
		{"the loser of chunks reports late", streamed, during, newOp(queue.OpFinish, adopt), answer{sQueued, stays, errLease}},
		{"the tenth release, untouched", tenth, during, newOp(queue.OpRelease, func(o *queue.Op) { o.Untouched = true }), answer{sQueued, requeue | queue.GiveStart, nil}},
		{"the tenth restart", ninth, during, newOp(queue.OpRecover), answer{sFailed, ends, nil}},
		{"start of a delayed job", delayed, during, newOp(queue.OpStart), answer{sQueued, queue.Put | queue.NewSeq | queue.EvReady, nil}},
		{"retry without an input", damaged, during, newOp(queue.OpRetry), answer{sFailed, stays, queue.ErrInputLost}},
		{"the loser claims", stateLost(), during, newOp(queue.OpClaim), answer{sQueued, stays, errStatus}},
		{"the loser claims before a tick", stateLost(), barEnd, newOp(queue.OpClaim), answer{sQueued, stays, errStatus}},
		{"the loser claims after a tick", unbarred, barEnd, newOp(queue.OpClaim), answer{sRunning, queue.Put, nil}},
		{"the loser adopts after a tick", unbarred, during, newOp(queue.OpRenew, adopt), answer{sRunning, queue.Put, nil}},
		{"tick before the loser may claim", stateLost(), barEnd - 1, newOp(queue.OpTick), answer{sQueued, stays, nil}},
		{"tick when the loser may claim", stateLost(), barEnd, newOp(queue.OpTick), answer{sQueued, queue.Put | queue.EvReady, nil}},
		{"another tick", unbarred, barEnd, newOp(queue.OpTick), answer{sQueued, stays, nil}},
		{"another claims", stateLost(), during, newOp(queue.OpClaim, func(o *queue.Op) { o.Worker = "x" }), answer{sRunning, queue.Put, nil}},
		{"the loser goes on", stateLost(), during, newOp(queue.OpRenew), answer{sQueued, stays, errLease}},
		{"the loser adopts", stateLost(), during, newOp(queue.OpRenew, adopt), answer{sRunning, queue.Put, nil}},
		{"the loser adopts and ends", stateLost(), during, newOp(queue.OpFinish, adopt), answer{sCompleted, ends | queue.PutOutput, nil}},
		{"the loser adopts and hands back", stateLost(), during, newOp(queue.OpRelease, adopt), answer{sQueued, requeue, nil}},
		{"the loser adopts and hands back what it never began", stateLost(), during, newOp(queue.OpRelease, adopt, func(o *queue.Op) { o.Untouched = true }), answer{sQueued, requeue, nil}},
		{"another adopts", stateLost(), during, newOp(queue.OpRenew, adopt, func(o *queue.Op) { o.Worker = "x" }), answer{sQueued, stays, errLease}},
		{"nobody adopts", stateIn(sQueued), during, newOp(queue.OpRenew, adopt, func(o *queue.Op) { o.Worker, o.Token = "", 0 }), answer{sQueued, stays, errLease}},
		{"the retention is over", stateIn(sCompleted), ended + 50_000, newOp(queue.OpCancel), answer{sCompleted, queue.Delete, errGone}},
		{"the retention is over: tick", stateIn(sCompleted), ended + 50_000, newOp(queue.OpTick), answer{sCompleted, queue.Delete, nil}},
		{"the retention lasts to its last ms", stateIn(sCompleted), ended + 49_999, newOp(queue.OpTick), answer{sCompleted, stays, nil}},
	} {
		checkMove(t, c.name, c.s, c.now, c.op, c.want)
	}
}

// TestPastItsTTLNothingIsFound: every op but tick and recover answers ErrNotFound, and all
// delete; who waits is told, and the worker too.
func TestPastItsTTLNothingIsFound(t *testing.T) {
	effects := [6]queue.Effect{queue.Delete | queue.EvDone, queue.Delete | queue.EvDone | queue.EvStop,
		queue.Delete, queue.Delete, queue.Delete, queue.Delete}
	for s, eff := range effects {
		for k := queue.OpClaim; k <= queue.OpDelete; k++ {
			want := answer{queue.Status(s), eff, errGone}
			if k == queue.OpTick || k == queue.OpRecover {
				want.err = nil
			}
			checkMove(t, fmt.Sprintf("op %d", k), stateIn(queue.Status(s)), expires, newOp(k), want)
		}
	}
}

func checkMove(t *testing.T, name string, s queue.State, now queue.Instant, o queue.Op, want answer) {
	t.Helper()
	before := s
	eff, err := s.Apply(now, &o)
	got := answer{s.Status, eff, err}
	if got.status != want.status || got.effect != want.effect || !errors.Is(err, want.err) || (err == nil) != (want.err == nil) {
		t.Errorf("%s, %v at %d = %v, effects %b, %v; want %v, effects %b, %v",
			name, before.Status, now, got.status, got.effect, got.err, want.status, want.effect, want.err)
	}
	if err != nil && s != before {
		t.Errorf("%s, %v at %d = %v, and the state is another (-before +after):\n%s", name, before.Status, now, err, cmp.Diff(before, s))
	}
}

// TestWhatAMoveLeaves compares whole states after the moves that change more than one
// thing.
func TestWhatAMoveLeaves(t *testing.T) {
	firstless := stateIn(sRunning)
	firstless.Chunks, firstless.Drained, firstless.Stream, firstless.FirstChunk = 0, 0, 0, 0
	for _, c := range []struct {
		name   string
		s      queue.State
		now    queue.Instant
		op     queue.Op
		change func(*queue.State)
	}{
		{"claim", stateIn(sQueued), during, newOp(queue.OpClaim, func(o *queue.Op) { o.Token = 8 }), func(s *queue.State) {
			s.Status, s.Worker, s.Token, s.Deliveries = sRunning, "w", 8, 1
			s.Started, s.LeaseUntil, s.RunUntil = during, 9_000, during+10_000
		}},
		{"renew", stateIn(sRunning), during, newOp(queue.OpRenew), func(s *queue.State) { s.LeaseUntil = 9_000 }},
		{"renew until earlier", stateIn(sRunning), during, newOp(queue.OpRenew, func(o *queue.Op) { o.Until = 4_000 }), func(*queue.State) {}},
		{"renew what begins only now", stateIn(sRunning), during, newOp(queue.OpRenew, func(o *queue.Op) { o.Begins = true }), func(s *queue.State) {
			s.Started, s.LeaseUntil, s.RunUntil = during, 9_000, during+10_000
		}},
		{"chunk", stateIn(sRunning), during, newOp(queue.OpChunk), func(s *queue.State) {
			s.LeaseUntil, s.Chunks, s.Stream = 9_000, 4, 25
		}},
		{"first chunk", firstless, during, newOp(queue.OpChunk), func(s *queue.State) {
			s.LeaseUntil, s.Chunks, s.Stream, s.FirstChunk = 9_000, 1, 5, during
		}},
		{"drain", stateIn(sRunning), during, newOp(queue.OpDrain, func(o *queue.Op) { o.From, o.N, o.Bytes = 1, 1, 15 }), func(s *queue.State) {
			s.Drained, s.Stream = 2, 5
		}},
		{"finish", stateIn(sRunning), during, newOp(queue.OpFinish), func(s *queue.State) {
			s.Status, s.Finished, s.LeaseUntil, s.OutBytes = sCompleted, during, 9_000, 5
		}},
		{"release", stateIn(sRunning), during, newOp(queue.OpRelease), func(s *queue.State) {
			*s = stateIn(sQueued)
			s.Token, s.Leases, s.Lost, s.Releases, s.Returned = 7, 1, "w", 1, true // it has chunks: no late result
		}},
		{"release without chunks", firstless, during, newOp(queue.OpRelease), func(s *queue.State) {
			*s = stateReturned()
			s.Leases = 1
		}},
		{"no result without chunks", firstless, during, newOp(queue.OpNoResult), func(s *queue.State) {
			*s = stateLost()
			s.Leases, s.LeaseUntil = 1, 0
		}},
		{"loss without chunks", firstless, leaseEnd, newOp(queue.OpTick), func(s *queue.State) {
			*s = stateLost()
			s.Leases, s.LeaseUntil = 1, leaseEnd.Add(queue.LoserWait)
		}},
		{"loss", stateIn(sRunning), leaseEnd, newOp(queue.OpTick), func(s *queue.State) {
			*s = stateIn(sQueued)
			s.Token, s.Deliveries, s.Lost, s.LeaseUntil, s.Leases = 7, 1, "w", leaseEnd.Add(queue.LoserWait), 1
		}},
		{"overtime", stateIn(sRunning), overtime, newOp(queue.OpTick), func(s *queue.State) {
			s.Status, s.Finished, s.Reason = sTimedOut, overtime, queue.ExecutionTimedOut
		}},
		{"adoption", stateLost(), during, newOp(queue.OpRenew, func(o *queue.Op) { o.Adopt = true }), func(s *queue.State) {
			s.Status, s.Worker, s.Lost, s.LostStarted = sRunning, "w", "", 0
			s.Started, s.LeaseUntil, s.RunUntil = started, 9_000, overtime
		}},
		{"adoption by who released", stateReturned(), during, newOp(queue.OpRenew, func(o *queue.Op) { o.Adopt, o.Token = true, 0 }), func(s *queue.State) {
			s.Status, s.Worker, s.Lost, s.LostStarted, s.Returned, s.Deliveries = sRunning, "w", "", 0, false, 1
			s.Started, s.LeaseUntil, s.RunUntil = started, 9_000, overtime
		}},
		{"recover", stateIn(sRunning), during, newOp(queue.OpRecover), func(s *queue.State) {
			*s = stateIn(sQueued)
			s.Token, s.Restarts, s.Leases = 7, 1, 1
		}},
		{"retry", stateIn(sFailed), during + 1_000, newOp(queue.OpRetry), func(s *queue.State) {
			*s = stateIn(sQueued)
			s.Token, s.Run, s.Queued, s.Leases = 7, 1, during+1_000, 1
		}},
		{"damage", stateIn(sQueued), during, newOp(queue.OpDamage), func(s *queue.State) {
			s.Status, s.Finished, s.Reason, s.InBytes = sFailed, during, queue.Damaged, 0
		}},
		{"start", func() queue.State {
			s := stateIn(sQueued)
			s.Delayed, s.Queued = true, overtime
			return s
		}(), during, newOp(queue.OpStart), func(s *queue.State) { s.Delayed, s.Queued = false, during }},
		{"set ttl", stateIn(sQueued), during, newOp(queue.OpSetTTL), func(s *queue.State) { s.Expires = 9_000 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.s
			c.change(&want)
			if _, err := c.s.Apply(c.now, &c.op); err != nil {
				t.Fatalf("Apply = %v, want nil", err)
			}
			if diff := cmp.Diff(want, c.s); diff != "" {
				t.Errorf("State (-want +got):\n%s", diff)
			}
		})
	}
}

// drawOp makes any op, sensible or not.
func drawOp(n func(int) int, now queue.Instant) queue.Op {
	return queue.Op{
		Kind: queue.OpKind(n(int(queue.OpNoResult) + 2)), Status: queue.Status(n(8)),
		Worker: [...]queue.WorkerID{"", "v", "w"}[n(3)], Token: queue.Token(n(4)), Adopt: n(2) == 0, Begins: n(4) == 0,
		Until: now + queue.Instant(n(20_000)-1_000), Payload: make([]byte, n(100)), NoRetry: n(8) == 0,
		From: uint32(n(4)), N: uint32(n(4)), Bytes: int64(n(200)),
	}
}

// TestAnyLifeKeepsTheRules makes random moves on one job and holds what must always hold.
func TestAnyLifeKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := randomLife(200, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "draw") }); err != nil {
			t.Fatal(err)
		}
	})
	for seed := range uint64(2_000) {
		if err := randomLife(200, rand.New(rand.NewPCG(seed, 0)).IntN); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// randomLife makes moves on a job, and on a new one when it is deleted, and returns the first rule that is broken.
func randomLife(moves int, n func(int) int) error {
	now := submitted
	var s queue.State
	for range moves {
		if s.Expires == 0 { // none yet, or deleted
			s = stateIn(sQueued)
			s.Submitted, s.Queued = now, now
			s.Expires = now + 1 + queue.Instant(n(500_000))
			s.Retain, s.ExecTimeout = time.Duration(n(50_000))*time.Millisecond, time.Duration(n(30_000))*time.Millisecond
			drawPolicy(n, &s)
		}
		if n(4) == 0 {
			now += queue.Instant(n([...]int{2_000, 20_000, 2}[n(3)]))
		}
		before := s
		o := drawOp(n, now)
		eff, err := s.Apply(now, &o)
		if broken := brokenRule(now, &before, &s, &o, eff, err); broken != "" {
			return fmt.Errorf("%s: at %d, op %+v on\n%+v\nleaves, with effects %b and error %v,\n%+v", broken, now, o, before, eff, err, s)
		}
		if eff&queue.Delete != 0 {
			s = queue.State{}
		}
	}
	return nil
}

// drawPolicy draws a delay, a retry policy and a dead letter.
func drawPolicy(n func(int) int, s *queue.State) {
	if ready := s.Submitted + 1 + queue.Instant(n(20_000)); n(4) == 0 && ready < s.Expires {
		s.Queued, s.Delayed = ready, true
	}
	if n(2) == 0 {
		s.Retry = queue.RetryPolicy{
			Attempts: uint8(n(5)), Timeouts: n(2) == 0, Factor: float32(1 + n(10)), Jitter: float32(n(3)) / 2,
			Delay: time.Duration(n(3)*n(1_000)) * time.Millisecond, MaxDelay: time.Duration(n(10_000)) * time.Millisecond,
		}
	}
	s.DeadLetter = time.Duration(n(2)*n(1_000)) * time.Millisecond
}

// brokenRule names the rule that a move broke; empty for none.
func brokenRule(now queue.Instant, before, s *queue.State, o *queue.Op, eff queue.Effect, err error) string {
	tick := queue.Op{Kind: queue.OpTick}
	probe := *s
	probeEffect, _ := probe.Apply(s.Due()-1, &tick)
	ticked := *s
	tickedEffect, _ := ticked.Apply(now, &tick)
	retried := o.Kind == queue.OpRetry && err == nil && eff&queue.Delete == 0
	again, ready := eff&queue.PutAttempt != 0, before.Delayed && (o.Kind == queue.OpTick || o.Kind == queue.OpStart) && err == nil
	failed := (s.Status == queue.Failed || s.Status == queue.TimedOut) && s.Status != before.Status
	counted := before.Releases
	if !o.Untouched {
		counted = min(counted+1, queue.MostReleases)
	}
	late := o.Kind == queue.OpRelease && !o.Untouched && s.Releases >= queue.MaxReleases
	lost := (before.Status == queue.InProgress || before.Lost != "" && o.Adopt) && s.Status == queue.InQueue && eff&queue.PutLease != 0
	removed := o.Kind == queue.OpDelete && err == nil && before.Status.Terminal()
	switch {
	case err != nil && *s != *before:
		return "an error changes nothing"
	case err != nil && eff&^(queue.Delete|queue.EvDone|queue.EvStop) != 0:
		return "an error writes nothing"
	case *s != *before && eff&queue.Put == 0:
		return "a changed state is written"
	case eff&queue.Delete != 0 && (!before.Gone(now) && !removed || *s != *before):
		return "only what is gone, or was ended and is removed, is deleted, as it is"
	case before.Gone(now) && eff&queue.Delete == 0:
		return "what is gone is deleted by whoever finds it"
	case before.Status.Terminal() && s.Status != before.Status && !retried:
		return "a job that has ended stays as it is but for a retry"
	case retried && (s.Status != queue.InQueue || s.Run != before.Run+1 || s.Expires != before.Expires || eff&queue.NewSeq == 0):
		return "a retry queues another run at the end, with the same ttl"
	case eff&queue.NewSeq != 0 && !retried && !again && !ready && !late:
		return "only a retry, another attempt, the end of a delay and the tenth release have a new place in the queue"
	case lost && !retried && !again && s.Deliveries == 0 && s.Releases == 0 && s.Restarts == 0 && !o.Untouched:
		return "a lease that ends is counted"
	case lost && o.Kind == queue.OpRelease && s.Releases != counted:
		return "a release is counted as one, unless the job is untouched"
	case lost && (o.Kind == queue.OpTick || o.Kind == queue.OpWorkerLost || o.Kind == queue.OpNoResult) && !again && s.Deliveries < max(before.Deliveries, 1):
		return "a loss is a delivery"
	case before.Lost != "" && before.Status == queue.InQueue && s.Status == queue.InProgress && o.Kind != queue.OpClaim && !o.Begins && (s.Started != before.LostStarted || now >= s.RunUntil):
		return "a job that its loser takes up again has the times of the lease that did the work"
	case again && (s.Status != queue.InQueue || s.Attempt != before.Attempt+1 || s.Attempt >= s.Retry.Attempts || s.Run != before.Run || s.Deliveries != 0 || s.Lost != ""):
		return "another attempt follows one that has ended, up to the number of the policy, and has all its deliveries"
	case again && (o.NoRetry && o.Kind == queue.OpFinish || before.Read || before.Drained > 0):
		return "no attempt follows where the worker says so, or where a chunk was read"
	case again && (eff&queue.Requeued == 0 || eff&(queue.PutOutbox|queue.EvDone|queue.PutOutput|queue.PutDead) != 0):
		return "an attempt that another one follows is no end"
	case again && (s.Queued < now || s.Queued >= s.Expires || s.Queued.Sub(now) > s.Retry.MaxDelay || s.Delayed != (s.Queued > now)):
		return "another attempt is ready at the end of its delay, within the ttl"
	case !again && !retried && s.Attempt != before.Attempt, retried && s.Attempt != 0:
		return "an attempt is counted once, and those of a run"
	case s.Delayed && (s.Status != queue.InQueue || s.Queued <= s.Submitted):
		return "only a queued job is delayed"
	case s.Delayed != before.Delayed && before.Delayed && s.Status == queue.InQueue && (now < s.Queued || eff&queue.EvReady == 0 || eff&queue.NewSeq == 0):
		return "a job is ready at the end of its delay, at the end of the queue"
	case before.Delayed && s.Status == queue.InProgress:
		return "a delayed job is claimed by nobody"
	case (eff&queue.PutDead != 0) != (failed && s.DeadLetter > 0):
		return "a job that has failed for good leaves a dead letter, if there is to be one"
	case (eff&queue.DropDead != 0) != (s.Status == queue.Completed && before.Status != queue.Completed && s.Run > 0 && s.DeadLetter > 0):
		return "the dead letter of a job goes when a retry of it completes"
	case eff&queue.DropInput != 0 && s.Reason != queue.Damaged, s.Reason == queue.Damaged && s.Status != queue.Failed:
		return "a job without an input has failed, and says why"
	case s.Status > queue.TimedOut:
		return "the statuses are six"
	case s.Status.Terminal() != (s.Finished != 0):
		return "a job has a time of its end when it has ended, and only then"
	case s.Status == queue.InQueue && (s.Worker != "" || s.Started != 0 || s.Chunks != 0 || s.Stream != 0):
		return "a queued job has no worker and nothing of a run"
	case s.Status == queue.InProgress && (s.Started == 0 || s.RunUntil != s.Started.Add(s.ExecTimeout)):
		return "a running job has a worker, a start and an end of its time"
	case s.Deliveries > queue.MaxDeliveries || s.Status == queue.InProgress && s.Deliveries == 0:
		return "a running job was delivered 1 to MaxDeliveries times"
	case before.Barred() != "" && o.Kind == queue.OpClaim && o.Worker == before.Lost && err == nil:
		return "a job is not claimed by the worker for which it is barred"
	case s.Barred() != "" && s.LeaseUntil > now.Add(queue.LoserWait):
		return "a job is barred for nobody for longer than LoserWait"
	case s.Drained > s.Chunks:
		return "no more is drained than there is"
	case s.Status.Terminal() && !before.Status.Terminal() && (eff&queue.EvDone == 0 || eff&queue.PutOutbox == 0):
		return "an end is told, and its webhook is written with it"
	case s.Status == queue.InQueue && before.Status != queue.InQueue && ((eff&queue.EvReady == 0) != s.Delayed || eff&queue.DropOutput == 0):
		return "a job that is queued again is told, and its output void"
	case probeEffect != 0 || probe != *s:
		return "Due is a lower bound of the next instant at which a tick does something"
	case eff&queue.Delete == 0 && s.Due() <= now && tickedEffect == 0:
		return "at Due a tick does something, so that a sweep gets on"
	}
	return ""
}

// FuzzApplyIsTotal: whatever a state holds and whatever is asked of it, there is an answer.
func FuzzApplyIsTotal(f *testing.F) {
	f.Add(uint64(1), uint8(0), int64(1000))
	f.Add(uint64(2), uint8(200), int64(-1))
	f.Fuzz(func(t *testing.T, seed uint64, kind uint8, now int64) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := queue.State{
			Status: queue.Status(r.IntN(7)), Flags: queue.Flags(r.IntN(8)), Deliveries: uint8(r.Uint32()), Restarts: uint8(r.Uint32()),
			Token: queue.Token(r.IntN(3)), Worker: [...]queue.WorkerID{"", "w"}[r.IntN(2)], Lost: [...]queue.WorkerID{"", "w"}[r.IntN(2)],
			Finished: queue.Instant(r.Int64()), LeaseUntil: queue.Instant(r.Int64()), RunUntil: queue.Instant(r.Int64()),
			Expires: queue.Instant(r.Int64()), Chunks: r.Uint32(), Drained: r.Uint32(), Stream: r.Int64(),
			Attempt: uint8(r.Uint32()), Delayed: r.IntN(2) == 0, Read: r.IntN(2) == 0, Queued: queue.Instant(r.Int64()),
			Terms: queue.Terms{
				ExecTimeout: time.Duration(r.Int64()), Retain: time.Duration(r.Int64()), DeadLetter: time.Duration(r.Int64()),
				Retry: queue.RetryPolicy{
					Attempts: uint8(r.Uint32()), Timeouts: r.IntN(2) == 0, Factor: r.Float32() * 1e30, Jitter: r.Float32(),
					Delay: time.Duration(r.Int64()), MaxDelay: time.Duration(r.Int64()),
				},
			},
		}
		before := s
		o := drawOp(r.IntN, queue.Instant(now))
		o.Kind = queue.OpKind(kind)
		if _, err := s.Apply(queue.Instant(now), &o); err != nil && s != before {
			t.Errorf("op %+v = %v, and the state is another (-before +after):\n%s", o, err, cmp.Diff(before, s))
		}
	})
}

// A point in time and a span are two types, and what a span has below the millisecond
// does not count.
func TestInstantsAndSpans(t *testing.T) {
	if got := started.Add(1999 * time.Microsecond); got != started+1 {
		t.Errorf("1.999 ms after %d is %d, want %d", started, got, started+1)
	}
	if got := overtime.Sub(started); got != 10*time.Second {
		t.Errorf("from %d to %d there are %v, want 10s", started, overtime, got)
	}
	for name, c := range map[string]struct {
		state     queue.State
		wait, run time.Duration
	}{
		"queued":                        {queue.State{Queued: 1000}, 0, 0},
		"running":                       {queue.State{Queued: 1000, Started: 1500}, 500 * time.Millisecond, 0},
		"ended":                         {queue.State{Queued: 1000, Started: 1500, Finished: 4000}, 500 * time.Millisecond, 2500 * time.Millisecond},
		"cancelled queued":              {queue.State{Queued: 1000, Finished: 4000}, 3 * time.Second, 0},
		"clock set back":                {queue.State{Queued: 1000, Started: 900, Finished: 800}, 0, 0},
		"cancelled before it was ready": {queue.State{Queued: 9000, Finished: 4000}, 0, 0},
	} {
		j := queue.Job{State: c.state}
		if j.DelayTime() != c.wait || j.ExecutionTime() != c.run {
			t.Errorf("%s: waited %v, ran %v, want %v, %v", name, j.DelayTime(), j.ExecutionTime(), c.wait, c.run)
		}
	}
}

func TestAStatusOfAnEarlierRecordIsItsNumber(t *testing.T) {
	for text, want := range map[string]queue.Status{`"FAILED"`: queue.Failed, strconv.Itoa(int(queue.Failed)): queue.Failed, "0": queue.InQueue} {
		var s queue.Status
		if err := json.Unmarshal([]byte(text), &s); err != nil || s != want {
			t.Errorf("%s is read as %v, %v, want %v", text, s, err, want)
		}
	}
	for _, bad := range []string{`"NO"`, "99", "-1", "1.5", "null,"} {
		if err := json.Unmarshal([]byte(bad), new(queue.Status)); err == nil {
			t.Errorf("%s is read as a status", bad)
		}
	}
}
