package serverlesstest

import (
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

func withUntil(i queue.Instant) func(*queue.Op) {
	return func(op *queue.Op) { op.Until = i }
}

func leaseCases() []QueueCase {
	return []QueueCase{
		rule("ALeaseEnds",
			"a job whose lease ended is queued again by Expire, counted as retried, and its worker refused",
			func(k *fixture) {
				j := k.run()
				k.now += lease - 1
				k.expire()
				k.wantStatus(j, queue.InProgress)
				k.now++
				k.expire()
				got := k.wantStatus(j, queue.InQueue)
				want := j
				want.Status, want.Worker, want.Lost, want.LostStarted, want.Leases = queue.InQueue, "", "w", j.Started, 1
				want.Started, want.LeaseUntil, want.RunUntil = 0, k.now.Add(queue.LoserWait), 0
				k.wantEqual("the job", want, got)
				k.wantEqual("Retried", int64(1), k.stats(echo).Retried)
				k.mustRefuse(finishOp(j, "1"), queue.ErrLeaseLost)
			}),
		rule("ALeaseThatEndedIsLostAtOnce",
			"a worker cannot use a lease that has ended, also before a sweep",
			func(k *fixture) {
				j := k.run()
				k.now += lease
				for _, op := range []queue.Op{finishOp(j, "1"), chunk(j, "1"), workerOp(j, queue.OpRenew, withUntil(k.now+lease)), workerOp(j, queue.OpRelease)} {
					k.mustRefuse(op, queue.ErrLeaseLost)
				}
			}),
		rule("RenewMovesTheLease",
			"a renewed lease lasts until the later instant, however often it is renewed",
			func(k *fixture) {
				j := k.run()
				for range 20 {
					k.wait(20 * time.Second)
					s := k.mustApply(workerOp(j, queue.OpRenew, withUntil(k.now+lease)))
					k.wantEqual("LeaseUntil", k.now+lease, s.LeaseUntil)
					k.expire()
					k.wantStatus(j, queue.InProgress)
				}
				k.now += lease
				k.expire()
				k.wantStatus(j, queue.InQueue)
			}),
		rule("RenewNeverShortens",
			"a renewal until an earlier instant leaves the lease as it is",
			func(k *fixture) {
				j := k.run()
				k.mustApply(workerOp(j, queue.OpRenew, withUntil(k.now+10)))
				k.now += lease - 1
				k.expire()
				k.wantStatus(j, queue.InProgress)
			}),
		rule("ARunMayBeginLaterThanItsClaim",
			"a renewal with Begins has the execution timeout count from now",
			func(k *fixture) {
				j := k.run(func(j *queue.Job) { j.ExecTimeout = 20 * time.Second })
				k.wait(15 * time.Second)
				begins := workerOp(j, queue.OpRenew, withUntil(k.now+lease))
				begins.Begins = true
				s := k.mustApply(begins)
				k.wantEqual("Started, RunUntil", []queue.Instant{k.now, k.now + 20_000}, []queue.Instant{s.Started, s.RunUntil})
				k.wait(19_999 * time.Millisecond)
				k.expire()
				k.wantStatus(j, queue.InProgress)
				k.wait(time.Millisecond)
				k.expire()
				k.wantStatus(j, queue.TimedOut)
			}),
		rule("ChunksAndProgressRenew",
			"a report of a worker renews its lease too",
			func(k *fixture) {
				j := k.run()
				k.now += lease - 1
				op := chunk(j, "1")
				op.Until = k.now + lease
				k.mustApply(op)
				k.now += lease - 1
				k.expire()
				k.mustApply(workerOp(j, queue.OpProgress, withUntil(k.now+lease)))
				k.now += lease - 1
				k.expire()
				k.wantStatus(j, queue.InProgress)
			}),
		rule("ExpireSaysWhenNext",
			"Expire returns an instant that is not later than the next thing that is due, 0 when nothing is scheduled",
			func(k *fixture) {
				k.wantNext("Expire of an empty queue", 0, k.expire())
				j := k.run()
				for range 1000 {
					next := k.expire()
					if next == 0 || next > j.LeaseUntil {
						k.Fatalf("next = %d, want at most %d, the end of the lease", next, j.LeaseUntil)
					}
					k.now = next
					if k.get(j).Status == queue.InQueue || next == j.LeaseUntil {
						k.expire()
						k.wantStatus(j, queue.InQueue)
						return
					}
				}
				k.Errorf("Expire was called 1000 times before the lease ended")
			}),
		rule("ExpireDoesAsMuchAsItIsTold",
			"Expire handles at most limit jobs and returns that there are more",
			func(k *fixture) {
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
						k.wantEqual("jobs queued when Expire says that nothing is due", int64(10), queued)
						return
					}
					if round > 1000 {
						k.Fatalf("Expire says 1000 times that there is more")
					}
				}
			}),
		rule("ReleaseIsNotCounted",
			"a released job counts no delivery and no retry, and its worker may get it again",
			func(k *fixture) {
				first := k.add()
				for range 2 * queue.MaxDeliveries {
					j := k.take("w")
					k.wantEqual("Deliveries", uint8(1), j.Deliveries)
					s := k.mustApply(workerOp(j, queue.OpRelease))
					k.wantEqual("Deliveries", uint8(0), s.Deliveries)
				}
				k.wantStatus(first, queue.InQueue)
				k.wantEqual("Retried", int64(0), k.stats(echo).Retried)
			}),
		rule("ThreeDeliveries",
			"a job that MaxDeliveries workers lost is FAILED and says why; two losses are not enough",
			func(k *fixture) {
				j := k.add()
				for i := range queue.MaxDeliveries {
					k.wantStatus(j, queue.InQueue)
					k.wantEqual("Deliveries", uint8(i+1), k.take(queue.WorkerID(rune('a'+i))).Deliveries)
					k.now += lease
					k.expire()
				}
				got := k.wantStatus(j, queue.Failed)
				k.wantEqual("Reason, Finished", []any{queue.WorkersLost, k.now}, []any{got.Reason, got.Finished})
				if got.ErrorText() == "" {
					k.Errorf("ErrorText is empty, want what happened")
				}
				st := k.stats(echo)
				k.wantEqual("Failed, Retried", []int64{1, queue.MaxDeliveries - 1}, []int64{st.Failed, st.Retried})
			}),
		rule("AWorkerThatIsGoneLoses",
			"OpWorkerLost ends the lease of its worker at once, as if the lease had expired, and no other lease",
			func(k *fixture) {
				j := k.run()
				k.mustRefuse(queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: "other"}, queue.ErrLeaseLost)
				k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: "w"})
				got := k.wantStatus(j, queue.InQueue)
				k.wantEqual("Lost", queue.WorkerID("w"), got.Lost)
				k.wantEqual("Retried", int64(1), k.stats(echo).Retried)
				k.mustRefuse(finishOp(j, "1"), queue.ErrLeaseLost)
			}),
		rule("TheLoserAdopts",
			"the worker that lost a job may finish it with Adopt while nobody else has it",
			func(k *fixture) {
				j := k.run()
				k.now += lease
				k.expire()
				k.mustRefuse(finishOp(j, "1"), queue.ErrLeaseLost)
				other := withAdopt(finishOp(j, "2"))
				other.Worker, other.Token = "other", 0
				k.mustRefuse(other, queue.ErrLeaseLost)
				k.mustApply(withAdopt(finishOp(j, "3")))
				k.wantEqual("Output", `3`, string(k.wantStatus(j, queue.Completed).Output))
				k.wantEqual("Claim", 0, len(k.claim(k.slot("w", 1), k.slot("other", 1))))
			}),
		rule("ALateResultHasTheTimesOfItsLease",
			"a worker that lost or released a job and reports it late worked from the start of its lease; it goes on until its execution timeout",
			func(k *fixture) {
				for _, end := range []queue.Op{{Kind: queue.OpWorkerLost}, {Kind: queue.OpRelease}, {Kind: queue.OpNoResult}} {
					j := k.run(func(j *queue.Job) { j.ExecTimeout = 10 * time.Second })
					end.Ref, end.Worker = j.Ref, "w"
					k.wait(2 * time.Second)
					k.mustApply(end)
					k.wait(8*time.Second - time.Millisecond)
					k.mustApply(withAdopt(finishOp(j, "3")))
					got := k.wantStatus(j, queue.Completed)
					k.wantEqual(end.Kind.String()+": Started, Finished", []queue.Instant{j.Started, k.now}, []queue.Instant{got.Started, got.Finished})
				}
				j := k.run(func(j *queue.Job) { j.ExecTimeout = 10 * time.Second })
				k.mustApply(workerOp(j, queue.OpRelease))
				k.wait(10 * time.Second)
				k.mustRefuse(withAdopt(workerOp(j, queue.OpRenew, withUntil(k.now+lease))), queue.ErrLeaseLost)
				k.mustApply(withAdopt(finishOp(j, "1")))
			}),
		rule("AStreamIsNotTakenUpAgain",
			"a worker that lost a job after a chunk is refused: the chunk is dropped, and what it would report is not whole",
			func(k *fixture) {
				j := k.run()
				k.mustApply(chunk(j, "1"))
				k.mustApply(workerOp(j, queue.OpRelease))
				k.mustRefuse(withAdopt(finishOp(j, "1")), queue.ErrLeaseLost)
				k.mustRefuse(withAdopt(chunk(j, "2")), queue.ErrLeaseLost)
			}),
		rule("NobodyAdoptsWhatAnotherHas",
			"the worker that lost a job is refused when another one has it or has ended it",
			func(k *fixture) {
				j := k.run()
				k.now += lease
				k.expire()
				second := k.take("second")
				op := withAdopt(finishOp(j, "1"))
				k.mustRefuse(op, queue.ErrLeaseLost)
				op.Token = 0
				k.mustRefuse(op, queue.ErrLeaseLost)
				k.mustApply(finishOp(second, "2"))
				k.mustRefuse(op, queue.ErrLeaseLost)
			}),
		rule("AdoptedIsInProgress",
			"a renewal that adopts puts the job in progress again: nobody claims it and its lease can end anew",
			func(k *fixture) {
				j := k.run()
				k.now += lease
				k.expire()
				s := k.mustApply(withAdopt(workerOp(j, queue.OpRenew, withUntil(k.now+lease))))
				k.wantEqual("Status, Worker, Deliveries", []any{queue.InProgress, queue.WorkerID("w"), uint8(1)}, []any{s.Status, s.Worker, s.Deliveries})
				k.wantEqual("Claim", 0, len(k.claim(k.slot("other", 1))))
				k.now += lease
				k.expire()
				k.wantStatus(j, queue.InQueue)
				k.take("other")
			}),
		rule("AdoptedManyTimes",
			"a job that is lost and adopted many times is claimed once when it is finally queued",
			func(k *fixture) {
				j := k.run()
				for range 50 {
					k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: "w"})
					k.mustApply(withAdopt(workerOp(j, queue.OpRenew, withUntil(k.now+lease))))
				}
				k.mustApply(workerOp(j, queue.OpRelease))
				k.wantEqual("Claim", []queue.JobID{j.ID}, ids(k.claim(k.slot("x", 10), k.slot("y", 10))))
			}),
		rule("NoResultIsADelivery",
			"OpNoResult queues a job again and counts as retried; its worker may have it at once, and the third time it is FAILED with the reason",
			func(k *fixture) {
				j := k.add()
				for n := range queue.MaxDeliveries {
					got := k.take("w")
					k.wantEqual("Deliveries", uint8(n+1), got.Deliveries)
					op := workerOp(got, queue.OpNoResult)
					op.Error = "it has nothing"
					k.mustApply(op)
				}
				got := k.wantStatus(j, queue.Failed)
				k.wantEqual("the error", "worker lost: the job was given to workers 3 times and none of them reported a result; the last one: it has nothing", got.ErrorText())
				k.wantEqual("Retried", int64(queue.MaxDeliveries-1), k.stats(echo).Retried)
			}),
		rule("ALostJobSaysWhyItsLastWorkerEnded",
			"the Error of the OpWorkerLost that fails a job is kept with it, instead of an interim output",
			func(k *fixture) {
				j := k.add()
				for n := range queue.MaxDeliveries {
					w := queue.WorkerID(rune('a' + n))
					got := k.take(w)
					k.mustApply(workerOp(got, queue.OpProgress))
					k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: w, Error: "it was killed by " + string(w)})
				}
				got := k.wantStatus(j, queue.Failed)
				k.wantEqual("the error", "worker lost: the job was given to workers 3 times and none of them reported a result; the last one: it was killed by c", got.ErrorText())
				k.wantEqual("Output", "", string(got.Output))
			}),
		rule("ManyReleasesLeadToTheEndOfTheTurn",
			"a job that was released MaxReleases times is behind the others, and before that in front of them",
			func(k *fixture) {
				long, other := k.add(), k.add()
				for n := range queue.MaxReleases {
					got := k.take("w")
					k.wantEqual("the job that is claimed", long.ID, got.ID)
					k.wantEqual("Deliveries, Releases", []uint8{1, uint8(n)}, []uint8{got.Deliveries, got.Releases})
					k.mustApply(workerOp(got, queue.OpRelease))
				}
				k.wantEqual("the order", []queue.JobID{other.ID, long.ID}, ids(k.claim(k.slot("w", 2))))
			}),
		rule("AnUntouchedJobKeepsItsPlace",
			"a job that is released untouched stays in front of the others, however often that happens, and is not counted",
			func(k *fixture) {
				large, other := k.add(), k.add()
				for range 2 * queue.MaxReleases {
					got := k.take("w")
					k.wantEqual("the job that is claimed", large.ID, got.ID)
					k.wantEqual("Deliveries, Releases", []uint8{1, 0}, []uint8{got.Deliveries, got.Releases})
					op := workerOp(got, queue.OpRelease)
					op.Untouched = true
					k.mustApply(op)
				}
				k.wantEqual("the order", []queue.JobID{large.ID, other.ID}, ids(k.claim(k.slot("w", 2))))
			}),
		rule("AServersStopIsNotCharged",
			"OpRecover queues a running job again without counting a delivery, and leaves others alone",
			func(k *fixture) {
				j := k.run()
				queued := k.add()
				k.mustApply(userOp(j, queue.OpRecover), userOp(queued, queue.OpRecover))
				got := k.wantStatus(j, queue.InQueue)
				k.wantEqual("Deliveries, Restarts, Lost", []any{uint8(0), uint8(1), queue.WorkerID("")}, []any{got.Deliveries, got.Restarts, got.Lost})
				k.wantEqual("Retried", int64(0), k.stats(echo).Retried)
				k.wantEqual("Claim", []queue.JobID{j.ID, queued.ID}, ids(k.claim(k.slot("w", 2))))
			}),
		rule("AHarmfulJobFails",
			"a job that was running at MaxRestarts crashes of the server is FAILED",
			func(k *fixture) {
				j := k.add()
				for range queue.MaxRestarts {
					k.wantStatus(j, queue.InQueue)
					k.take("w")
					k.mustApply(userOp(j, queue.OpRecover))
				}
				k.wantEqual("Reason", queue.TooManyRestarts, k.wantStatus(j, queue.Failed).Reason)
			}),
		rule("TheExecutionTimeoutWins",
			"a job that runs longer than its execution timeout is TIMED_OUT, however often it is renewed",
			func(k *fixture) {
				j := k.run(func(j *queue.Job) { j.ExecTimeout = 5 * time.Second })
				k.mustApply(workerOp(j, queue.OpRenew, withUntil(k.now+ttl)))
				k.now += 4999
				k.expire()
				k.wantStatus(j, queue.InProgress)
				k.now++
				k.mustRefuse(withAdopt(finishOp(j, "1")), queue.ErrLeaseLost)
				k.expire()
				got := k.wantStatus(j, queue.TimedOut)
				k.wantEqual("Reason, Finished", []any{queue.ExecutionTimedOut, k.now}, []any{got.Reason, got.Finished})
				k.wantEqual("Failed", int64(1), k.stats(echo).Failed)
				k.mustRefuse(withAdopt(finishOp(j, "1")), queue.ErrLeaseLost)
			}),
		rule("TheTimeoutCountsFromTheClaim",
			"the execution timeout counts from the claim, not from the submit, and anew for each delivery",
			func(k *fixture) {
				j := k.add(func(j *queue.Job) { j.ExecTimeout = 5 * time.Second })
				k.wait(time.Minute)
				k.take("w")
				k.wait(4 * time.Second)
				k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: "w"})
				k.take("other")
				k.wait(4 * time.Second)
				k.expire()
				k.wantStatus(j, queue.InProgress)
				k.wait(time.Second)
				k.expire()
				k.wantStatus(j, queue.TimedOut)
			}),
	}
}
