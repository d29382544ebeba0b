package serverlesstest

import (
	"slices"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

func claimCases() []QueueCase {
	return []QueueCase{
		rule("TheOldestFirst",
			"Claim gives the jobs of an endpoint in the order of Seq",
			func(k *fixture) {
				jobs := k.addN(7)
				var got []queue.JobID
				for _, n := range []int{1, 3, 2, 5} {
					got = append(got, ids(k.claim(k.slot("w", n)))...)
				}
				k.wantEqual("Claim", ids(jobs), got)
			}),
		rule("AClaimedJobIsComplete",
			"Claim returns the job after the claim: in progress, with the worker and the payloads",
			func(k *fixture) {
				want := k.add(withWebhook, func(j *queue.Job) { j.Extra = []byte(`{"s3Config":{}}`) })
				k.wait(3 * time.Second)
				got := k.take("w")
				want.Status, want.Worker, want.Token, want.Deliveries = queue.InProgress, "w", got.Token, 1
				want.Started, want.LeaseUntil, want.RunUntil = k.now, k.now+lease, k.now+exec
				k.wantEqual("Claim", want, got)
				k.wantEqual("Get", want, k.get(want))
			}),
		rule("NothingReadyIsNoError",
			"Claim of an endpoint without queued jobs returns at once without a job",
			func(k *fixture) {
				k.run()
				k.mustApply(userOp(k.add(), queue.OpCancel))
				k.wantEqual("Claim", 0, len(k.claim(k.slot("w", 3), queue.Slot{Endpoint: "unknown", Worker: "w", N: 1, Until: k.now + lease})))
			}),
		rule("ClaimAppends",
			"Claim appends to the slice it is given and keeps what is in it",
			func(k *fixture) {
				first := k.job()
				j := k.add()
				out, err := k.q.Claim(k.Context(), k.now, []queue.Slot{k.slot("w", 1)}, []queue.Job{first})
				if err != nil {
					k.Fatalf("Claim = %v, want nil", err)
				}
				k.wantEqual("out", []queue.JobID{first.ID, j.ID}, ids(out))
			}),
		rule("NoMoreThanAskedFor",
			"a slot gets at most N jobs, and none if N is 0",
			func(k *fixture) {
				k.addN(5)
				for _, n := range []int{0, 2} {
					k.wantEqual("jobs", n, len(k.claim(k.slot("w", n))))
				}
				k.wantEqual("Queued", int64(3), k.stats(echo).Queued)
			}),
		rule("SlotsAreServedInOrder",
			"several slots of one endpoint get the oldest jobs in the order they were given",
			func(k *fixture) {
				jobs := k.addN(4)
				got := map[queue.WorkerID][]queue.JobID{}
				for _, j := range k.claim(k.slot("a", 1), k.slot("b", 2), k.slot("c", 2)) {
					got[j.Worker] = append(got[j.Worker], j.ID)
				}
				k.wantEqual("jobs by worker", map[queue.WorkerID][]queue.JobID{
					"a": ids(jobs[:1]), "b": ids(jobs[1:3]), "c": ids(jobs[3:]),
				}, got)
			}),
		rule("SlotsOfSeveralEndpoints",
			"a slot gets jobs of its own endpoint, whatever other slots the call has",
			func(k *fixture) {
				a := k.addN(2, onEndpoint("a"))
				b := k.addN(2, onEndpoint("b"))
				got := map[queue.WorkerID][]queue.JobID{}
				for _, j := range k.claim(
					queue.Slot{Endpoint: "b", Worker: "wb", N: 1, Until: k.now + lease},
					queue.Slot{Endpoint: "none", Worker: "wn", N: 1, Until: k.now + lease},
					queue.Slot{Endpoint: "a", Worker: "wa", N: 3, Until: k.now + lease},
					queue.Slot{Endpoint: "b", Worker: "wb", N: 1, Until: k.now + lease},
				) {
					got[j.Worker] = append(got[j.Worker], j.ID)
				}
				k.wantEqual("jobs by worker", map[queue.WorkerID][]queue.JobID{"wa": ids(a), "wb": ids(b)}, got)
			}),
		rule("LowPriorityKeepsItsPlace",
			"a job of low priority is claimed in its turn (docs/decisions.md 29)",
			func(k *fixture) {
				jobs := []queue.Job{k.add(), k.add(lowPriority), k.add()}
				k.wantEqual("Claim", ids(jobs), ids(k.claim(k.slot("w", 3))))
			}),
		rule("ALostJobGoesToTheFront",
			"a job whose lease ended is claimed before all that were submitted later",
			func(k *fixture) {
				first := k.run()
				others := k.addN(2)
				k.now += lease
				k.expire()
				k.wantEqual("Claim", []queue.JobID{first.ID, others[0].ID, others[1].ID}, ids(k.claim(k.slot("other", 3))))
			}),
		rule("LostJobsKeepTheirOrder",
			"jobs that go back to the queue are claimed in the order of Seq, whatever order they came back in",
			func(k *fixture) {
				jobs := k.addN(6)
				held := k.claim(k.slot("w", 6))
				for _, i := range []int{3, 0, 5, 1} {
					k.mustApply(workerOp(held[i], queue.OpRelease))
				}
				later := k.add()
				want := []queue.JobID{jobs[0].ID, jobs[1].ID, jobs[3].ID, jobs[5].ID, later.ID}
				k.wantEqual("Claim", want, ids(k.claim(k.slot("w", 10))))
			}),
		rule("NotToTheWorkerThatLostIt",
			"a worker that lost a job gets the next job instead; another worker gets the lost job",
			func(k *fixture) {
				lost := k.run()
				next := k.addN(2)
				k.now += lease
				k.expire()
				k.wantEqual("Claim by the loser", ids(next[:1]), ids(k.claim(k.slot("w", 1))))
				k.wantEqual("Claim by another", []queue.JobID{lost.ID}, ids(k.claim(k.slot("other", 1))))
				k.wantEqual("Claim by the loser", ids(next[1:]), ids(k.claim(k.slot("w", 5))))
			}),
		rule("TheLoserLeavesTheOrderAsItIs",
			"a job that is not given to the worker that lost it keeps its place: the next slot of the call gets it first",
			func(k *fixture) {
				lost := k.run()
				next := k.add()
				k.now += lease
				k.expire()
				got := k.claim(k.slot("w", 0), k.slot("w", 0), k.slot("other", 1), k.slot("w", 1))
				k.wantEqual("Claim", []queue.JobID{lost.ID, next.ID}, ids(got))
			}),
		rule("TheLoserGetsItInTheEnd",
			"a worker gets a job again that it lost when nobody else has claimed it for LoserWait, at the next sweep and not before",
			func(k *fixture) { k.loserWaits() }),
		rule("TheLoserGetsItInTheEndAmongOwners",
			"a worker gets a job again that it lost after LoserWait on an endpoint with several owners and limits, too",
			func(k *fixture) {
				k.rules = &queue.Rules{PerKey: 1}
				k.mustApply(finishOp(k.run(ownedBy("another"), withKey("a")), "1"))
				k.loserWaits(withKey("a"))
			}),
		rule("TheWaitOfTheLoserEndsWithAnotherWorker",
			"a worker gets a job at once that it lost and that another worker has handed back since",
			func(k *fixture) {
				j := k.run()
				k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: "w"})
				k.mustApply(workerOp(k.take("other"), queue.OpRelease))
				k.wantEqual("Claim by the first loser", []queue.JobID{j.ID}, ids(k.claim(k.slot("w", 1))))
			}),
		rule("TheLastLoserOnly",
			"only the worker that lost the job last does not get it",
			func(k *fixture) {
				j := k.run()
				k.now += lease
				k.expire()
				k.take("second")
				k.now += lease
				k.expire()
				k.wantEqual("Claim by the last loser", 0, len(k.claim(k.slot("second", 1))))
				k.wantEqual("Claim by the first loser", []queue.JobID{j.ID}, ids(k.claim(k.slot("w", 1))))
			}),
		rule("NoJobPastItsTTL",
			"a queued job past its ttl is not given to a worker, swept or not",
			func(k *fixture) {
				old := k.add(func(j *queue.Job) { j.Expires = k.now + 1000 })
				young := k.add()
				k.wait(time.Second)
				k.wantEqual("Claim", []queue.JobID{young.ID}, ids(k.claim(k.slot("w", 5))))
				k.wantGone(old)
			}),
		rule("NoMoreThanTheBytes",
			"a slot gets no more jobs when the inputs of those it has got have its bytes",
			func(k *fixture) {
				jobs := k.addN(6)
				size := int(jobs[0].InBytes)
				slot := k.slot("w", 5)
				slot.Bytes = 2*size - 1
				other := k.slot("other", 5)
				other.Bytes = 1
				k.wantEqual("Claim", ids(jobs[:3]), ids(k.claim(slot, other)))
				k.wantEqual("Claim", ids(jobs[3:5]), ids(k.claim(k.slot("w", 2))))
			}),
		rule("NothingAfterCancel",
			"a job that was cancelled or purged is not claimed",
			func(k *fixture) {
				jobs := k.addN(4)
				k.mustApply(userOp(jobs[0], queue.OpCancel), userOp(jobs[2], queue.OpPurge))
				k.wantEqual("Claim", []queue.JobID{jobs[1].ID, jobs[3].ID}, ids(k.claim(k.slot("w", 5))))
			}),
		rule("ManyJobsInOrder",
			"thousands of jobs are claimed in order, each once, while others come and go back",
			func(k *fixture) {
				var want, got []queue.JobID
				for round := range 30 {
					batch := make([]queue.Job, 100)
					for i := range batch {
						batch[i] = k.job()
					}
					want = append(want, ids(k.enqueue(batch...))...)
					jobs := k.claim(k.slot("w", 90))
					back := len(jobs) - round%7 // these go back and are first next time
					for _, j := range slices.Backward(jobs[back:]) {
						k.mustApply(workerOp(j, queue.OpRelease))
					}
					got = append(got, ids(jobs[:back])...)
				}
				got = append(got, ids(k.claim(k.slot("w", 3000)))...)
				k.wantEqual("Claim", want, got)
			}),
	}
}

func tokenCases() []QueueCase {
	return []QueueCase{
		rule("TokensAreUnique",
			"every claim has a token that no claim had before; in a queue of one process, a larger one",
			func(k *fixture) {
				k.addN(10)
				last, used, shared := queue.Token(0), map[queue.Token]bool{0: true}, queue.IsShared(k.q)
				for range 3 {
					held := k.claim(k.slot("a", 3), k.slot("b", 2))
					for _, j := range held {
						if used[j.Token] {
							k.Errorf("token %d again, or none", j.Token)
						}
						if !shared && j.Token <= last {
							k.Errorf("token %d after %d, want a larger one", j.Token, last)
						}
						last, used[j.Token] = j.Token, true
						k.mustApply(workerOp(j, queue.OpRelease))
					}
				}
			}),
		rule("AnOldTokenIsRefused",
			"an op with the token of an earlier lease is refused, also when the worker has the job again",
			func(k *fixture) {
				old := k.run()
				k.mustApply(workerOp(old, queue.OpRelease))
				again := k.take("w")
				for _, op := range []queue.Op{
					finishOp(old, "1"), chunk(old, "1"), workerOp(old, queue.OpRenew), workerOp(old, queue.OpRelease), workerOp(old, queue.OpProgress),
				} {
					k.mustRefuse(op, queue.ErrLeaseLost)
					k.mustRefuse(withAdopt(op), queue.ErrLeaseLost)
				}
				k.mustApply(finishOp(again, "2"))
			}),
		rule("NoTokenIsTheLeaseHeld",
			"token 0 with a worker means the lease of this worker, and no other lease",
			func(k *fixture) {
				j := k.run()
				op := finishOp(j, "1")
				op.Token = 0
				op.Worker = "other"
				k.mustRefuse(op, queue.ErrLeaseLost)
				op.Worker = ""
				k.mustRefuse(op, queue.ErrLeaseLost)
				op.Worker = "w"
				k.mustApply(op)
			}),
		rule("AnothersTokenIsRefused",
			"a worker cannot use the token of another worker's lease",
			func(k *fixture) {
				k.addN(2)
				held := k.claim(k.slot("a", 1), k.slot("b", 1))
				op := finishOp(held[0], "1")
				op.Worker = "b"
				k.mustRefuse(op, queue.ErrLeaseLost)
				op.Worker, op.Token = "a", held[1].Token
				k.mustRefuse(op, queue.ErrLeaseLost)
			}),
	}
}

// loserWaits has worker w lose a job, which it gets again after LoserWait.
func (k *fixture) loserWaits(change ...func(*queue.Job)) {
	k.Helper()
	j := k.run(change...)
	k.now += lease
	next := k.expire()
	free := k.now.Add(queue.LoserWait)
	if next == 0 || next > free {
		k.Errorf("Expire after a loss = %d, want at most %d, when the loser may claim", next, free)
	}
	k.now = free - 1
	k.expire()
	k.wantEqual("Claim before the end of the wait", 0, len(k.claim(k.slot("w", 1))))
	k.now = free
	k.expire()
	got := k.take("w")
	k.wantEqual("the job, Deliveries", []any{j.Ref, uint8(2)}, []any{got.Ref, got.Deliveries})
	k.mustRefuse(finishOp(j, "1"), queue.ErrLeaseLost)
	k.mustApply(finishOp(got, "2"))
}
