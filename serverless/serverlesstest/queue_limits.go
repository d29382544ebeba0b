package serverlesstest

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// wantRoom claims as many jobs as it gets, and compares their number.
func (k *fixture) wantRoom(what string, want int) []queue.Job {
	k.Helper()
	jobs := k.claim(k.slot("w", 100))
	if len(jobs) != want {
		k.Errorf("Claim %s gave %d jobs, want %d", what, len(jobs), want)
	}
	return jobs
}

// wantCounts compares how many jobs could be claimed and how many are blocked.
func (k *fixture) wantCounts(ready, blocked int64) {
	k.Helper()
	s := k.stats(echo)
	k.wantEqual("Ready and Blocked", []int64{ready, blocked}, []int64{s.Ready, s.Blocked})
}

// A wayToEnd is how a running job frees its place.
type wayToEnd struct {
	name   string
	change func(*queue.Job) // of the job that ends
	end    func(k *fixture, j queue.Job)
}

func waysToEnd() []wayToEnd {
	same := func(*queue.Job) {}
	op := func(op func(queue.Job) queue.Op) func(*fixture, queue.Job) {
		return func(k *fixture, j queue.Job) { k.mustApply(op(j)) }
	}
	sweep := func(k *fixture, _ queue.Job) {
		k.wait(5 * time.Second)
		k.expire()
	}
	return []wayToEnd{
		{"Result", same, op(func(j queue.Job) queue.Op { return finishOp(j, "1") })},
		{"Failure", same, op(func(j queue.Job) queue.Op { return failOp(j, "no") })},
		{"Cancel", same, op(func(j queue.Job) queue.Op { return userOp(j, queue.OpCancel) })},
		{"Release", same, op(func(j queue.Job) queue.Op { return workerOp(j, queue.OpRelease) })},
		{"LostWorker", same, op(func(j queue.Job) queue.Op { return workerOp(j, queue.OpWorkerLost) })},
		{"Restart", same, op(func(j queue.Job) queue.Op { return userOp(j, queue.OpRecover) })},
		{"TTL", func(j *queue.Job) { j.Expires = j.Submitted + 5000 }, sweep},
		{"Timeout", func(j *queue.Job) { j.ExecTimeout = 5 * time.Second }, sweep},
	}
}

// endCases have a rule for each way in which a running job frees its place.
func endCasesOfLimits() (cases []QueueCase) {
	for _, way := range waysToEnd() {
		cases = append(cases, rule("APlaceIsFreedOnceBy"+way.name,
			"a running job that ends or goes back frees one place of its key, its owner and its endpoint, once",
			func(k *fixture) {
				for _, rules := range []queue.Rules{{PerKey: 2}, {PerUser: 2}, {Total: 2}} {
					k.rules = &rules
					all := []queue.Job{k.add(withKey("a"), way.change)}
					all = append(all, k.addN(4, withKey("a"))...)
					held := k.wantRoom("of two places", 2)
					k.wantEqual("the first", all[0].ID, held[0].ID)
					way.end(k, held[0])
					k.wantCounts(1, k.stats(echo).Queued-1)
					k.wantRoom("after the end", 1)
					k.apply(finishOp(held[0], "1"), workerOp(held[0], queue.OpRelease)) // too late
					k.expire()
					k.wantRoom("at the limit", 0)
					for _, j := range all {
						k.apply(userOp(j, queue.OpCancel))
					}
				}
			}))
	}
	return cases
}

func limitCases() []QueueCase {
	return append(endCasesOfLimits(), []QueueCase{
		rule("PerKey",
			"at most PerKey jobs of one owner and key run; jobs without a key are not bound by it",
			func(k *fixture) {
				k.rules = &queue.Rules{PerKey: 2}
				k.submitNamed("a1 a2 a3 a4", withKey("a"))
				k.submitNamed("b1", withKey("b"))
				k.submitNamed("n1 n2 n3")
				k.wantCounts(6, 2)
				k.wantClaims("w", "a1 b1 n1 a2 n2 n3")
				k.wantRoom("at the limit", 0)
				k.wantCounts(0, 2)
			}),
		rule("PerKeyIsPerOwner",
			"the same key of two owners has places of its own for each",
			func(k *fixture) {
				k.rules = &queue.Rules{PerKey: 1}
				k.submitNamed("a1 a2", ownedBy("a"), withKey("same"))
				k.submitNamed("b1 b2", ownedBy("b"), withKey("same"))
				k.wantCounts(2, 2)
				k.wantClaims("w", "a1 b1")
				k.wantRoom("at the limit", 0)
			}),
		rule("PerKeyCountsAllPriorities",
			"the jobs of a key count together, whatever their priorities",
			func(k *fixture) {
				k.rules = &queue.Rules{PerKey: 1}
				k.submitNamed("five", withKey("a"))
				k.submitNamed("nine", withKey("a"), withPriority(9))
				k.submitNamed("other", withPriority(0))
				k.wantClaims("w", "nine other")
				k.wantRoom("at the limit", 0)
			}),
		rule("PerUser",
			"at most PerUser jobs of one owner run, with and without keys",
			func(k *fixture) {
				k.rules = &queue.Rules{PerUser: 2}
				k.submitNamed("a1 a2", ownedBy("a"))
				k.submitNamed("a3", ownedBy("a"), withKey("x"))
				k.submitNamed("b1 b2 b3", ownedBy("b"))
				k.wantCounts(4, 2)
				k.wantClaims("w", "a1 b1 a3 b2")
				k.wantRoom("at the limit", 0)
				k.wantCounts(0, 2)
			}),
		rule("Total",
			"at most Total jobs of the endpoint run, whoever owns them",
			func(k *fixture) {
				k.rules = &queue.Rules{Total: 3}
				k.submitNamed("a1 a2 a3", ownedBy("a"))
				k.submitNamed("b1 b2", ownedBy("b"))
				k.wantCounts(3, 2)
				k.wantClaims("w", "a1 b1 a2")
				k.wantRoom("at the limit", 0)
				k.wantCounts(0, 2)
				k.add(onEndpoint("free"))
				k.wantEqual("Claim of another endpoint", 1, len(k.claim(queue.Slot{Endpoint: "free", Worker: "w", N: 1, Until: k.now + lease})))
			}),
		rule("ALimitIsNoPromise",
			"Ready counts what could be claimed while no job ends: the least of all limits",
			func(k *fixture) {
				for _, owner := range []string{"a", "b"} {
					for n := range 6 {
						k.add(ownedBy(owner), withKey(fmt.Sprint(n%2)))
					}
				}
				for _, c := range []struct {
					rules queue.Rules
					want  int64
				}{
					{queue.Rules{}, 12}, {queue.Rules{PerKey: 2}, 8}, {queue.Rules{PerKey: 2, PerUser: 3}, 6},
					{queue.Rules{PerKey: 1, PerUser: 3}, 4}, {queue.Rules{PerKey: 2, PerUser: 3, Total: 5}, 5}, {queue.Rules{Paused: true}, 0},
				} {
					k.rules = &c.rules
					k.wantCounts(c.want, 12-c.want)
				}
				k.rules = &queue.Rules{PerKey: 2, PerUser: 3, Total: 5}
				k.wantRoom("within all limits", 5)
			}),
		rule("PausedGivesNothing",
			"no job of a paused endpoint is claimed; running jobs go on, and the ttl too",
			func(k *fixture) {
				running := k.run()
				k.submitNamed("a")
				old := k.add(func(j *queue.Job) { j.Expires = k.now + 1000 })
				k.rules = &queue.Rules{Paused: true}
				k.wantRoom("of a paused endpoint", 0)
				k.wantCounts(0, 2)
				k.mustApply(finishOp(running, "1"))
				k.wait(time.Second)
				k.expire()
				k.wantGone(old)
				k.rules = nil
				k.wantClaims("w", "a")
			}),
		rule("ABlockedKeyBlocksNobody",
			"a key at its limit is passed by, also in a higher priority and for other owners",
			func(k *fixture) {
				k.rules = &queue.Rules{PerKey: 1, PerUser: 2}
				k.submitNamed("nine1 nine2", ownedBy("a"), withKey("a"), withPriority(9))
				k.submitNamed("low", ownedBy("a"), withPriority(0))
				k.submitNamed("b", ownedBy("b"), withPriority(0))
				k.wantClaims("w", "nine1 b low")
				k.wantRoom("at the limits", 0)
			}),
		rule("NewLimitsHoldFromTheNextClaim",
			"a limit that is lowered ends no job, and one that is raised makes room at once",
			func(k *fixture) {
				for range 9 {
					k.add(withKey("a"))
				}
				k.rules = &queue.Rules{PerKey: 4}
				held := k.wantRoom("of four places", 4)
				k.rules = &queue.Rules{PerKey: 2}
				k.wantRoom("above the limit", 0)
				k.mustApply(finishOp(held[0], "1"), finishOp(held[1], "1"))
				k.wantRoom("at the limit", 0)
				k.mustApply(finishOp(held[2], "1"))
				k.wantRoom("below the limit", 1)
				k.rules = &queue.Rules{PerKey: 3}
				k.wantRoom("of a raised limit", 1)
				k.rules = nil
				k.wantRoom("without a limit", 3)
			}),
		rule("AnAdoptedJobCounts",
			"a job that its worker took back counts as running, also above a limit",
			func(k *fixture) {
				k.rules = &queue.Rules{PerKey: 1}
				lost := k.run(withKey("a"))
				k.mustApply(queue.Op{Ref: lost.Ref, Kind: queue.OpWorkerLost, Worker: "w"})
				k.submitNamed("next last", withKey("a"))
				next := k.take("w")
				k.mustApply(withAdopt(workerOp(lost, queue.OpRenew, withUntil(k.now+lease))))
				k.mustApply(finishOp(next, "1"))
				k.wantRoom("while the adopted job runs", 0)
				k.mustApply(finishOp(lost, "1"))
				k.wantRoom("after its end", 1)
			}),
		rule("OldestCouldStart",
			"when jobs are blocked, Oldest is that of the oldest job that could start",
			func(k *fixture) {
				k.rules = &queue.Rules{PerKey: 1}
				k.submitNamed("a1 a2", withKey("a"))
				k.wait(time.Second)
				k.wantClaims("w", "a1")
				k.wantEqual("Oldest", queue.Instant(0), k.stats(echo).Oldest)
				b := k.add(withKey("b"))
				k.wantEqual("Oldest", b.Queued, k.stats(echo).Oldest)
			}),
	}...)
}
