package serverlesstest

import (
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// leases returns the log of leases of a job.
func (k *fixture) leases(j queue.Job) []queue.JobLease {
	k.Helper()
	list, err := k.q.PastLeases(k.Context(), k.now, j.Ref)
	if err != nil {
		k.Fatalf("PastLeases(%q) = %v, want nil", j.ID, err)
	}
	return list
}

// An endedBy is a way in which a lease ends and the job goes on.
type endedBy struct {
	end   queue.LeaseEnd
	after time.Duration // since the claim
	op    func(j queue.Job) queue.Op
	delay time.Duration // until the job is ready again
}

// waysToLose has each way once: the sweep does those without an op. The job has the policy of
// threeAttempts with timeouts.
func waysToLose() []endedBy {
	lost := func(j queue.Job) queue.Op { return queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: j.Worker} }
	return []endedBy{
		{end: queue.LeaseLost, after: lease * time.Millisecond},
		{end: queue.LeaseLost, after: time.Second, op: lost},
		{end: queue.LeaseReleased, after: time.Second, op: func(j queue.Job) queue.Op { return workerOp(j, queue.OpRelease) }},
		{end: queue.LeaseRestarted, after: time.Second, op: func(j queue.Job) queue.Op { return userOp(j, queue.OpRecover) }},
		{end: queue.LeaseFailed, after: time.Second, op: func(j queue.Job) queue.Op { return failOp(j, "no") }, delay: 2 * time.Second},
		{end: queue.LeaseLost, after: time.Second, op: func(j queue.Job) queue.Op { return workerOp(j, queue.OpNoResult) }},
		{end: queue.LeaseTimedOut, after: 40 * time.Second, delay: 6 * time.Second},
	}
}

func leaseLogCases() []QueueCase {
	return []QueueCase{
		rule("TheLogOfLeases",
			"PastLeases has each lease after which the job was queued again, in order: who had it, when, and how it ended",
			func(k *fixture) {
				j := k.add(threeAttempts, func(j *queue.Job) { j.Retry.Timeouts, j.ExecTimeout = true, 40*time.Second })
				k.wantEqual("PastLeases", []queue.JobLease(nil), k.leases(j))
				var want []queue.JobLease
				attempt := 1
				for n, by := range waysToLose() {
					w := queue.WorkerID(rune('a' + n))
					slot := k.slot(w, 1)
					if by.end == queue.LeaseTimedOut {
						slot.Until += lease
					}
					got := k.claim(slot)[0]
					k.wait(by.after)
					if by.op == nil {
						k.expire()
					} else {
						k.mustApply(by.op(got))
					}
					want = append(want, queue.JobLease{
						Attempt: attempt, Worker: w, Started: got.Started, Finished: k.now, End: by.end, Ready: k.now.Add(by.delay),
					})
					k.wantEqual("PastLeases", want, k.leases(j))
					k.wantEqual("Leases", n+1, int(k.get(j).Leases))
					if by.delay > 0 {
						attempt++
						k.wait(by.delay)
						k.expire()
					}
				}
				last := k.take("last")
				k.mustApply(failOp(last, "no more"))
				k.wantEqual("PastLeases of a job that has ended", want, k.leases(j))
				ended := k.now
				k.wait(time.Minute)
				k.mustApply(userOp(j, queue.OpRetry))
				want = append(want, queue.JobLease{
					Attempt: 3, Worker: "last", Started: last.Started, Finished: ended, End: queue.LeaseFailed, Ready: k.now,
				})
				k.wantEqual("PastLeases after a retry of the user", want, k.leases(j))
				k.mustApply(workerOp(k.take("again"), queue.OpRelease))
				k.wantEqual("Run, Attempt of the next one", []int{1, 1}, []int{int(k.leases(j)[len(want)].Run), k.leases(j)[len(want)].Attempt})
			}),
		rule("TheEndOfAJobIsNotInItsLogOfLeases",
			"a job that ends with its first lease has no log, and neither has a later job of its id",
			func(k *fixture) {
				for _, end := range []func(queue.Job) queue.Op{
					func(j queue.Job) queue.Op { return finishOp(j, "1") },
					func(j queue.Job) queue.Op { return failOp(j, "no") },
					func(j queue.Job) queue.Op { return userOp(j, queue.OpCancel) },
				} {
					j := k.run()
					k.mustApply(end(j))
					k.wantEqual("PastLeases", []queue.JobLease(nil), k.leases(j))
				}
				j := k.run()
				k.mustApply(workerOp(j, queue.OpRelease))
				k.mustApply(userOp(j, queue.OpCancel), userOp(j, queue.OpDelete))
				if _, err := k.q.PastLeases(k.Context(), k.now, j.Ref); !errors.Is(err, queue.ErrNotFound) {
					k.Errorf("PastLeases of a job that was deleted = %v, want ErrNotFound", err)
				}
				j = k.add(func(n *queue.Job) { n.Ref = j.Ref })
				k.wantEqual("PastLeases", []queue.JobLease(nil), k.leases(j))
			}),
		rule("TheLogOfLeasesIsBounded",
			"PastLeases has the last MaxLeases of a job, and State.Leases how many there were",
			func(k *fixture) {
				j := k.add()
				const n = 2*queue.MaxLeases + 3
				for i := range n {
					k.wait(time.Millisecond)
					k.mustApply(workerOp(k.take(queue.WorkerID(fmt.Sprint("w", i))), queue.OpRelease))
				}
				var workers []queue.WorkerID
				for _, l := range k.leases(j) {
					workers = append(workers, l.Worker)
				}
				var want []queue.WorkerID
				for i := range queue.MaxLeases {
					want = append(want, queue.WorkerID(fmt.Sprint("w", n-queue.MaxLeases+i)))
				}
				k.wantEqual("workers", want, workers)
				k.wantEqual("Leases", n, int(k.get(j).Leases))
			}),
		rule("TheLoserThatAdoptsAndHandsBackIsInTheLog",
			"a worker that goes on with a lease that it had lost has another lease, from the start of its work",
			func(k *fixture) {
				j := k.run()
				k.wait(time.Second)
				k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: "w"})
				lost := k.now
				k.wait(time.Second)
				k.mustApply(withAdopt(workerOp(j, queue.OpRelease)))
				k.wantEqual("PastLeases", []queue.JobLease{
					{Attempt: 1, Worker: "w", Started: j.Started, Finished: lost, End: queue.LeaseLost, Ready: lost},
					{Attempt: 1, Worker: "w", Started: j.Started, Finished: k.now, End: queue.LeaseReleased, Ready: k.now},
				}, k.leases(j))
			}),
		rule("TheFirstChunkHasItsTime",
			"FirstChunk is when the first chunk of the present lease was added, also when it was read; the log has that of an earlier lease",
			func(k *fixture) {
				j := k.run()
				k.wantEqual("FirstChunk", queue.Instant(0), k.get(j).FirstChunk)
				k.wait(time.Second)
				first := k.now
				k.mustApply(chunk(j, "1"))
				k.wait(time.Second)
				k.mustApply(chunk(j, "2"))
				list, s := k.chunks(j, 1)
				k.mustApply(drain(j, s, list))
				k.wantEqual("FirstChunk", first, k.get(j).FirstChunk)
				k.mustApply(workerOp(j, queue.OpRelease))
				k.wantEqual("FirstChunk of a job that is queued again, and of its log",
					[]queue.Instant{0, first}, []queue.Instant{k.get(j).FirstChunk, k.leases(j)[0].FirstChunk})
				again := k.take("v")
				k.wait(time.Second)
				k.mustApply(chunk(again, "1"))
				k.mustApply(finishOp(again, "1"))
				k.wantEqual("FirstChunk of a job that has ended", k.now, k.get(j).FirstChunk)
			}),
	}
}
