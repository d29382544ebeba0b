package serverlesstest

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// holdOp ends a job with its result, and holds its key.
func holdOp(j queue.Job, d time.Duration) queue.Op {
	op := finishOp(j, "1")
	op.Hold = d
	return op
}

// hold has a job of alice's key held.
func (k *fixture) hold(d time.Duration, change ...func(*queue.Job)) queue.Job {
	k.Helper()
	j := k.run(change...)
	k.mustApply(holdOp(j, d))
	return j
}

// holdCases are the rules of keys that workers hold.
func holdCases() []QueueCase {
	return []QueueCase{
		rule("AWorkerHoldsItsKey",
			"a job that holds its key ends as it ends, and no job of this key and owner on this endpoint starts until then, of whatever priority; nobody else is held",
			func(k *fixture) {
				for n, rules := range []*queue.Rules{
					nil, {PerKey: 90, PerUser: 90, Total: 90}, {PerKeyRate: queue.Rate{Limit: 9, Per: time.Second}}, {Keys: &queue.KeyRules{"a": {PerKey: 90}}},
				} {
					name := fmt.Sprint(n)
					k.rules = rules
					j := k.hold(time.Minute, withKey("a"), ownedBy("x"))
					if got := k.wantStatus(j, queue.Completed); string(got.Output) != "1" {
						k.Errorf("the output is %s, want that of the worker", got.Output)
					}
					k.submitNamed("a1-"+name, withKey("a"), ownedBy("x"))
					k.wantCounts(0, 1)
					k.submitNamed("a9-"+name, withKey("a"), ownedBy("x"), withPriority(9))
					k.submitNamed("b-"+name, withKey("b"), ownedBy("x"))
					k.submitNamed("n-"+name, ownedBy("x"))
					k.submitNamed("y-"+name, withKey("a"), ownedBy("y"))
					k.wantCounts(3, 2)
					k.wantEqual("claims under rules "+name, 3, len(k.claim(k.slot("w", 100))))
					k.wantHeld(j.Started + 60_000)
					k.wantCounts(2, 0)
					k.wantRoom("after the hold, under rules "+name, 2)
					k.wantEqual("Free of an empty queue", queue.Instant(0), k.stats(echo).Free)
					k.wait(time.Hour)
				}
			}),
		rule("AHoldAndARateEndEachAtItsTime",
			"a held key whose rate has room is free when the hold ends, and one whose rate has none when both have ended",
			func(k *fixture) {
				k.rules = &queue.Rules{PerKeyRate: queue.Rate{Limit: 2, Per: 10 * time.Second}}
				k.addN(4, withKey("a"))
				j := k.take("w")
				k.mustApply(holdOp(j, time.Second))
				k.wantRoom("of a held key with room", 0)
				k.wantHeld(j.Started + 1000)
				k.wait(time.Second)
				j = k.wantRoom("after the hold", 1)[0]
				k.mustApply(holdOp(j, time.Second))
				k.wait(time.Second)
				k.wantRoom("after the hold, before the rate has room", 0)
				k.wait(3 * time.Second)
				k.wantRoom("five seconds after the first start", 1)
			}),
		rule("AHoldOutlivesItsJob",
			"a hold stays when the job that asked for it is deleted, and one of a job without a key holds nothing",
			func(k *fixture) {
				j := k.hold(time.Hour, withKey("a"))
				k.mustApply(userOp(j, queue.OpDelete))
				k.wantGone(j)
				k.hold(time.Hour)
				k.submitNamed("a", withKey("a"))
				k.submitNamed("n1 n2")
				k.wantClaims("w", "n1 n2")
				k.wantHeld(j.Started + 3_600_000)
				k.wantClaims("w", "a")
			}),
		rule("TheLastHoldCounts",
			"a worker of the same key whose job ends later may hold it longer or shorter, and at most for a day",
			func(k *fixture) {
				k.addN(5, withKey("a"))
				jobs := k.claim(k.slot("w", 3))
				k.wantEqual("jobs that run", 3, len(jobs))
				k.mustApply(holdOp(jobs[0], time.Second))
				k.wantRoom("of a held key", 0)
				k.mustApply(holdOp(jobs[1], time.Hour))
				k.wait(2 * time.Second)
				k.wantRoom("of a key that is held longer", 0)
				k.mustApply(holdOp(jobs[2], time.Second))
				k.wantHeld(k.now + 1000)
				j := k.wantRoom("after the shorter hold", 2)[0]
				k.add(withKey("a"), func(j *queue.Job) { j.Expires = k.now + 100*3_600_000 })
				k.mustApply(holdOp(j, 1<<62))
				k.wantHeld(k.now + 24*3_600_000)
				k.wantRoom("after a day", 1)
			}),
		rule("WhoHoldsAlsoSnoozesOrCancels",
			"a worker that puts its job off or cancels it may hold its key too; a failure and a report that is not taken hold nothing",
			func(k *fixture) {
				j := k.run(withKey("a"))
				failed := failOp(j, "no")
				failed.Hold = time.Hour
				other := holdOp(j, time.Hour)
				other.Token++
				k.mustRefuse(other, queue.ErrLeaseLost)
				k.mustApply(failed)
				j = k.run(withKey("a"))
				snooze := snoozeOp(j, k.now+1000)
				snooze.Hold = time.Minute
				k.mustApply(snooze)
				k.wait(time.Second)
				k.expire()
				k.wantHeld(j.Started + 60_000)
				j = k.take("w")
				cancel := workerOp(j, queue.OpFinish, func(op *queue.Op) { op.Status, op.Hold = queue.Cancelled, time.Minute })
				k.mustApply(cancel)
				k.add(withKey("a"))
				k.wantHeld(k.now + 60_000)
				k.wantRoom("after both", 1)
			}),
		rule("HoldsAreLifted",
			"holds that were made until Rules.HoldsSince keep nothing from starting, and later ones do",
			func(k *fixture) {
				k.hold(time.Hour, withKey("a"))
				k.addN(3, withKey("a"))
				k.wantRoom("of a held key", 0)
				k.rules = &queue.Rules{HoldsSince: k.now}
				k.wantCounts(3, 0)
				k.now++
				j := k.take("w")
				k.mustApply(holdOp(j, time.Minute))
				k.wantHeld(k.now + 60_000)
				j = k.take("w")
				k.mustApply(holdOp(j, time.Hour))
				k.wantRoom("of a key that is held again", 0)
				k.rules = &queue.Rules{HoldsSince: k.now, PerKeyRate: queue.Rate{Limit: 1, Per: time.Hour}}
				k.wantRoom("with a rate instead", 1)
			}),
		rule("AHoldIsBesideARate",
			"a key starts when both its hold has ended and its bucket has room",
			func(k *fixture) {
				for n, hold := range []time.Duration{time.Minute, 3 * time.Hour} {
					key := fmt.Sprint("key", n)
					k.rules = &queue.Rules{PerKeyRate: queue.Rate{Limit: 1, Per: time.Hour}}
					j := k.hold(hold, withKey(key))
					k.add(withKey(key))
					k.wantHeld(max(j.Started+3_600_000, j.Started+queue.Instant(hold.Milliseconds())))
					k.wantRoom("after both", 1)
					k.wait(time.Hour)
				}
			}),
		rule("ManyKeysAreHeld",
			"held keys are passed by, and an owner has at most MaxHolds of them on an endpoint: a further one is not held",
			func(k *fixture) {
				for n := range queue.MaxHolds + 1 {
					k.add(withKey(fmt.Sprint(n)), ownedBy("x"))
				}
				jobs := k.claim(k.slot("w", queue.MaxHolds+1))
				k.wantEqual("claims", queue.MaxHolds+1, len(jobs))
				ops := make([]queue.Op, len(jobs))
				for i := range jobs {
					ops[i] = holdOp(jobs[i], time.Hour)
				}
				k.mustApply(ops...)
				for n := range queue.MaxHolds + 1 {
					k.add(withKey(fmt.Sprint(n)), ownedBy("x"))
				}
				k.wantCounts(1, queue.MaxHolds)
				k.wantRoom("of one key", 1)
				k.wait(time.Hour)
				k.mustApply(holdOp(k.run(withKey("other"), ownedBy("x"), withPriority(9)), time.Hour))
				k.wantCounts(queue.MaxHolds, 0)
				k.add(withKey("other"), ownedBy("x"))
				k.wantCounts(queue.MaxHolds, 1)
			}),
	}
}
