package serverlesstest

import (
	"fmt"
	"slices"
	"time"

	"github.com/podyard/podyard/serverless"
)

func retryCases() []QueueCase {
	return []QueueCase{
		rule("RetryStartsAnew",
			"a retried job is queued at the end, with its input, ttl and owner; all else of the run is void",
			func(k *kit) {
				submitted := k.add(hooked)
				j := k.take("w")
				k.must(chunk(j, "old"), as(j, serverless.OpProgress, func(op *serverless.Op) { op.Payload = []byte("1") }))
				op := failed(j, "no")
				op.Payload = []byte("2")
				k.must(op)
				waiting := k.add()
				k.wait(time.Minute)
				s := k.must(user(j, serverless.OpRetry))
				if s.Seq <= waiting.Seq {
					k.Errorf("Seq after retry = %d, want one above %d", s.Seq, waiting.Seq)
				}
				want := submitted
				want.Run, want.Queued, want.Seq, want.Token = 1, k.now, s.Seq, s.Token
				k.equal("the job", want, k.get(j))
				left, _ := k.chunks(j, 1<<20)
				k.equal("chunks", []string(nil), left)
				k.equal("Claim", []serverless.JobID{waiting.ID, j.ID}, ids(k.claim(k.slot("w", 2))))
			}),
		rule("RetryCountsDeliveriesAnew",
			"a retried job has MaxDeliveries deliveries again, and any worker may have it",
			func(k *kit) {
				j := k.add()
				for range 2 {
					for i := range serverless.MaxDeliveries {
						w := serverless.WorkerID(rune('a' + i))
						k.take(w)
						k.must(serverless.Op{Ref: j.Ref, Kind: serverless.OpLose, Worker: w})
					}
					k.status(j, serverless.Failed)
					k.must(user(j, serverless.OpRetry))
				}
				k.equal("Run", uint32(2), k.take("c").Run)
			}),
		rule("RetryInEachStatus",
			"FAILED and TIMED_OUT jobs can be retried, others answer ErrStatus",
			func(k *kit) {
				queued := k.add()
				k.refuse(user(queued, serverless.OpRetry), serverless.ErrStatus)
				j := k.take("w")
				k.refuse(user(j, serverless.OpRetry), serverless.ErrStatus)
				k.must(done(j, "1"))
				k.refuse(user(j, serverless.OpRetry), serverless.ErrStatus)
				cancelled := k.add()
				k.must(user(cancelled, serverless.OpCancel))
				k.refuse(user(cancelled, serverless.OpRetry), serverless.ErrStatus)
				late := k.run(func(j *serverless.Job) { j.ExecTimeout = 5000 })
				k.wait(5 * time.Second)
				k.expire()
				k.status(late, serverless.TimedOut)
				k.must(user(late, serverless.OpRetry))
				k.must(done(k.take("w"), "2"))
				k.equal("Reason, Output", []any{serverless.NoReason, "2"}, []any{k.get(late).Reason, string(k.get(late).Output)})
			}),
		rule("RetryIsNewInTheList",
			"a retried job is listed where its new Seq is, once",
			func(k *kit) {
				j := k.run()
				k.must(failed(j, "no"))
				others := k.addN(2)
				k.must(user(j, serverless.OpRetry))
				k.equal("List", []serverless.JobID{j.ID, others[1].ID, others[0].ID}, k.list(serverless.ListQuery{Endpoint: echo}))
			}),
		rule("RetryManyTimes",
			"a job can be retried again and again; Run grows each time, and each run has a delivery of its own",
			func(k *kit) {
				j := k.add(hooked)
				const n = 600
				sent := map[string]bool{}
				for i := range n {
					k.must(failed(k.take("w"), fmt.Sprint(i)))
					d := k.delivery()
					sent[d.ID] = true
					k.equal("Run, Error of the delivery", []any{uint32(i), fmt.Sprint(i)}, []any{d.Job.Run, d.Job.Error})
					k.record(k.attempt(d, 0))
					k.equal("Run", uint32(i+1), k.must(user(j, serverless.OpRetry)).Run)
				}
				k.equal("Run, deliveries", []any{uint32(n), n}, []any{k.get(j).Run, len(sent)})
				st := k.stats(echo)
				k.equal("Queued, Failed, Retried", []int64{1, n, 0}, []int64{st.Queued, st.Failed, st.Retried})
			}),
		rule("RetentionEndsWithRetry",
			"a retried job is not deleted when the retention of its failed run would have ended",
			func(k *kit) {
				j := k.run()
				k.must(failed(j, "no"))
				k.now += keep - 1
				k.must(user(j, serverless.OpRetry))
				k.wait(time.Hour)
				k.expire()
				k.status(j, serverless.InQueue)
			}),
	}
}

// purge purges to the end and returns how many were removed, and in how many calls.
func (k *kit) purge(p serverless.PurgeQuery) (removed, calls int) {
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
	everything := serverless.PurgeQuery{Endpoint: echo, UpTo: 1<<63 - 1, Limit: 1000}
	return []QueueCase{
		rule("PurgeCancelsWhatIsQueued",
			"purge makes the queued jobs CANCELLED and counts them exactly; running and ended ones stay",
			func(k *kit) {
				ended := k.run()
				k.must(done(ended, "1"))
				running := k.run()
				queued := k.addN(5)
				other := k.add(on("other"))
				n, _ := k.purge(everything)
				k.equal("removed", 5, n)
				for _, j := range queued {
					got := k.status(j, serverless.Cancelled)
					k.equal("Finished", k.now, got.Finished)
				}
				k.status(ended, serverless.Completed)
				k.status(running, serverless.InProgress)
				k.status(other, serverless.InQueue)
				k.equal("Queued", int64(0), k.stats(echo).Queued)
				k.equal("Claim", 0, len(k.claim(k.slot("w", 10))))
			}),
		rule("PurgeOfNothing",
			"purge of an endpoint without jobs, or of a user without any, removes none",
			func(k *kit) {
				n, _ := k.purge(everything)
				k.equal("removed", 0, n)
				k.add()
				q := everything
				q.Owner = "nobody"
				n, _ = k.purge(q)
				k.equal("removed", 0, n)
			}),
		rule("PurgeOfAnOwner",
			"purge for an owner removes the jobs of that owner and no others",
			func(k *kit) {
				for i := range 10 {
					k.add(of([]string{"a", "b"}[i%2]))
				}
				q := everything
				q.Owner = "a"
				n, _ := k.purge(q)
				k.equal("removed", 5, n)
				for _, j := range k.claim(k.slot("w", 10)) {
					k.equal("owner of what is left", "b", j.Owner)
				}
			}),
		rule("PurgeHasACutOff",
			"jobs with a Seq above UpTo, submitted or retried meanwhile, survive",
			func(k *kit) {
				again := k.run()
				k.must(failed(again, "no"))
				k.addN(4)
				q := everything
				q.UpTo = k.stats(echo).LastSeq
				k.must(user(again, serverless.OpRetry))
				late := k.add()
				n, _ := k.purge(q)
				k.equal("removed", 4, n)
				k.equal("Claim", []serverless.JobID{again.ID, late.ID}, ids(k.claim(k.slot("w", 10))))
			}),
		rule("PurgeGoesOnWhereItStopped",
			"purge in steps of Limit removes what one purge would, each job once",
			func(k *kit) {
				jobs := make([]serverless.Job, 1000)
				for i := range jobs {
					jobs[i] = k.job(of([]string{"a", "b", "c"}[i%3]))
				}
				k.enqueue(jobs...)
				k.claim(k.slot("w", 100))
				for _, q := range []serverless.PurgeQuery{
					{Endpoint: echo, Owner: "b", UpTo: 1<<63 - 1, Limit: 7},
					{Endpoint: echo, UpTo: 1<<63 - 1, Limit: 64},
				} {
					before := k.stats(echo).Queued
					n, calls := k.purge(q)
					k.equal("removed", int(before-k.stats(echo).Queued), n)
					if calls < n/q.Limit {
						k.Errorf("%d jobs in %d calls of at most %d", n, calls, q.Limit)
					}
				}
				st := k.stats(echo)
				k.equal("Queued, Running", []int64{0, 100}, []int64{st.Queued, st.Running})
			}),
		rule("PurgeAfter",
			"purge looks at jobs with a Seq above After only",
			func(k *kit) {
				jobs := k.addN(6)
				q := everything
				q.After, q.UpTo = jobs[1].Seq, jobs[3].Seq
				n, _ := k.purge(q)
				k.equal("removed", 2, n)
				k.equal("Claim", []serverless.JobID{jobs[0].ID, jobs[1].ID, jobs[4].ID, jobs[5].ID}, ids(k.claim(k.slot("w", 10))))
			}),
		rule("PurgeFindsWhatCameBack",
			"a job that a worker lost or handed back is queued and purged as well",
			func(k *kit) {
				k.addN(3)
				for _, j := range k.claim(k.slot("w", 2)) {
					k.must(as(j, serverless.OpRelease))
				}
				n, _ := k.purge(everything)
				k.equal("removed", 3, n)
				k.equal("Claim", 0, len(k.claim(k.slot("w", 10))))
			}),
		rule("PurgeOfWhatIsPastItsTTL",
			"jobs past their ttl are not counted as removed, and do not keep purge from the others",
			func(k *kit) {
				const n, none = 3000, 1000 // the first ones are all past their ttl
				jobs := make([]serverless.Job, n)
				var stay []serverless.JobID
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
				k.equal("removed", len(stay), removed)
				k.expire()
				slices.Reverse(stay)
				k.equal("List", stay, k.list(serverless.ListQuery{Endpoint: echo, Status: []serverless.Status{serverless.Cancelled}}))
			}),
		rule("OnlyQueuedJobsArePurged",
			"OpPurge cancels a queued job and answers ErrStatus for any other",
			func(k *kit) {
				j := k.run()
				k.refuse(user(j, serverless.OpPurge), serverless.ErrStatus)
				k.must(done(j, "1"))
				k.refuse(user(j, serverless.OpPurge), serverless.ErrStatus)
				queued := k.add()
				k.must(user(queued, serverless.OpPurge))
				k.status(queued, serverless.Cancelled)
			}),
	}
}
