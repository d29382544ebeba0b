package queue_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/serverless/queue"
)

// policy is three attempts, 2 s and 6 s apart, without jitter.
func policy() queue.RetryPolicy {
	return queue.RetryPolicy{Attempts: 3, Factor: 3, Delay: 2 * time.Second, MaxDelay: time.Minute}
}

// stateRetried is the job of stateIn with that policy, of which no chunk was read.
func stateRetried(s queue.Status) queue.State {
	j := stateIn(s)
	j.Retry, j.Drained, j.DeadLetter = policy(), 0, time.Hour
	return j
}

// stateDelayed is that job between its first two attempts: ready at 5000.
func stateDelayed() queue.State {
	j := stateRetried(queue.InQueue)
	j.Delayed, j.Queued, j.Attempt, j.Token = true, during+2_000, 1, 7
	return j
}

const (
	again     = queue.Put | queue.DropOutput | queue.PutAttempt | queue.PutLease | queue.Requeued
	endsDead  = ends | queue.PutDead
	readyNow  = queue.NewSeq | queue.EvReady
	wakesUp   = queue.Put | readyNow
	afterward = during + 2_000
)

// TestMovesOfJobsThatAreDelayedOrRetried has every op on a job that waits for its second attempt,
// and every way in which an attempt ends (docs/decisions.md 39).
func TestMovesOfJobsThatAreDelayedOrRetried(t *testing.T) {
	fails := newOp(queue.OpFinish, func(o *queue.Op) { o.Status = sFailed })
	with := func(s queue.State, change func(*queue.State)) queue.State {
		change(&s)
		return s
	}
	running := stateRetried(sRunning)
	third := deliveredTimes(running, queue.MaxDeliveries)
	timeouts := with(running, func(s *queue.State) { s.Retry.Timeouts = true })
	for _, c := range []struct {
		name string
		s    queue.State
		now  queue.Instant
		op   queue.Op
		want answer
	}{
		{"claim", stateDelayed(), during, newOp(queue.OpClaim), answer{sQueued, stays, errStatus}},
		{"claim when it is ready, unswept", stateDelayed(), afterward, newOp(queue.OpClaim), answer{sQueued, stays, errStatus}},
		{"renew", stateDelayed(), during, newOp(queue.OpRenew), answer{sQueued, stays, errLease}},
		{"renew that may adopt", stateDelayed(), during, newOp(queue.OpRenew, func(o *queue.Op) { o.Adopt = true }), answer{sQueued, stays, errLease}},
		{"finish again", stateDelayed(), during, newOp(queue.OpFinish, func(o *queue.Op) { o.Adopt = true }), answer{sQueued, stays, errLease}},
		{"release", stateDelayed(), during, newOp(queue.OpRelease), answer{sQueued, stays, errLease}},
		{"chunk", stateDelayed(), during, newOp(queue.OpChunk), answer{sQueued, stays, errLease}},
		{"progress", stateDelayed(), during, newOp(queue.OpProgress), answer{sQueued, stays, errLease}},
		{"drain", stateDelayed(), during, newOp(queue.OpDrain, func(o *queue.Op) { o.N = 1 }), answer{sQueued, stays, nil}},
		{"cancel", stateDelayed(), during, newOp(queue.OpCancel), answer{sCancelled, ends, nil}},
		{"purge", stateDelayed(), during, newOp(queue.OpPurge), answer{sCancelled, ends, nil}},
		{"retry", stateDelayed(), during, newOp(queue.OpRetry), answer{sQueued, stays, errStatus}},
		{"set ttl", stateDelayed(), during, newOp(queue.OpSetTTL), answer{sQueued, queue.Put, nil}},
		{"tick before it is ready", stateDelayed(), afterward - 1, newOp(queue.OpTick), answer{sQueued, stays, nil}},
		{"tick when it is ready", stateDelayed(), afterward, newOp(queue.OpTick), answer{sQueued, wakesUp, nil}},
		{"tick after its ttl", stateDelayed(), expires, newOp(queue.OpTick), answer{sQueued, queue.Delete | queue.EvDone, nil}},
		{"recover", stateDelayed(), during, newOp(queue.OpRecover), answer{sQueued, stays, nil}},
		{"lose", stateDelayed(), during, newOp(queue.OpWorkerLost), answer{sQueued, stays, errLease}},
		{"redeliver", stateDelayed(), during, newOp(queue.OpRedeliver), answer{sQueued, stays, errStatus}},
		{"damage", stateDelayed(), during, newOp(queue.OpDamage), answer{sFailed, endsDead | queue.DropInput, nil}},

		{"an attempt fails", running, during, fails, answer{sQueued, again, nil}},
		{"the last attempt fails", with(running, func(s *queue.State) { s.Attempt = 2 }), during, fails, answer{sFailed, endsDead | queue.PutOutput, nil}},
		{"the worker says that no other would help", running, during, newOp(queue.OpFinish, func(o *queue.Op) { o.Status, o.NoRetry = sFailed, true }), answer{sFailed, endsDead | queue.PutOutput, nil}},
		{"a chunk was read", with(running, func(s *queue.State) { s.Read = true }), during, fails, answer{sFailed, endsDead | queue.PutOutput, nil}},
		{"it completes", running, during, newOp(queue.OpFinish), answer{sCompleted, ends | queue.PutOutput, nil}},
		{"it completes, and says no more", running, during, newOp(queue.OpFinish, func(o *queue.Op) { o.NoRetry = true }), answer{sCompleted, ends | queue.PutOutput, nil}},
		{"the next would be ready at the ttl", with(running, func(s *queue.State) { s.Expires = afterward }), during, fails, answer{sFailed, endsDead | queue.PutOutput, nil}},
		{"the next is ready before the ttl", with(running, func(s *queue.State) { s.Expires = afterward + 1 }), during, fails, answer{sQueued, again, nil}},
		{"without a delay", with(running, func(s *queue.State) { s.Retry.Delay = 0 }), during, fails, answer{sQueued, again | readyNow, nil}},
		{"the adopted attempt fails", with(stateLost(), func(s *queue.State) { s.Retry = policy() }), during, newOp(queue.OpFinish, func(o *queue.Op) { o.Status, o.Adopt = sFailed, true }), answer{sQueued, again, nil}},
		{"a worker is lost", running, leaseEnd, newOp(queue.OpTick), answer{sQueued, loss, nil}},
		{"the third worker is lost", third, during, newOp(queue.OpWorkerLost), answer{sQueued, again | queue.EvStop, nil}},
		{"the third lease is over", third, leaseEnd, newOp(queue.OpTick), answer{sQueued, again | queue.EvStop, nil}},
		{"the run is over", running, overtime, newOp(queue.OpTick), answer{sTimedOut, endsDead | queue.EvStop, nil}},
		{"the run is over, with timeouts", timeouts, overtime, newOp(queue.OpTick), answer{sQueued, again | queue.EvStop, nil}},
		{"the tenth restart", with(running, func(s *queue.State) { s.Restarts = queue.MaxRestarts - 1 }), during, newOp(queue.OpRecover), answer{sFailed, endsDead, nil}},
		{"cancel while it runs", running, during, newOp(queue.OpCancel), answer{sCancelled, endsStop, nil}},
	} {
		checkMove(t, c.name, c.s, c.now, c.op, c.want)
	}
}

func TestWhatTheMovesOfAnAttemptLeave(t *testing.T) {
	failed := stateRetried(sRunning)
	failed.Restarts, failed.Lost = 3, "v"
	for _, c := range []struct {
		name   string
		s      queue.State
		now    queue.Instant
		op     queue.Op
		change func(*queue.State)
	}{
		{"an attempt fails", failed, during, newOp(queue.OpFinish, func(o *queue.Op) { o.Status = sFailed }), func(s *queue.State) {
			*s = stateDelayed()
			s.Restarts, s.Leases = 3, 1
		}},
		{"it is ready", stateDelayed(), afterward + 10, newOp(queue.OpTick), func(s *queue.State) { s.Delayed = false }},
		{"it is cancelled", stateDelayed(), during, newOp(queue.OpCancel), func(s *queue.State) {
			s.Status, s.Finished, s.Delayed = sCancelled, during, false
		}},
		{"a chunk is read", stateRetried(sRunning), during, newOp(queue.OpDrain, func(o *queue.Op) { o.N, o.Bytes = 1, 5 }), func(s *queue.State) {
			s.Drained, s.Stream, s.Read = 1, 15, true
		}},
		{"the user retries", func() queue.State {
			s := stateRetried(sFailed)
			s.Attempt, s.Read, s.Queued = 2, true, 1_500
			return s
		}(), during, newOp(queue.OpRetry), func(s *queue.State) {
			*s = stateRetried(sQueued)
			s.Token, s.Run, s.Queued, s.Leases = 7, 1, during, 1
		}},
	} {
		want := c.s
		c.change(&want)
		if _, err := c.s.Apply(c.now, &c.op); err != nil {
			t.Fatalf("%s: Apply = %v, want nil", c.name, err)
		}
		if diff := cmp.Diff(want, c.s); diff != "" {
			t.Errorf("%s: State (-want +got):\n%s", c.name, diff)
		}
	}
}

// fail ends attempt n+1 of the job with this id and returns the delay until the next one.
func fail(id queue.JobID, n uint8, p queue.RetryPolicy) time.Duration {
	s := stateRetried(sRunning)
	s.Retry, s.Attempt, s.Expires = p, n, 1<<50
	op := newOp(queue.OpFinish, func(o *queue.Op) { o.Status, o.ID = sFailed, id })
	_, _ = s.Apply(during, &op)
	return s.Queued.Sub(during)
}

func TestADelayGrowsByTheFactorUpToMaxDelay(t *testing.T) {
	p := queue.RetryPolicy{Attempts: queue.MaxAttempts, Factor: 1.5, Delay: time.Second, MaxDelay: 5 * time.Second}
	var got []time.Duration
	for n := range uint8(queue.MaxAttempts - 1) {
		got = append(got, fail("a", n, p))
	}
	want := []time.Duration{time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond, 3375 * time.Millisecond}
	for len(want) < len(got) {
		want = append(want, 5*time.Second)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	p = queue.RetryPolicy{Attempts: queue.MaxAttempts, Factor: queue.MaxFactor, Jitter: 1, MaxDelay: queue.MaxTTL}
	if got := fail("a", queue.MaxAttempts-2, p); got != 0 {
		t.Errorf("the delay of a policy without one is %v, want 0", got)
	}
	p.Delay = queue.MaxTTL
	if got := fail("a", queue.MaxAttempts-2, p); got < 0 || got > queue.MaxTTL {
		t.Errorf("the longest delay is %v, want at most maxDelay", got)
	}
}

func TestJitterSpreadsTheDelaysOfJobsThatFailTogether(t *testing.T) {
	p := queue.RetryPolicy{Attempts: 20, Factor: 1, Jitter: 0.5, Delay: time.Second, MaxDelay: time.Minute}
	const n = 2000
	buckets, sum := map[time.Duration]int{}, 0.0
	for i := range n {
		id := queue.JobID("job-" + string(rune('a'+i%26)) + strings.Repeat("x", i/26%40) + string(rune('0'+i/1040)))
		d := fail(id, uint8(i%19), p)
		if again := fail(id, uint8(i%19), p); again != d {
			t.Fatalf("the delay of one attempt is %v and %v, want the same", d, again)
		}
		if d < 500*time.Millisecond || d > time.Second {
			t.Fatalf("a delay of 1 s with a jitter of half of it is %v", d)
		}
		buckets[d/(50*time.Millisecond)]++
		sum += d.Seconds()
	}
	if mean := sum / n; math.Abs(mean-0.75) > 0.02 || len(buckets) < 10 {
		t.Errorf("%d delays have a mean of %.3f s in %d parts of 50 ms, want 0.75 in 10", n, mean, len(buckets))
	}
	for part, hits := range buckets {
		if hits < n/20 && part < 20 {
			t.Errorf("%d of %d delays are from %v on, want about %d", hits, n, part*50*time.Millisecond, n/10)
		}
	}
}

func TestTheLogOfAttemptsSaysHowEachEnded(t *testing.T) {
	running := stateRetried(sRunning)
	running.Retry.Timeouts = true
	third := deliveredTimes(running, queue.MaxDeliveries)
	lost := stateLost()
	lost.Retry = policy()
	long := strings.Repeat("x", queue.MaxAttemptError-1) + "ä"
	for _, c := range []struct {
		name string
		s    queue.State
		now  queue.Instant
		op   queue.Op
		want queue.JobAttempt
	}{
		{"it failed", running, during, newOp(queue.OpFinish, func(o *queue.Op) { o.Status, o.Error = sFailed, "no\xff" }),
			queue.JobAttempt{Status: sFailed, Error: "no\uFFFD", Worker: "w", Started: started, Finished: during}},
		{"it failed with a long text", running, during, newOp(queue.OpFinish, func(o *queue.Op) { o.Status, o.Error = sFailed, long }),
			queue.JobAttempt{Status: sFailed, Error: long[:len(long)-2], Worker: "w", Started: started, Finished: during}},
		{"the loser adopted it and failed", lost, during, newOp(queue.OpFinish, func(o *queue.Op) { o.Status, o.Error, o.Adopt = sFailed, "no", true }),
			queue.JobAttempt{Status: sFailed, Error: "no", Worker: "w", Started: started, Finished: during}},
		{"its third worker was lost", third, leaseEnd, newOp(queue.OpTick),
			queue.JobAttempt{Status: sFailed, Error: "worker lost: the job was given to workers 3 times and none of them reported a result", Worker: "w", Started: started, Finished: leaseEnd}},
		{"its third worker says goodbye", third, during, newOp(queue.OpWorkerLost),
			queue.JobAttempt{Status: sFailed, Error: "worker lost: the job was given to workers 3 times and none of them reported a result", Worker: "w", Started: started, Finished: during}},
		{"its third worker was killed", third, during, newOp(queue.OpWorkerLost, func(o *queue.Op) { o.Error = "it was killed" }),
			queue.JobAttempt{Status: sFailed, Error: "worker lost: the job was given to workers 3 times and none of them reported a result; the last one: it was killed", Worker: "w", Started: started, Finished: during}},
		{"it took too long", running, overtime + 5, newOp(queue.OpTick),
			queue.JobAttempt{Status: sTimedOut, Error: "execution timeout: the job ran longer than 10000 ms", Worker: "w", Started: started, Finished: overtime + 5}},
	} {
		after := c.s
		eff, err := after.Apply(c.now, &c.op)
		if err != nil || eff&queue.PutAttempt == 0 {
			t.Fatalf("%s: Apply = %b, %v, want another attempt", c.name, eff, err)
		}
		c.want.Number, c.want.Delay = 1, 2*time.Second
		if diff := cmp.Diff(c.want, c.s.EndedAttempt(c.now, &after, &c.op)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
