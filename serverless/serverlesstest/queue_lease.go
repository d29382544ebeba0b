package serverlesstest

import (
	"time"

	"github.com/podyard/podyard/serverless"
)

func until(i serverless.Instant) func(*serverless.Op) {
	return func(op *serverless.Op) { op.Until = i }
}

func leaseCases() []QueueCase {
	return []QueueCase{
		rule("ALeaseEnds",
			"a job whose lease ended is queued again by Expire, counted as retried, and its worker refused",
			func(k *kit) {
				j := k.run()
				k.now += lease - 1
				k.expire()
				k.status(j, serverless.InProgress)
				k.now++
				k.expire()
				got := k.status(j, serverless.InQueue)
				want := j
				want.Status, want.Worker, want.Lost = serverless.InQueue, "", "w"
				want.Started, want.LeaseUntil, want.RunUntil = 0, 0, 0
				k.equal("the job", want, got)
				k.equal("Retried", int64(1), k.stats(echo).Retried)
				k.refuse(done(j, "1"), serverless.ErrLeaseLost)
			}),
		rule("ALeaseThatEndedIsLostAtOnce",
			"a worker whose lease ended cannot act under it, also when nobody has swept",
			func(k *kit) {
				j := k.run()
				k.now += lease
				for _, op := range []serverless.Op{done(j, "1"), chunk(j, "1"), as(j, serverless.OpRenew, until(k.now+lease)), as(j, serverless.OpRelease)} {
					k.refuse(op, serverless.ErrLeaseLost)
				}
			}),
		rule("RenewMovesTheLease",
			"a renewed lease lasts until the later instant, however often it is renewed",
			func(k *kit) {
				j := k.run()
				for range 20 {
					k.wait(20 * time.Second)
					s := k.must(as(j, serverless.OpRenew, until(k.now+lease)))
					k.equal("LeaseUntil", k.now+lease, s.LeaseUntil)
					k.expire()
					k.status(j, serverless.InProgress)
				}
				k.now += lease
				k.expire()
				k.status(j, serverless.InQueue)
			}),
		rule("RenewNeverShortens",
			"a renewal until an earlier instant leaves the lease as it is",
			func(k *kit) {
				j := k.run()
				k.must(as(j, serverless.OpRenew, until(k.now+10)))
				k.now += lease - 1
				k.expire()
				k.status(j, serverless.InProgress)
			}),
		rule("ChunksAndProgressRenew",
			"what a worker reports moves its lease as well",
			func(k *kit) {
				j := k.run()
				k.now += lease - 1
				op := chunk(j, "1")
				op.Until = k.now + lease
				k.must(op)
				k.now += lease - 1
				k.expire()
				k.must(as(j, serverless.OpProgress, until(k.now+lease)))
				k.now += lease - 1
				k.expire()
				k.status(j, serverless.InProgress)
			}),
		rule("ExpireSaysWhenNext",
			"Expire returns an instant that is not later than the next thing that is due, 0 when nothing is scheduled",
			func(k *kit) {
				k.equal("next of an empty queue", serverless.Instant(0), k.expire())
				j := k.run()
				for range 1000 {
					next := k.expire()
					if next == 0 || next > j.LeaseUntil {
						k.Fatalf("next = %d, want at most %d, the end of the lease", next, j.LeaseUntil)
					}
					k.now = next
					if k.get(j).Status == serverless.InQueue || next == j.LeaseUntil {
						k.expire()
						k.status(j, serverless.InQueue)
						return
					}
				}
				k.Errorf("Expire was called 1000 times before the lease ended")
			}),
		rule("ExpireDoesAsMuchAsItIsTold",
			"Expire ticks limit jobs at most and says that there is more",
			func(k *kit) {
				k.addN(10)
				k.claim(k.slot("w", 10))
				k.now += lease
				for round := 1; ; round++ {
					before := k.stats(echo).Queued
					next, err := k.q.Expire(k.Context(), k.now, 3)
					if err != nil {
						k.Fatalf("Expire = %v, want nil", err)
					}
					queued := k.stats(echo).Queued
					if queued-before > 3 {
						k.Errorf("Expire with limit 3 moved %d jobs", queued-before)
					}
					if next == 0 || next > k.now {
						k.equal("jobs queued when Expire says that nothing is due", int64(10), queued)
						return
					}
					if round > 1000 {
						k.Fatalf("Expire says 1000 times that there is more")
					}
				}
			}),
		rule("ReleaseIsNotCounted",
			"a job that is handed back is no delivery and not retried, and its worker may have it again",
			func(k *kit) {
				first := k.add()
				for range 2 * serverless.MaxDeliveries {
					j := k.take("w")
					k.equal("Deliveries", uint8(1), j.Deliveries)
					s := k.must(as(j, serverless.OpRelease))
					k.equal("Deliveries", uint8(0), s.Deliveries)
				}
				k.status(first, serverless.InQueue)
				k.equal("Retried", int64(0), k.stats(echo).Retried)
			}),
		rule("ThreeDeliveries",
			"a job that MaxDeliveries workers lost is FAILED and says why; two losses are not enough",
			func(k *kit) {
				j := k.add()
				for i := range serverless.MaxDeliveries {
					k.status(j, serverless.InQueue)
					k.equal("Deliveries", uint8(i+1), k.take(serverless.WorkerID(rune('a'+i))).Deliveries)
					k.now += lease
					k.expire()
				}
				got := k.status(j, serverless.Failed)
				k.equal("Reason, Finished", []any{serverless.WorkersLost, k.now}, []any{got.Reason, got.Finished})
				if got.ErrorText() == "" {
					k.Errorf("ErrorText is empty, want what happened")
				}
				st := k.stats(echo)
				k.equal("Failed, Retried", []int64{1, serverless.MaxDeliveries - 1}, []int64{st.Failed, st.Retried})
			}),
		rule("AWorkerThatIsGoneLoses",
			"OpLose ends the lease of the worker it names at once, as if its time were over, and no other lease",
			func(k *kit) {
				j := k.run()
				k.refuse(serverless.Op{Ref: j.Ref, Kind: serverless.OpLose, Worker: "other"}, serverless.ErrLeaseLost)
				k.must(serverless.Op{Ref: j.Ref, Kind: serverless.OpLose, Worker: "w"})
				got := k.status(j, serverless.InQueue)
				k.equal("Lost", serverless.WorkerID("w"), got.Lost)
				k.equal("Retried", int64(1), k.stats(echo).Retried)
				k.refuse(done(j, "1"), serverless.ErrLeaseLost)
			}),
		rule("TheLoserAdopts",
			"the worker that lost a job may finish it, if it says so, while nobody else has it",
			func(k *kit) {
				j := k.run()
				k.now += lease
				k.expire()
				k.refuse(done(j, "1"), serverless.ErrLeaseLost)
				other := adopting(done(j, "2"))
				other.Worker, other.Token = "other", 0
				k.refuse(other, serverless.ErrLeaseLost)
				k.must(adopting(done(j, "3")))
				k.equal("Output", `3`, string(k.status(j, serverless.Completed).Output))
				k.equal("Claim", 0, len(k.claim(k.slot("w", 1), k.slot("other", 1))))
			}),
		rule("NobodyAdoptsWhatAnotherHas",
			"the worker that lost a job is refused when another one has it or has ended it",
			func(k *kit) {
				j := k.run()
				k.now += lease
				k.expire()
				second := k.take("second")
				op := adopting(done(j, "1"))
				k.refuse(op, serverless.ErrLeaseLost)
				op.Token = 0
				k.refuse(op, serverless.ErrLeaseLost)
				k.must(done(second, "2"))
				k.refuse(op, serverless.ErrLeaseLost)
			}),
		rule("AdoptedIsInProgress",
			"a renewal that adopts puts the job in progress again: nobody claims it and its lease can end anew",
			func(k *kit) {
				j := k.run()
				k.now += lease
				k.expire()
				s := k.must(adopting(as(j, serverless.OpRenew, until(k.now+lease))))
				k.equal("Status, Worker, Deliveries", []any{serverless.InProgress, serverless.WorkerID("w"), uint8(1)}, []any{s.Status, s.Worker, s.Deliveries})
				k.equal("Claim", 0, len(k.claim(k.slot("other", 1))))
				k.now += lease
				k.expire()
				k.status(j, serverless.InQueue)
				k.take("other")
			}),
		rule("AdoptedManyTimes",
			"a job that is lost and adopted again and again is claimed once when it is queued at last",
			func(k *kit) {
				j := k.run()
				for range 50 {
					k.must(serverless.Op{Ref: j.Ref, Kind: serverless.OpLose, Worker: "w"})
					k.must(adopting(as(j, serverless.OpRenew, until(k.now+lease))))
				}
				k.must(as(j, serverless.OpRelease))
				k.equal("Claim", []serverless.JobID{j.ID}, ids(k.claim(k.slot("x", 10), k.slot("y", 10))))
			}),
		rule("AServersStopIsNotCharged",
			"OpRecover queues a running job again without counting a delivery, and leaves others alone",
			func(k *kit) {
				j := k.run()
				queued := k.add()
				k.must(user(j, serverless.OpRecover), user(queued, serverless.OpRecover))
				got := k.status(j, serverless.InQueue)
				k.equal("Deliveries, Restarts, Lost", []any{uint8(0), uint8(1), serverless.WorkerID("")}, []any{got.Deliveries, got.Restarts, got.Lost})
				k.equal("Retried", int64(0), k.stats(echo).Retried)
				k.equal("Claim", []serverless.JobID{j.ID, queued.ID}, ids(k.claim(k.slot("w", 2))))
			}),
		rule("AHarmfulJobFails",
			"a job that was running at MaxRestarts restarts of the server is FAILED",
			func(k *kit) {
				j := k.add()
				for range serverless.MaxRestarts {
					k.status(j, serverless.InQueue)
					k.take("w")
					k.must(user(j, serverless.OpRecover))
				}
				k.equal("Reason", serverless.TooManyCrash, k.status(j, serverless.Failed).Reason)
			}),
		rule("TheExecutionTimeoutWins",
			"a job that runs longer than its execution timeout is TIMED_OUT, however often it is renewed",
			func(k *kit) {
				j := k.run(func(j *serverless.Job) { j.ExecTimeout = 5000 })
				k.must(as(j, serverless.OpRenew, until(k.now+ttl)))
				k.now += 4999
				k.expire()
				k.status(j, serverless.InProgress)
				k.now++
				k.refuse(adopting(done(j, "1")), serverless.ErrLeaseLost)
				k.expire()
				got := k.status(j, serverless.TimedOut)
				k.equal("Reason, Finished", []any{serverless.OverTime, k.now}, []any{got.Reason, got.Finished})
				k.equal("Failed", int64(1), k.stats(echo).Failed)
				k.refuse(adopting(done(j, "1")), serverless.ErrLeaseLost)
			}),
		rule("TheTimeoutCountsFromTheClaim",
			"the execution timeout counts from the claim, not from the submit, and anew for each delivery",
			func(k *kit) {
				j := k.add(func(j *serverless.Job) { j.ExecTimeout = 5000 })
				k.wait(time.Minute)
				k.take("w")
				k.wait(4 * time.Second)
				k.must(serverless.Op{Ref: j.Ref, Kind: serverless.OpLose, Worker: "w"})
				k.take("other")
				k.wait(4 * time.Second)
				k.expire()
				k.status(j, serverless.InProgress)
				k.wait(time.Second)
				k.expire()
				k.status(j, serverless.TimedOut)
			}),
	}
}
