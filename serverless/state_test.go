package serverless_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/podyard/podyard/serverless"
)

// The life of the job that the table below asks about: submitted at 1000, taken by "w"
// under token 7 at 2000 until 5000, to be run until 12000, kept until 101000 or, when it
// has ended, for 50000 more.
const (
	submitted serverless.Instant = 1_000
	started   serverless.Instant = 2_000
	during    serverless.Instant = 3_000
	leaseEnd  serverless.Instant = 5_000
	overtime  serverless.Instant = 12_000
	ended     serverless.Instant = 3_000
	expires   serverless.Instant = 101_000
)

// stateIn is that job in a status: as it is after the shortest way there.
func stateIn(s serverless.Status) serverless.State {
	j := serverless.State{
		Status: s, Flags: serverless.HasWebhook, Seq: 1, Submitted: submitted, Queued: submitted,
		Expires: expires, ExecTimeout: int64(overtime - started), Retain: 50_000,
	}
	if s != serverless.InQueue {
		j.Worker, j.Token, j.Deliveries = "w", 7, 1
		j.Started, j.LeaseUntil, j.RunUntil = started, leaseEnd, overtime
		j.Chunks, j.Drained, j.Stream = 3, 1, 20
	}
	if s.Terminal() {
		j.Finished = ended
	}
	return j
}

// stateLost is that job queued again because "w" lost it.
func stateLost() serverless.State {
	j := stateIn(serverless.InQueue)
	j.Lost, j.Token, j.Deliveries = "w", 7, 1
	return j
}

func deliveredTimes(j serverless.State, n uint8) serverless.State {
	j.Deliveries = n
	return j
}

// Effects that come together.
const (
	ends     = serverless.Put | serverless.EvDone | serverless.PutOutbox
	endsStop = ends | serverless.EvStop
	requeue  = serverless.Put | serverless.DropOutput | serverless.EvReady
	loss     = requeue | serverless.Requeued | serverless.EvStop
	stays    = serverless.Effect(0)
)

var (
	errLease  error = serverless.ErrLeaseLost
	errStatus error = serverless.ErrStatus
	errGone   error = serverless.ErrNotFound
)

// An answer is what one op does to the job in one status.
type answer struct {
	status serverless.Status
	effect serverless.Effect
	err    error
}

const (
	sQueued    = serverless.InQueue
	sRunning   = serverless.InProgress
	sCompleted = serverless.Completed
	sFailed    = serverless.Failed
	sCancelled = serverless.Cancelled
	sTimedOut  = serverless.TimedOut
)

// everywhere is the answer that leaves a job in any status as it is.
func everywhere(eff serverless.Effect, err error) [6]answer {
	var list [6]answer
	for s := range list {
		list[s] = answer{serverless.Status(s), eff, err}
	}
	return list
}

// but is list with other answers in some statuses.
func but(list [6]answer, other map[serverless.Status]answer) [6]answer {
	for s, a := range other {
		list[s] = a
	}
	return list
}

// heldOnly is an op that only the worker with the lease may do.
func heldOnly(a answer) [6]answer {
	return but(everywhere(stays, errLease), map[serverless.Status]answer{sRunning: a})
}

func opOf(k serverless.OpKind, change ...func(*serverless.Op)) serverless.Op {
	o := serverless.Op{Kind: k, Worker: "w", Token: 7, Until: 9_000, Status: sCompleted, Payload: []byte("12345")}
	for _, f := range change {
		f(&o)
	}
	return o
}

// TestEveryOpInEveryStatus is the state machine as a table (section 3.2, decisions 26 to
// 28): for every move the answer in IN_QUEUE, IN_PROGRESS, COMPLETED, FAILED, CANCELLED and
// TIMED_OUT, at an instant at which the lease holds and nothing is over.
func TestEveryOpInEveryStatus(t *testing.T) {
	const put = serverless.Put
	for _, c := range []struct {
		name string
		op   serverless.Op
		want [6]answer
	}{
		{"claim", opOf(serverless.OpClaim, func(o *serverless.Op) { o.Token = 8 }),
			but(everywhere(stays, errStatus), map[serverless.Status]answer{sQueued: {sRunning, put, nil}})},
		{"renew", opOf(serverless.OpRenew), heldOnly(answer{sRunning, put, nil})},
		{"renew without a token", opOf(serverless.OpRenew, func(o *serverless.Op) { o.Token = 0 }), heldOnly(answer{sRunning, put, nil})},
		{"renew under another token", opOf(serverless.OpRenew, func(o *serverless.Op) { o.Token = 6 }), everywhere(stays, errLease)},
		{"renew of another worker", opOf(serverless.OpRenew, func(o *serverless.Op) { o.Worker = "x" }), everywhere(stays, errLease)},
		{"renew of nobody", opOf(serverless.OpRenew, func(o *serverless.Op) { o.Worker, o.Token = "", 0 }), everywhere(stays, errLease)},
		{"renew that may adopt", opOf(serverless.OpRenew, func(o *serverless.Op) { o.Adopt = true }), heldOnly(answer{sRunning, put, nil})},
		{"complete", opOf(serverless.OpFinish), heldOnly(answer{sCompleted, ends | serverless.PutOutput, nil})},
		{"fail", opOf(serverless.OpFinish, func(o *serverless.Op) { o.Status = sFailed }), heldOnly(answer{sFailed, ends | serverless.PutOutput, nil})},
		{"finish as something else", opOf(serverless.OpFinish, func(o *serverless.Op) { o.Status = sQueued }), everywhere(stays, errStatus)},
		{"release", opOf(serverless.OpRelease), heldOnly(answer{sQueued, requeue, nil})},
		{"chunk", opOf(serverless.OpChunk), heldOnly(answer{sRunning, put | serverless.AddChunk | serverless.EvChunk, nil})},
		{"chunk too many", opOf(serverless.OpChunk, func(o *serverless.Op) { o.Payload = make([]byte, serverless.MaxStream) }),
			heldOnly(answer{sRunning, stays, serverless.ErrStreamFull})},
		{"progress", opOf(serverless.OpProgress), heldOnly(answer{sRunning, put | serverless.PutOutput, nil})},
		{"drain", opOf(serverless.OpDrain, func(o *serverless.Op) { o.From, o.N, o.Bytes = 1, 2, 20 }),
			but(everywhere(put|serverless.DropChunks, nil), map[serverless.Status]answer{sQueued: {sQueued, stays, nil}})},
		{"drain from elsewhere", opOf(serverless.OpDrain, func(o *serverless.Op) { o.From, o.N = 0, 1 }), everywhere(stays, nil)},
		{"drain of too many", opOf(serverless.OpDrain, func(o *serverless.Op) { o.From, o.N = 1, 3 }), everywhere(stays, nil)},
		{"drain of another lease", opOf(serverless.OpDrain, func(o *serverless.Op) { o.From, o.N, o.Token = 1, 1, 6 }), everywhere(stays, nil)},
		{"cancel", opOf(serverless.OpCancel),
			but(everywhere(stays, nil), map[serverless.Status]answer{sQueued: {sCancelled, ends, nil}, sRunning: {sCancelled, endsStop, nil}})},
		{"purge", opOf(serverless.OpPurge),
			but(everywhere(stays, errStatus), map[serverless.Status]answer{sQueued: {sCancelled, ends, nil}})},
		{"retry", opOf(serverless.OpRetry),
			but(everywhere(stays, errStatus), map[serverless.Status]answer{
				sFailed: {sQueued, requeue | serverless.NewSeq, nil}, sTimedOut: {sQueued, requeue | serverless.NewSeq, nil}})},
		{"set ttl", opOf(serverless.OpSetTTL), everywhere(put, nil)},
		{"tick", opOf(serverless.OpTick), everywhere(stays, nil)},
		{"recover", opOf(serverless.OpRecover),
			but(everywhere(stays, nil), map[serverless.Status]answer{sRunning: {sQueued, requeue, nil}})},
		{"lose", opOf(serverless.OpLose), heldOnly(answer{sQueued, loss, nil})},
		{"lose of another worker", opOf(serverless.OpLose, func(o *serverless.Op) { o.Worker = "x" }), everywhere(stays, errLease)},
		{"redeliver", opOf(serverless.OpRedeliver),
			but(everywhere(serverless.PutOutbox, nil), map[serverless.Status]answer{sQueued: {sQueued, stays, errStatus}, sRunning: {sRunning, stays, errStatus}})},
		{"damage", opOf(serverless.OpDamage),
			but(everywhere(stays, errStatus), map[serverless.Status]answer{sQueued: {sFailed, ends | serverless.DropInput, nil}})},
		{"an unknown op", opOf(200), everywhere(stays, errStatus)},
	} {
		for s, want := range c.want {
			checkMove(t, c.name, stateIn(serverless.Status(s)), during, c.op, want)
		}
	}
}

// TestOpsAtTheEdges is what the table leaves out: when something is over, and what a job
// remembers.
func TestOpsAtTheEdges(t *testing.T) {
	adopt := func(o *serverless.Op) { o.Adopt = true }
	third := deliveredTimes(stateIn(sRunning), serverless.MaxDeliveries)
	ninth := stateIn(sRunning)
	ninth.Restarts = serverless.MaxRestarts - 1
	plain := stateIn(sRunning)
	plain.Flags = 0
	damaged := stateIn(sFailed)
	damaged.Reason = serverless.Damaged
	for _, c := range []struct {
		name string
		s    serverless.State
		now  serverless.Instant
		op   serverless.Op
		want answer
	}{
		{"no webhook, no entry", plain, during, opOf(serverless.OpFinish), answer{sCompleted, serverless.Put | serverless.EvDone | serverless.PutOutput, nil}},
		{"the lease holds to its last ms", stateIn(sRunning), leaseEnd - 1, opOf(serverless.OpFinish), answer{sCompleted, ends | serverless.PutOutput, nil}},
		{"the lease is over, unswept", stateIn(sRunning), leaseEnd, opOf(serverless.OpFinish), answer{sRunning, stays, errLease}},
		{"the lease is over, adopted", stateIn(sRunning), leaseEnd, opOf(serverless.OpFinish, adopt), answer{sCompleted, ends | serverless.PutOutput, nil}},
		{"the run is over, adopted", stateIn(sRunning), overtime, opOf(serverless.OpFinish, adopt), answer{sRunning, stays, errLease}},
		{"tick before the lease is over", stateIn(sRunning), leaseEnd - 1, opOf(serverless.OpTick), answer{sRunning, stays, nil}},
		{"tick when the lease is over", stateIn(sRunning), leaseEnd, opOf(serverless.OpTick), answer{sQueued, loss, nil}},
		{"tick when the last lease is over", third, leaseEnd, opOf(serverless.OpTick), answer{sFailed, ends | serverless.EvStop, nil}},
		{"tick when the run is over", stateIn(sRunning), overtime, opOf(serverless.OpTick), answer{sTimedOut, endsStop, nil}},
		{"tick when the last run is over", third, overtime, opOf(serverless.OpTick), answer{sTimedOut, endsStop, nil}},
		{"the third worker is lost", third, during, opOf(serverless.OpLose), answer{sFailed, ends | serverless.EvStop, nil}},
		{"the tenth restart", ninth, during, opOf(serverless.OpRecover), answer{sFailed, ends, nil}},
		{"retry without an input", damaged, during, opOf(serverless.OpRetry), answer{sFailed, stays, serverless.ErrInputLost}},
		{"the loser claims", stateLost(), during, opOf(serverless.OpClaim), answer{sQueued, stays, errStatus}},
		{"another claims", stateLost(), during, opOf(serverless.OpClaim, func(o *serverless.Op) { o.Worker = "x" }), answer{sRunning, serverless.Put, nil}},
		{"the loser goes on", stateLost(), during, opOf(serverless.OpRenew), answer{sQueued, stays, errLease}},
		{"the loser adopts", stateLost(), during, opOf(serverless.OpRenew, adopt), answer{sRunning, serverless.Put, nil}},
		{"the loser adopts and ends", stateLost(), during, opOf(serverless.OpFinish, adopt), answer{sCompleted, ends | serverless.PutOutput, nil}},
		{"the loser adopts and hands back", stateLost(), during, opOf(serverless.OpRelease, adopt), answer{sQueued, requeue, nil}},
		{"another adopts", stateLost(), during, opOf(serverless.OpRenew, adopt, func(o *serverless.Op) { o.Worker = "x" }), answer{sQueued, stays, errLease}},
		{"nobody adopts", stateIn(sQueued), during, opOf(serverless.OpRenew, adopt, func(o *serverless.Op) { o.Worker, o.Token = "", 0 }), answer{sQueued, stays, errLease}},
		{"the retention is over", stateIn(sCompleted), ended + 50_000, opOf(serverless.OpCancel), answer{sCompleted, serverless.Delete, errGone}},
		{"the retention is over: tick", stateIn(sCompleted), ended + 50_000, opOf(serverless.OpTick), answer{sCompleted, serverless.Delete, nil}},
		{"the retention lasts to its last ms", stateIn(sCompleted), ended + 49_999, opOf(serverless.OpTick), answer{sCompleted, stays, nil}},
	} {
		checkMove(t, c.name, c.s, c.now, c.op, c.want)
	}
}

// TestPastItsTTLNothingIsFound: every op but tick and recover answers ErrNotFound, and all
// delete; who waits is told, and the worker too.
func TestPastItsTTLNothingIsFound(t *testing.T) {
	effects := [6]serverless.Effect{serverless.Delete | serverless.EvDone, serverless.Delete | serverless.EvDone | serverless.EvStop,
		serverless.Delete, serverless.Delete, serverless.Delete, serverless.Delete}
	for s, eff := range effects {
		for k := serverless.OpClaim; k <= serverless.OpDamage; k++ {
			want := answer{serverless.Status(s), eff, errGone}
			if k == serverless.OpTick || k == serverless.OpRecover {
				want.err = nil
			}
			checkMove(t, fmt.Sprintf("op %d", k), stateIn(serverless.Status(s)), expires, opOf(k), want)
		}
	}
}

func checkMove(t *testing.T, name string, s serverless.State, now serverless.Instant, o serverless.Op, want answer) {
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
	for _, c := range []struct {
		name   string
		s      serverless.State
		now    serverless.Instant
		op     serverless.Op
		change func(*serverless.State)
	}{
		{"claim", stateIn(sQueued), during, opOf(serverless.OpClaim, func(o *serverless.Op) { o.Token = 8 }), func(s *serverless.State) {
			s.Status, s.Worker, s.Token, s.Deliveries = sRunning, "w", 8, 1
			s.Started, s.LeaseUntil, s.RunUntil = during, 9_000, during+10_000
		}},
		{"renew", stateIn(sRunning), during, opOf(serverless.OpRenew), func(s *serverless.State) { s.LeaseUntil = 9_000 }},
		{"renew until earlier", stateIn(sRunning), during, opOf(serverless.OpRenew, func(o *serverless.Op) { o.Until = 4_000 }), func(*serverless.State) {}},
		{"chunk", stateIn(sRunning), during, opOf(serverless.OpChunk), func(s *serverless.State) {
			s.LeaseUntil, s.Chunks, s.Stream = 9_000, 4, 25
		}},
		{"drain", stateIn(sRunning), during, opOf(serverless.OpDrain, func(o *serverless.Op) { o.From, o.N, o.Bytes = 1, 1, 15 }), func(s *serverless.State) {
			s.Drained, s.Stream = 2, 5
		}},
		{"finish", stateIn(sRunning), during, opOf(serverless.OpFinish), func(s *serverless.State) {
			s.Status, s.Finished, s.LeaseUntil = sCompleted, during, 9_000
		}},
		{"release", stateIn(sRunning), during, opOf(serverless.OpRelease), func(s *serverless.State) {
			*s = stateIn(sQueued)
			s.Token = 7
		}},
		{"loss", stateIn(sRunning), leaseEnd, opOf(serverless.OpTick), func(s *serverless.State) {
			*s = stateIn(sQueued)
			s.Token, s.Deliveries, s.Lost = 7, 1, "w"
		}},
		{"overtime", stateIn(sRunning), overtime, opOf(serverless.OpTick), func(s *serverless.State) {
			s.Status, s.Finished, s.Reason = sTimedOut, overtime, serverless.OverTime
		}},
		{"adoption", stateLost(), during, opOf(serverless.OpRenew, func(o *serverless.Op) { o.Adopt = true }), func(s *serverless.State) {
			s.Status, s.Worker, s.Lost = sRunning, "w", ""
			s.Started, s.LeaseUntil, s.RunUntil = during, 9_000, during+10_000
		}},
		{"recover", stateIn(sRunning), during, opOf(serverless.OpRecover), func(s *serverless.State) {
			*s = stateIn(sQueued)
			s.Token, s.Restarts = 7, 1
		}},
		{"retry", stateIn(sFailed), during + 1_000, opOf(serverless.OpRetry), func(s *serverless.State) {
			*s = stateIn(sQueued)
			s.Token, s.Run, s.Queued = 7, 1, during+1_000
		}},
		{"damage", stateIn(sQueued), during, opOf(serverless.OpDamage), func(s *serverless.State) {
			s.Status, s.Finished, s.Reason = sFailed, during, serverless.Damaged
		}},
		{"set ttl", stateIn(sQueued), during, opOf(serverless.OpSetTTL), func(s *serverless.State) { s.Expires = 9_000 }},
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
func drawOp(n func(int) int, now serverless.Instant) serverless.Op {
	return serverless.Op{
		Kind: serverless.OpKind(n(int(serverless.OpDamage) + 2)), Status: serverless.Status(n(8)),
		Worker: [...]serverless.WorkerID{"", "v", "w"}[n(3)], Token: serverless.Token(n(4)), Adopt: n(2) == 0,
		Until: now + serverless.Instant(n(20_000)-1_000), Payload: make([]byte, n(100)),
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
	var s serverless.State
	for range moves {
		if s.Expires == 0 { // none yet, or deleted
			s = stateIn(sQueued)
			s.Submitted, s.Queued = now, now
			s.Expires = now + 1 + serverless.Instant(n(500_000))
			s.Retain, s.ExecTimeout = int64(n(50_000)), int64(n(30_000))
		}
		if n(4) == 0 {
			now += serverless.Instant(n([...]int{2_000, 20_000, 2}[n(3)]))
		}
		before := s
		o := drawOp(n, now)
		eff, err := s.Apply(now, &o)
		if broken := brokenRule(now, &before, &s, &o, eff, err); broken != "" {
			return fmt.Errorf("%s: at %d, op %+v on\n%+v\nleaves, with effects %b and error %v,\n%+v", broken, now, o, before, eff, err, s)
		}
		if eff&serverless.Delete != 0 {
			s = serverless.State{}
		}
	}
	return nil
}

// brokenRule names the rule that a move broke; empty for none.
func brokenRule(now serverless.Instant, before, s *serverless.State, o *serverless.Op, eff serverless.Effect, err error) string {
	tick := serverless.Op{Kind: serverless.OpTick}
	probe := *s
	probeEffect, _ := probe.Apply(s.Due()-1, &tick)
	ticked := *s
	tickedEffect, _ := ticked.Apply(now, &tick)
	retried := o.Kind == serverless.OpRetry && err == nil && eff&serverless.Delete == 0
	switch {
	case err != nil && *s != *before:
		return "an error changes nothing"
	case err != nil && eff&^(serverless.Delete|serverless.EvDone|serverless.EvStop) != 0:
		return "an error writes nothing"
	case *s != *before && eff&serverless.Put == 0:
		return "a changed state is written"
	case eff&serverless.Delete != 0 && (!before.Gone(now) || *s != *before):
		return "only what is gone is deleted, as it is"
	case before.Gone(now) && eff&serverless.Delete == 0:
		return "what is gone is deleted by whoever finds it"
	case before.Status.Terminal() && s.Status != before.Status && !retried:
		return "a job that has ended stays as it is but for a retry"
	case retried && (s.Status != serverless.InQueue || s.Run != before.Run+1 || s.Expires != before.Expires || eff&serverless.NewSeq == 0):
		return "a retry queues another run at the end, with the same ttl"
	case eff&serverless.NewSeq != 0 && !retried:
		return "only a retry has a new place in the queue"
	case eff&serverless.DropInput != 0 && s.Reason != serverless.Damaged, s.Reason == serverless.Damaged && s.Status != serverless.Failed:
		return "a job without an input has failed, and says why"
	case s.Status > serverless.TimedOut:
		return "the statuses are six"
	case s.Status.Terminal() != (s.Finished != 0):
		return "a job has a time of its end when it has ended, and only then"
	case s.Status == serverless.InQueue && (s.Worker != "" || s.Started != 0 || s.Chunks != 0 || s.Stream != 0):
		return "a queued job has no worker and nothing of a run"
	case s.Status == serverless.InProgress && (s.Started == 0 || s.RunUntil != s.Started+serverless.Instant(s.ExecTimeout)):
		return "a running job has a worker, a start and an end of its time"
	case s.Deliveries > serverless.MaxDeliveries || s.Status == serverless.InProgress && s.Deliveries == 0:
		return "a running job was delivered 1 to MaxDeliveries times"
	case s.Drained > s.Chunks:
		return "no more is drained than there is"
	case s.Status.Terminal() && !before.Status.Terminal() && (eff&serverless.EvDone == 0 || eff&serverless.PutOutbox == 0):
		return "an end is told, and its webhook is written with it"
	case s.Status == serverless.InQueue && before.Status != serverless.InQueue && (eff&serverless.EvReady == 0 || eff&serverless.DropOutput == 0):
		return "a job that is queued again is told, and its output void"
	case probeEffect != 0 || probe != *s:
		return "Due is a lower bound of the next instant at which a tick does something"
	case eff&serverless.Delete == 0 && s.Due() <= now && tickedEffect == 0:
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
		s := serverless.State{
			Status: serverless.Status(r.IntN(7)), Flags: serverless.Flags(r.IntN(8)), Deliveries: uint8(r.Uint32()), Restarts: uint8(r.Uint32()),
			Token: serverless.Token(r.IntN(3)), Worker: [...]serverless.WorkerID{"", "w"}[r.IntN(2)], Lost: [...]serverless.WorkerID{"", "w"}[r.IntN(2)],
			Finished: serverless.Instant(r.Int64()), LeaseUntil: serverless.Instant(r.Int64()), RunUntil: serverless.Instant(r.Int64()),
			Expires: serverless.Instant(r.Int64()), ExecTimeout: r.Int64(), Retain: r.Int64(), Chunks: r.Uint32(), Drained: r.Uint32(), Stream: r.Int64(),
		}
		before := s
		o := drawOp(r.IntN, serverless.Instant(now))
		o.Kind = serverless.OpKind(kind)
		if _, err := s.Apply(serverless.Instant(now), &o); err != nil && s != before {
			t.Errorf("op %+v = %v, and the state is another (-before +after):\n%s", o, err, cmp.Diff(before, s))
		}
	})
}
