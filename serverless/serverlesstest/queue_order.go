package serverlesstest

import (
	"fmt"
	"strings"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// named makes the id of a job readable in the order of claims.
func named(id string) func(*queue.Job) {
	return func(j *queue.Job) { j.ID = queue.JobID(id) }
}

// submitNamed submits a job for each name, one after another.
func (k *fixture) submitNamed(names string, change ...func(*queue.Job)) {
	k.Helper()
	for name := range strings.FieldsSeq(names) {
		k.add(append([]func(*queue.Job){named(name)}, change...)...)
	}
}

// wantClaims claims jobs one by one and compares their ids.
func (k *fixture) wantClaims(worker queue.WorkerID, want string) {
	k.Helper()
	var got []string
	for range strings.FieldsSeq(want) {
		for _, j := range k.claim(k.slot(worker, 1)) {
			got = append(got, string(j.ID))
		}
	}
	k.wantEqual("claims", want, strings.Join(got, " "))
}

func orderCases() []QueueCase {
	return []QueueCase{
		rule("OwnersTakeTurns",
			"of several owners, the one who was served least recently is next, whoever has more jobs",
			func(k *fixture) {
				k.submitNamed("a1 a2 a3 a4", ownedBy("a"))
				k.submitNamed("b1 b2", ownedBy("b"))
				k.wantClaims("w", "a1 b1 a2")
				k.submitNamed("c1", ownedBy("c"))
				k.wantClaims("w", "b2 a3 c1 a4")
			}),
		rule("TheHighestPriorityFirst",
			"of one owner's jobs those of the highest priority are first, the oldest of them first",
			func(k *fixture) {
				k.submitNamed("low", withPriority(0))
				k.submitNamed("five1", withPriority(5))
				k.submitNamed("nine1 nine2", withPriority(9))
				k.submitNamed("five2", withPriority(5))
				k.wantClaims("w", "nine1 nine2 five1 five2 low")
			}),
		rule("APriorityStarvesNoOtherOwner",
			"a priority orders the jobs of its owner only",
			func(k *fixture) {
				for n := range 5 {
					k.submitNamed(fmt.Sprint("nine", n), ownedBy("a"), withPriority(9))
				}
				k.submitNamed("b0 b1", ownedBy("b"), withPriority(0))
				k.wantClaims("w", "nine0 b0 nine1 b1 nine2")
			}),
		rule("KeysTakeTurns",
			"in a priority the keys of an owner take turns; jobs without a key are one key",
			func(k *fixture) {
				k.submitNamed("a1 a2 a3", withKey("a"))
				k.submitNamed("b1", withKey("b"))
				k.submitNamed("n1 n2")
				k.submitNamed("b2", withKey("b"))
				k.wantClaims("w", "a1 b1 n1 a2 b2")
				k.submitNamed("c1", withKey("c"))
				k.wantClaims("w", "n2 a3 c1")
			}),
		rule("ABacklogGivesNoRight",
			"a key that comes late is next when all that waited had a turn, however long the others' backlog is",
			func(k *fixture) {
				for n := range 50 {
					k.submitNamed(fmt.Sprint("old", n), withKey("old"))
				}
				k.wantClaims("w", "old0 old1")
				k.submitNamed("new1", withKey("new"))
				k.wantClaims("w", "old2 new1 old3")
			}),
		rule("AFreshKeyIsNotFirst",
			"jobs that each have a key of their own do not pass a key that waits",
			func(k *fixture) {
				k.submitNamed("a1 a2", withKey("a"))
				k.wantClaims("w", "a1")
				for n := range 3 {
					k.submitNamed(fmt.Sprint("fresh", n), withKey(fmt.Sprint(n)))
				}
				k.wantClaims("w", "a2 fresh0 fresh1 fresh2")
			}),
		rule("KeysAreOfTheirOwner",
			"two owners with the same key take turns as owners, and their keys are apart",
			func(k *fixture) {
				k.submitNamed("a1 a2", ownedBy("a"), withKey("same"))
				k.submitNamed("b1 b2", ownedBy("b"), withKey("same"))
				k.wantClaims("w", "a1 b1 a2 b2")
			}),
		rule("AgeingLifts",
			"a job rises by one priority each time it has waited for Ageing",
			func(k *fixture) {
				k.rules = &queue.Rules{Ageing: time.Minute}
				k.submitNamed("low", withPriority(3))
				k.wait(2*time.Minute - time.Millisecond)
				k.submitNamed("five1 five2 five3", withPriority(5))
				k.wantClaims("w", "five1")
				k.wait(time.Millisecond)
				k.wantClaims("w", "five2") // both have waited: the lift of both is less than the distance
				k.submitNamed("six", withPriority(6))
				k.wait(time.Hour)
				k.rules = &queue.Rules{Ageing: 30 * time.Second}
				k.wantClaims("w", "low six five3")
			}),
		rule("AtATieTheHigherPriority",
			"priorities are compared in whole milliseconds: 9*60,000 + 56,650 and 7*60,000 + 176,650 are equal, and of equal ones the higher priority is first",
			func(k *fixture) {
				k.rules = &queue.Rules{Ageing: time.Minute}
				k.submitNamed("low", withPriority(7))
				k.wait(176_650*time.Millisecond - 56_650*time.Millisecond)
				k.submitNamed("high1 high2", withPriority(9))
				k.wait(56_650 * time.Millisecond)
				k.wantClaims("w", "high1")
				k.wait(time.Millisecond) // both wait longer
				k.wantClaims("w", "high2 low")
			}),
		rule("WithoutAgeingPrioritiesAreStrict",
			"without Ageing a job waits as long as there is one of a higher priority",
			func(k *fixture) {
				k.submitNamed("low", withPriority(0))
				k.wait(20 * time.Hour)
				k.submitNamed("one", withPriority(1))
				k.wantClaims("w", "one low")
			}),
		rule("ALostJobKeepsItsPlaceInItsKey",
			"a job whose worker was lost is the oldest of its key again, and its key does not go to the end",
			func(k *fixture) {
				k.submitNamed("a1 a2", withKey("a"))
				k.submitNamed("b1 b2", withKey("b"))
				held := k.take("w")
				k.mustApply(queue.Op{Ref: held.Ref, Kind: queue.OpWorkerLost, Worker: "w"})
				k.wantClaims("other", "b1 a1 b2 a2")
			}),
		rule("TheLoserBlocksNobody",
			"a worker that lost a job gets what it would get if the job were not there",
			func(k *fixture) {
				k.submitNamed("nine", withPriority(9), withKey("a"))
				held := k.take("w")
				k.mustApply(queue.Op{Ref: held.Ref, Kind: queue.OpWorkerLost, Worker: "w"})
				k.submitNamed("nine2", withPriority(9), withKey("a"))
				k.submitNamed("other", ownedBy("b"))
				k.submitNamed("five")
				k.wantClaims("w", "nine2 other five")
				k.wantEqual("Claim by the loser", 0, len(k.claim(k.slot("w", 5))))
				k.wantClaims("v", "nine")
			}),
		rule("ADelayedJobIsNotClaimed",
			"a delayed job is queued, but not claimed and not ready",
			func(k *fixture) {
				j := k.add(func(j *queue.Job) { j.Delayed, j.Queued = true, k.now+1000 })
				k.wantEqual("Claim", 0, len(k.claim(k.slot("w", 1))))
				s := k.stats(echo)
				k.wantEqual("Queued, Delayed, Ready, Oldest", []int64{1, 1, 0, 0}, []int64{s.Queued, s.Delayed, s.Ready, int64(s.Oldest)})
				k.mustApply(userOp(j, queue.OpCancel))
				k.wantEqual("Delayed", int64(0), k.stats(echo).Delayed)
			}),
	}
}
