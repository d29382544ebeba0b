package serverlesstest

import (
	"fmt"
	"slices"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

func retryCases() []QueueCase {
	return []QueueCase{
		rule("RetryStartsAnew",
			"a retried job is queued at the end, with its input, ttl and owner; all else of the run is void",
			func(k *fixture) {
				submitted := k.add(withWebhook)
				j := k.take("w")
				k.mustApply(chunk(j, "old"), workerOp(j, queue.OpProgress, func(op *queue.Op) { op.Payload = []byte("1") }))
				op := failOp(j, "no")
				op.Payload = []byte("2")
				k.mustApply(op)
				waiting := k.add()
				k.wait(time.Minute)
				s := k.mustApply(userOp(j, queue.OpRetry))
				if s.Seq <= waiting.Seq {
					k.Errorf("Seq after retry = %d, want one above %d", s.Seq, waiting.Seq)
				}
				want := submitted
				want.Run, want.Queued, want.Seq, want.Token, want.Leases = 1, k.now, s.Seq, s.Token, 1
				k.wantEqual("the job", want, k.get(j))
				left, _ := k.chunks(j, 1<<20)
				k.wantEqual("chunks", []string(nil), left)
				k.wantEqual("Claim", []queue.JobID{waiting.ID, j.ID}, ids(k.claim(k.slot("w", 2))))
			}),
		rule("RetryCountsDeliveriesAnew",
			"a retried job has MaxDeliveries deliveries again, and any worker may have it",
			func(k *fixture) {
				j := k.add()
				for range 2 {
					for i := range queue.MaxDeliveries {
						w := queue.WorkerID(rune('a' + i))
						k.take(w)
						k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: w})
					}
					k.wantStatus(j, queue.Failed)
					k.mustApply(userOp(j, queue.OpRetry))
				}
				k.wantEqual("Run", uint32(2), k.take("c").Run)
			}),
		rule("RetryInEachStatus",
			"FAILED and TIMED_OUT jobs can be retried, others answer ErrStatus",
			func(k *fixture) {
				queued := k.add()
				k.mustRefuse(userOp(queued, queue.OpRetry), queue.ErrStatus)
				j := k.take("w")
				k.mustRefuse(userOp(j, queue.OpRetry), queue.ErrStatus)
				k.mustApply(finishOp(j, "1"))
				k.mustRefuse(userOp(j, queue.OpRetry), queue.ErrStatus)
				cancelled := k.add()
				k.mustApply(userOp(cancelled, queue.OpCancel))
				k.mustRefuse(userOp(cancelled, queue.OpRetry), queue.ErrStatus)
				late := k.run(func(j *queue.Job) { j.ExecTimeout = 5 * time.Second })
				k.wait(5 * time.Second)
				k.expire()
				k.wantStatus(late, queue.TimedOut)
				k.mustApply(userOp(late, queue.OpRetry))
				k.mustApply(finishOp(k.take("w"), "2"))
				k.wantEqual("Reason, Output", []any{queue.NoReason, "2"}, []any{k.get(late).Reason, string(k.get(late).Output)})
			}),
		rule("RetryIsNewInTheList",
			"a retried job is listed where its new Seq is, once",
			func(k *fixture) {
				j := k.run()
				k.mustApply(failOp(j, "no"))
				others := k.addN(2)
				k.mustApply(userOp(j, queue.OpRetry))
				k.wantEqual("List", []queue.JobID{j.ID, others[1].ID, others[0].ID}, k.list(queue.ListQuery{Endpoint: echo}))
			}),
		rule("RetryManyTimes",
			"a job can be retried again and again; Run grows each time, and each run has a delivery of its own",
			func(k *fixture) {
				j := k.add(withWebhook)
				const n = 600
				sent := map[string]bool{}
				for i := range n {
					k.mustApply(failOp(k.take("w"), fmt.Sprint(i)))
					d := k.delivery()
					sent[d.ID] = true
					k.wantEqual("Run, Error of the delivery", []any{uint32(i), fmt.Sprint(i)}, []any{d.Job.Run, d.Job.Error})
					k.record(k.attempt(d, 0))
					k.wantEqual("Run", uint32(i+1), k.mustApply(userOp(j, queue.OpRetry)).Run)
				}
				k.wantEqual("Run, deliveries", []any{uint32(n), n}, []any{k.get(j).Run, len(sent)})
				st := k.stats(echo)
				k.wantEqual("Queued, Failed, Retried", []int64{1, n, 0}, []int64{st.Queued, st.Failed, st.Retried})
			}),
		rule("RetentionEndsWithRetry",
			"a retried job is not deleted when the retention of its failed run would have ended",
			func(k *fixture) {
				j := k.run()
				k.mustApply(failOp(j, "no"))
				k.now += keep - 1
				k.mustApply(userOp(j, queue.OpRetry))
				k.wait(time.Hour)
				k.expire()
				k.wantStatus(j, queue.InQueue)
			}),
	}
}

// purge purges to the end and returns how many were removed, and in how many calls.
func (k *fixture) purge(p queue.PurgeQuery) (removed, calls int) {
	k.Helper()
	for calls = 1; calls < 10_000; calls++ {
		n, next, err := k.q.Purge(k.Context(), k.now, p)
		if err != nil {
			k.Fatalf("Purge = %v, want nil", err)
		}
		if n > p.Limit {
			k.Errorf("Purge removed %d jobs, want %d at most", n, p.Limit)
		}
		removed += n
		if next == 0 {
			return removed, calls
		}
		if next <= p.After {
			k.Fatalf("Purge after %d says to go on after %d: it does not get on", p.After, next)
		}
		p.After = next
	}
	k.Fatalf("Purge is not done after %d calls", calls)
	return 0, 0
}

func purgeCases() []QueueCase {
	everything := queue.PurgeQuery{Endpoint: echo, UpTo: 1<<63 - 1, Limit: 1000}
	return []QueueCase{
		rule("PurgeCancelsWhatIsQueued",
			"purge makes the queued jobs CANCELLED and counts them exactly; running and ended ones stay",
			func(k *fixture) {
				ended := k.run()
				k.mustApply(finishOp(ended, "1"))
				running := k.run()
				queued := k.addN(5)
				other := k.add(onEndpoint("other"))
				n, _ := k.purge(everything)
				k.wantEqual("removed", 5, n)
				for _, j := range queued {
					got := k.wantStatus(j, queue.Cancelled)
					k.wantEqual("Finished", k.now, got.Finished)
				}
				k.wantStatus(ended, queue.Completed)
				k.wantStatus(running, queue.InProgress)
				k.wantStatus(other, queue.InQueue)
				k.wantEqual("Queued", int64(0), k.stats(echo).Queued)
				k.wantEqual("Claim", 0, len(k.claim(k.slot("w", 10))))
			}),
		rule("PurgeOfNothing",
			"purge of an endpoint without jobs, or of a user without any, removes none",
			func(k *fixture) {
				n, _ := k.purge(everything)
				k.wantEqual("removed", 0, n)
				k.add()
				q := everything
				q.Owner = "nobody"
				n, _ = k.purge(q)
				k.wantEqual("removed", 0, n)
			}),
		rule("PurgeOfAnOwner",
			"purge for an owner removes the jobs of that owner and no others",
			func(k *fixture) {
				for i := range 10 {
					k.add(ownedBy([]string{"a", "b"}[i%2]))
				}
				q := everything
				q.Owner = "a"
				n, _ := k.purge(q)
				k.wantEqual("removed", 5, n)
				for _, j := range k.claim(k.slot("w", 10)) {
					k.wantEqual("owner of what is left", "b", j.Owner)
				}
			}),
		rule("PurgeHasACutOff",
			"jobs with a Seq above UpTo, submitted or retried meanwhile, survive",
			func(k *fixture) {
				again := k.run()
				k.mustApply(failOp(again, "no"))
				k.addN(4)
				q := everything
				q.UpTo = k.stats(echo).LastSeq
				k.mustApply(userOp(again, queue.OpRetry))
				late := k.add()
				n, _ := k.purge(q)
				k.wantEqual("removed", 4, n)
				k.wantEqual("Claim", []queue.JobID{again.ID, late.ID}, ids(k.claim(k.slot("w", 10))))
			}),
		rule("PurgeGoesOnWhereItStopped",
			"purge in steps of Limit removes what one purge would, each job once",
			func(k *fixture) {
				jobs := make([]queue.Job, 1000)
				for i := range jobs {
					jobs[i] = k.job(ownedBy([]string{"a", "b", "c"}[i%3]))
				}
				k.enqueue(jobs...)
				k.claim(k.slot("w", 100))
				for _, q := range []queue.PurgeQuery{
					{Endpoint: echo, Owner: "b", UpTo: 1<<63 - 1, Limit: 7},
					{Endpoint: echo, UpTo: 1<<63 - 1, Limit: 64},
				} {
					before := k.stats(echo).Queued
					n, calls := k.purge(q)
					k.wantEqual("removed", int(before-k.stats(echo).Queued), n)
					if calls < n/q.Limit {
						k.Errorf("%d jobs in %d calls of at most %d", n, calls, q.Limit)
					}
				}
				st := k.stats(echo)
				k.wantEqual("Queued, Running", []int64{0, 100}, []int64{st.Queued, st.Running})
			}),
		rule("PurgeAfter",
			"purge looks at jobs with a Seq above After only",
			func(k *fixture) {
				jobs := k.addN(6)
				q := everything
				q.After, q.UpTo = jobs[1].Seq, jobs[3].Seq
				n, _ := k.purge(q)
				k.wantEqual("removed", 2, n)
				k.wantEqual("Claim", []queue.JobID{jobs[0].ID, jobs[1].ID, jobs[4].ID, jobs[5].ID}, ids(k.claim(k.slot("w", 10))))
			}),
		rule("PurgeFindsWhatCameBack",
			"a job that a worker lost or handed back is queued and purged as well",
			func(k *fixture) {
				k.addN(3)
				for _, j := range k.claim(k.slot("w", 2)) {
					k.mustApply(workerOp(j, queue.OpRelease))
				}
				n, _ := k.purge(everything)
				k.wantEqual("removed", 3, n)
				k.wantEqual("Claim", 0, len(k.claim(k.slot("w", 10))))
			}),
		rule("PurgeOfWhatIsPastItsTTL",
			"jobs past their ttl are not counted as removed, and do not keep purge from the others",
			func(k *fixture) {
				const n, none = 3000, 1000 // the first ones are all past their ttl
				jobs := make([]queue.Job, n)
				var stay []queue.JobID
				for i := range jobs {
					jobs[i] = k.job()
					if i < none || i%25 != 0 {
						jobs[i].Expires = k.now + 1000
						continue
					}
					stay = append(stay, jobs[i].ID)
				}
				k.enqueue(jobs...)
				k.wait(time.Second)
				removed, _ := k.purge(everything)
				k.wantEqual("removed", len(stay), removed)
				k.expire()
				slices.Reverse(stay)
				k.wantEqual("List", stay, k.list(queue.ListQuery{Endpoint: echo, Status: []queue.Status{queue.Cancelled}}))
			}),
		rule("OnlyQueuedJobsArePurged",
			"OpPurge cancels a queued job and answers ErrStatus for any other",
			func(k *fixture) {
				j := k.run()
				k.mustRefuse(userOp(j, queue.OpPurge), queue.ErrStatus)
				k.mustApply(finishOp(j, "1"))
				k.mustRefuse(userOp(j, queue.OpPurge), queue.ErrStatus)
				queued := k.add()
				k.mustApply(userOp(queued, queue.OpPurge))
				k.wantStatus(queued, queue.Cancelled)
			}),
	}
}
