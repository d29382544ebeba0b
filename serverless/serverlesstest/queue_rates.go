package serverlesstest

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// wantHeld checks that a rate holds all ready jobs until an instant.
func (k *fixture) wantHeld(until queue.Instant) {
	k.Helper()
	k.wantRoom("of a bucket without room", 0)
	s := k.stats(echo)
	k.wantEqual("Ready while all are held", int64(0), s.Ready)
	if s.Free > until || s.Free <= k.now {
		k.Errorf("Free = %d, want %d at most, and it is %d", s.Free, until, k.now)
	}
	k.now = until - 1
	k.wantRoom("a millisecond before there is room", 0)
	k.now = until
}

// rated are the rates that one line can have.
func rated(r queue.Rate) map[string]*queue.Rules {
	return map[string]*queue.Rules{
		"rate": {Rate: r}, "perKeyRate": {PerKeyRate: r}, "perUserRate": {PerUserRate: r},
		"the rate of a single key": {Keys: &queue.KeyRules{"a": {Rate: r}}},
	}
}

func rateCases() []QueueCase {
	rate := queue.Rate{Limit: 3, Per: 3 * time.Second}
	return []QueueCase{
		rule("ARateIsABucket",
			"a bucket has room for Limit starts at once, and for one more after each Per/Limit",
			func(k *fixture) {
				for name, rules := range rated(rate) {
					k.rules = rules
					all := k.addN(8, withKey("a"))
					k.wantCounts(3, 5)
					k.wantRoom("of a full bucket, by "+name, 3)
					k.wantHeld(k.now + 1000)
					k.wantCounts(1, 4)
					k.wantRoom("after a third of the time, by "+name, 1)
					k.wantHeld(k.now + 1000)
					k.wait(time.Second)
					k.wantCounts(2, 2)
					k.wantRoom("after two more thirds, by "+name, 2)
					for _, j := range all {
						k.apply(userOp(j, queue.OpCancel))
					}
					k.wait(time.Hour)
				}
			}),
		rule("RatesOfKeys",
			"each key of each owner has a bucket of its own for all of its priorities, and jobs without a key have none",
			func(k *fixture) {
				k.rules = &queue.Rules{PerKeyRate: queue.Rate{Limit: 1, Per: time.Second}}
				k.submitNamed("a1 a2", withKey("a"), ownedBy("x"))
				k.submitNamed("a9", withKey("a"), ownedBy("x"), withPriority(9))
				k.submitNamed("b1 b2", withKey("a"), ownedBy("y"))
				k.submitNamed("n1 n2", ownedBy("y"))
				k.wantCounts(4, 3)
				k.wantClaims("w", "a9 b1 n1 n2")
				k.wantHeld(k.now + 1000)
				k.wantClaims("w", "a1 b2")
				k.wantHeld(k.now + 1000)
				k.wantClaims("w", "a2")
				k.wantEqual("Free of an empty queue", queue.Instant(0), k.stats(echo).Free)
			}),
		rule("RatesOfUsers",
			"a rate of users counts all jobs of an owner, and holds nobody else",
			func(k *fixture) {
				k.rules = &queue.Rules{PerUserRate: queue.Rate{Limit: 2, Per: time.Second}}
				k.submitNamed("a1", ownedBy("a"), withKey("k"))
				k.submitNamed("a2 a3", ownedBy("a"))
				k.submitNamed("b1", ownedBy("b"))
				k.wantCounts(3, 1)
				k.wantClaims("w", "a1 b1 a2")
				k.wantHeld(k.now + 500)
				k.wantClaims("w", "a3")
			}),
		rule("TheLeastRateCounts",
			"a job starts only if there is room in the buckets of its key, its owner and its endpoint, and takes room of each",
			func(k *fixture) {
				k.rules = &queue.Rules{
					PerKeyRate: queue.Rate{Limit: 1, Per: 4 * time.Second}, PerUserRate: queue.Rate{Limit: 2, Per: 4 * time.Second},
					Rate: queue.Rate{Limit: 3, Per: 3 * time.Second}, PerKey: 1, Ageing: time.Minute,
				}
				k.submitNamed("a1 a2", ownedBy("a"), withKey("1"))
				k.submitNamed("a3 a4", ownedBy("a"))
				k.submitNamed("b1 b2", ownedBy("b"))
				k.wantCounts(3, 3)
				k.wantClaims("w", "a1 b1 a3")
				k.wantHeld(k.now + 1000)
				k.wantClaims("w", "b2")
				k.wantHeld(k.now + 1000)
				k.wantClaims("w", "a4")
			}),
		rule("SingleKeys",
			"a single key has the limits that it has by name instead of those of all keys",
			func(k *fixture) {
				k.rules = &queue.Rules{PerKey: 1, Keys: &queue.KeyRules{"big": {PerKey: 3}, "slow": {Rate: queue.Rate{Limit: 1, Per: time.Hour}}}}
				k.submitNamed("b1 b2 b3 b4", withKey("big"))
				k.submitNamed("s1 s2", withKey("slow"))
				k.submitNamed("o1 o2", withKey("other"))
				k.wantCounts(5, 3)
				k.wantClaims("w", "b1 s1 o1 b2 b3")
				k.rules = &queue.Rules{Keys: &queue.KeyRules{"slow": {Rate: queue.Rate{Limit: 1, Per: time.Second}}}}
				k.wantClaims("w", "o2 b4")
				k.wantHeld(k.now + 1000)
				k.wantClaims("w", "s2")
			}),
		rule("AStartThatNobodyGotIsGivenBack",
			"a claim that was never handed out gives its start back; one of a worker that was lost, or that gave up the job, does not",
			func(k *fixture) {
				for _, rules := range rated(queue.Rate{Limit: 1, Per: time.Hour}) {
					k.rules = rules
					k.add(withKey("a"))
					j := k.take("w")
					k.wantRoom("of an empty bucket", 0)
					k.mustApply(workerOp(j, queue.OpRelease, func(op *queue.Op) { op.Untouched = true }))
					j = k.take("w")
					k.mustApply(workerOp(j, queue.OpRelease))
					k.wantHeld(k.now + 3_600_000)
					j = k.take("w")
					k.mustApply(workerOp(j, queue.OpWorkerLost))
					k.wantRoom("for a redelivery", 0)
					k.mustApply(userOp(j, queue.OpCancel))
					k.wait(2 * time.Hour)
				}
			}),
		rule("WhoDeletesJobsGetsNoMoreStarts",
			"a bucket stays as empty as it is when the jobs of its key or its owner are deleted",
			func(k *fixture) {
				for _, rules := range rated(queue.Rate{Limit: 1, Per: time.Hour}) {
					k.rules = rules
					j := k.run(withKey("a"))
					k.mustApply(finishOp(j, "1"))
					k.mustApply(userOp(j, queue.OpDelete))
					k.wantGone(j)
					k.add(withKey("a"))
					k.wantHeld(j.Started + 3_600_000)
					k.mustApply(finishOp(k.take("w"), "1"))
					k.wait(2 * time.Hour)
				}
			}),
		rule("NewRatesHoldFromTheNextClaim",
			"a rate that is raised or taken away frees at once what it held, and a new one begins full",
			func(k *fixture) {
				for name, rules := range rated(queue.Rate{Limit: 1, Per: time.Hour}) {
					for range 6 {
						k.add(withKey("a"))
					}
					k.rules = rules
					k.wantRoom("of one start, by "+name, 1)
					k.wantRoom("of an empty bucket", 0)
					k.rules = rated(queue.Rate{Limit: 1, Per: time.Second})[name]
					k.wantHeld(k.now + 1000)
					k.wantRoom("of a raised rate", 1)
					k.wantRoom("of an empty bucket", 0)
					k.rules = nil
					k.wantRoom("without a rate", 4)
				}
			}),
		rule("HeldKeysHoldNobody",
			"many keys without room are passed by: their jobs cost a claim nothing, and others go on",
			func(k *fixture) {
				k.rules = &queue.Rules{PerKeyRate: queue.Rate{Limit: 1, Per: time.Hour}}
				for n := range 200 {
					for range 2 {
						k.add(withKey(fmt.Sprint(n)), withPriority(9))
					}
				}
				k.wantEqual("Claim of each key", 200, len(k.claim(k.slot("w", 400))))
				k.submitNamed("free", withPriority(0))
				k.wantCounts(1, 200)
				k.wantClaims("w", "free")
				k.wait(time.Hour)
				k.wantCounts(200, 0)
				k.wantEqual("Claim of each key", 200, len(k.claim(k.slot("w", 400))))
			}),
	}
}
