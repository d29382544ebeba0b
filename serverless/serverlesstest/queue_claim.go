package serverlesstest

import (
	"slices"
	"time"

	"github.com/podyard/podyard/serverless"
)

func claimCases() []QueueCase {
	return []QueueCase{
		rule("TheOldestFirst",
			"Claim gives the jobs of an endpoint in the order of Seq",
			func(k *kit) {
				jobs := k.addN(7)
				var got []serverless.JobID
				for _, n := range []int{1, 3, 2, 5} {
					got = append(got, ids(k.claim(k.slot("w", n)))...)
				}
				k.equal("Claim", ids(jobs), got)
			}),
		rule("AClaimedJobIsComplete",
			"Claim returns the job as it is now: in progress, of the worker, with its payloads",
			func(k *kit) {
				want := k.add(hooked, func(j *serverless.Job) { j.Extra = []byte(`{"s3Config":{}}`) })
				k.wait(3 * time.Second)
				got := k.take("w")
				want.Status, want.Worker, want.Token, want.Deliveries = serverless.InProgress, "w", got.Token, 1
				want.Started, want.LeaseUntil, want.RunUntil = k.now, k.now+lease, k.now+exec
				k.equal("Claim", want, got)
				k.equal("Get", want, k.get(want))
			}),
		rule("NothingReadyIsNoError",
			"Claim of an endpoint without queued jobs gives nothing at once",
			func(k *kit) {
				k.run()
				k.must(user(k.add(), serverless.OpCancel))
				k.equal("Claim", 0, len(k.claim(k.slot("w", 3), serverless.Slot{Endpoint: "unknown", Worker: "w", N: 1, Until: k.now + lease})))
			}),
		rule("ClaimAppends",
			"Claim appends to the slice it is given and keeps what is in it",
			func(k *kit) {
				first := k.job()
				j := k.add()
				out, err := k.q.Claim(k.Context(), k.now, []serverless.Slot{k.slot("w", 1)}, []serverless.Job{first})
				if err != nil {
					k.Fatalf("Claim = %v, want nil", err)
				}
				k.equal("out", []serverless.JobID{first.ID, j.ID}, ids(out))
			}),
		rule("NoMoreThanAskedFor",
			"a slot gets N jobs at most, one with N 0 none",
			func(k *kit) {
				k.addN(5)
				for _, n := range []int{0, 2} {
					k.equal("jobs", n, len(k.claim(k.slot("w", n))))
				}
				k.equal("Queued", int64(3), k.stats(echo).Queued)
			}),
		rule("SlotsAreServedInOrder",
			"several slots of one endpoint get the oldest jobs in the order they were given",
			func(k *kit) {
				jobs := k.addN(4)
				got := map[serverless.WorkerID][]serverless.JobID{}
				for _, j := range k.claim(k.slot("a", 1), k.slot("b", 2), k.slot("c", 2)) {
					got[j.Worker] = append(got[j.Worker], j.ID)
				}
				k.equal("jobs by worker", map[serverless.WorkerID][]serverless.JobID{
					"a": ids(jobs[:1]), "b": ids(jobs[1:3]), "c": ids(jobs[3:]),
				}, got)
			}),
		rule("SlotsOfSeveralEndpoints",
			"a slot gets jobs of its own endpoint, whatever other slots the call has",
			func(k *kit) {
				a := k.addN(2, on("a"))
				b := k.addN(2, on("b"))
				got := map[serverless.WorkerID][]serverless.JobID{}
				for _, j := range k.claim(
					serverless.Slot{Endpoint: "b", Worker: "wb", N: 1, Until: k.now + lease},
					serverless.Slot{Endpoint: "none", Worker: "wn", N: 1, Until: k.now + lease},
					serverless.Slot{Endpoint: "a", Worker: "wa", N: 3, Until: k.now + lease},
					serverless.Slot{Endpoint: "b", Worker: "wb", N: 1, Until: k.now + lease},
				) {
					got[j.Worker] = append(got[j.Worker], j.ID)
				}
				k.equal("jobs by worker", map[serverless.WorkerID][]serverless.JobID{"wa": ids(a), "wb": ids(b)}, got)
			}),
		rule("LowPriorityKeepsItsPlace",
			"a job of low priority is claimed in its turn (decisions: order is unchanged)",
			func(k *kit) {
				jobs := []serverless.Job{k.add(), k.add(low), k.add()}
				k.equal("Claim", ids(jobs), ids(k.claim(k.slot("w", 3))))
			}),
		rule("ALostJobGoesToTheFront",
			"a job whose lease ended is claimed before all that were submitted later",
			func(k *kit) {
				first := k.run()
				others := k.addN(2)
				k.now += lease
				k.expire()
				k.equal("Claim", []serverless.JobID{first.ID, others[0].ID, others[1].ID}, ids(k.claim(k.slot("other", 3))))
			}),
		rule("LostJobsKeepTheirOrder",
			"jobs that go back to the queue are claimed in the order of Seq, whatever order they came back in",
			func(k *kit) {
				jobs := k.addN(6)
				held := k.claim(k.slot("w", 6))
				for _, i := range []int{3, 0, 5, 1} {
					k.must(as(held[i], serverless.OpRelease))
				}
				later := k.add()
				want := []serverless.JobID{jobs[0].ID, jobs[1].ID, jobs[3].ID, jobs[5].ID, later.ID}
				k.equal("Claim", want, ids(k.claim(k.slot("w", 10))))
			}),
		rule("NotToTheWorkerThatLostIt",
			"a worker that lost a job is not given it again; others are, and it gets the next one",
			func(k *kit) {
				lost := k.run()
				next := k.addN(2)
				k.now += lease
				k.expire()
				k.equal("Claim by the loser", ids(next[:1]), ids(k.claim(k.slot("w", 1))))
				k.equal("Claim by another", []serverless.JobID{lost.ID}, ids(k.claim(k.slot("other", 1))))
				k.equal("Claim by the loser", ids(next[1:]), ids(k.claim(k.slot("w", 5))))
			}),
		rule("TheLoserLeavesTheOrderAsItIs",
			"that the loser is passed over does not move the job: in the same call the next slot gets it first",
			func(k *kit) {
				lost := k.run()
				next := k.add()
				k.now += lease
				k.expire()
				got := k.claim(k.slot("w", 0), k.slot("w", 0), k.slot("other", 1), k.slot("w", 1))
				k.equal("Claim", []serverless.JobID{lost.ID, next.ID}, ids(got))
			}),
		rule("TheLastLoserOnly",
			"only the worker that lost the job last is passed over",
			func(k *kit) {
				j := k.run()
				k.now += lease
				k.expire()
				k.take("second")
				k.now += lease
				k.expire()
				k.equal("Claim by the last loser", 0, len(k.claim(k.slot("second", 1))))
				k.equal("Claim by the first loser", []serverless.JobID{j.ID}, ids(k.claim(k.slot("w", 1))))
			}),
		rule("NoJobPastItsTTL",
			"a queued job past its ttl is not given to a worker, swept or not",
			func(k *kit) {
				old := k.add(func(j *serverless.Job) { j.Expires = k.now + 1000 })
				young := k.add()
				k.wait(time.Second)
				k.equal("Claim", []serverless.JobID{young.ID}, ids(k.claim(k.slot("w", 5))))
				k.gone(old)
			}),
		rule("NothingAfterCancel",
			"a job that was cancelled or purged is not claimed",
			func(k *kit) {
				jobs := k.addN(4)
				k.must(user(jobs[0], serverless.OpCancel), user(jobs[2], serverless.OpPurge))
				k.equal("Claim", []serverless.JobID{jobs[1].ID, jobs[3].ID}, ids(k.claim(k.slot("w", 5))))
			}),
		rule("ManyJobsInOrder",
			"thousands of jobs are claimed in order, each once, while others come and go back",
			func(k *kit) {
				var want, got []serverless.JobID
				for round := range 30 {
					batch := make([]serverless.Job, 100)
					for i := range batch {
						batch[i] = k.job()
					}
					want = append(want, ids(k.enqueue(batch...))...)
					jobs := k.claim(k.slot("w", 90))
					back := len(jobs) - round%7 // these go back and are first next time
					for _, j := range slices.Backward(jobs[back:]) {
						k.must(as(j, serverless.OpRelease))
					}
					got = append(got, ids(jobs[:back])...)
				}
				got = append(got, ids(k.claim(k.slot("w", 3000)))...)
				k.equal("Claim", want, got)
			}),
	}
}

func tokenCases() []QueueCase {
	return []QueueCase{
		rule("TokensGrow",
			"every claim has a token that no claim had before, and a larger one",
			func(k *kit) {
				k.addN(10)
				last := serverless.Token(0)
				for range 3 {
					held := k.claim(k.slot("a", 3), k.slot("b", 2))
					for _, j := range held {
						if j.Token <= last {
							k.Errorf("token %d after %d, want a larger one", j.Token, last)
						}
						last = j.Token
						k.must(as(j, serverless.OpRelease))
					}
				}
			}),
		rule("AnOldTokenIsRefused",
			"what a worker says under the token of an earlier lease is refused, also when it has the job again",
			func(k *kit) {
				old := k.run()
				k.must(as(old, serverless.OpRelease))
				again := k.take("w")
				for _, op := range []serverless.Op{
					done(old, "1"), chunk(old, "1"), as(old, serverless.OpRenew), as(old, serverless.OpRelease), as(old, serverless.OpProgress),
				} {
					k.refuse(op, serverless.ErrLeaseLost)
					k.refuse(adopting(op), serverless.ErrLeaseLost)
				}
				k.must(done(again, "2"))
			}),
		rule("NoTokenIsTheLeaseHeld",
			"token 0 with a worker means the lease that this worker holds, and nobody else's",
			func(k *kit) {
				j := k.run()
				op := done(j, "1")
				op.Token = 0
				op.Worker = "other"
				k.refuse(op, serverless.ErrLeaseLost)
				op.Worker = ""
				k.refuse(op, serverless.ErrLeaseLost)
				op.Worker = "w"
				k.must(op)
			}),
		rule("AnothersTokenIsRefused",
			"a worker cannot act under the token of another one's lease",
			func(k *kit) {
				k.addN(2)
				held := k.claim(k.slot("a", 1), k.slot("b", 1))
				op := done(held[0], "1")
				op.Worker = "b"
				k.refuse(op, serverless.ErrLeaseLost)
				op.Worker, op.Token = "a", held[1].Token
				k.refuse(op, serverless.ErrLeaseLost)
			}),
	}
}
