package serverlesstest

import (
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

func keepsResult(j *queue.Job) { j.Flags |= queue.KeepsResult }

// retainCases are the rules of results that outlive the ttl.
func retainCases() []QueueCase {
	short := func(j *queue.Job) { j.Expires = j.Submitted + 1000 }
	kept := func(d time.Duration) func(*queue.Job) {
		return func(j *queue.Job) { keepsResult(j); j.Retain = d }
	}
	return []QueueCase{
		rule("AKeptResultOutlivesTheTTL",
			"the ttl of a job with KeepsResult bounds only the time until its end: the result is there for Retain, and then gone, swept or not",
			func(k *fixture) {
				for _, end := range []func(queue.Job) queue.Op{
					func(j queue.Job) queue.Op { return finishOp(j, "1") },
					func(j queue.Job) queue.Op { return failOp(j, "no") },
					func(j queue.Job) queue.Op { return userOp(j, queue.OpCancel) },
				} {
					j, other := k.run(short, kept(time.Minute)), k.run(short)
					k.mustApply(end(j), end(other))
					ended := k.get(j)
					k.wait(time.Second)
					k.wantGone(other)
					k.wantEqual("the job past its ttl", ended, k.get(j))
					k.expire()
					k.wantEqual("the job past its ttl, swept", ended, k.get(j))
					k.wait(59*time.Second - time.Millisecond)
					k.wantEqual("the job at the end of its retention", ended, k.get(j))
					k.wait(time.Millisecond)
					k.wantGone(j)
					k.expire()
					k.wantGone(j)
				}
			}),
		rule("AKeptJobThatHasNotEndedGoesWithItsTTL",
			"KeepsResult keeps results only: a job that waits or runs is deleted when its ttl elapses",
			func(k *fixture) {
				running, waiting := k.run(short, kept(time.Hour)), k.add(short, kept(time.Hour))
				k.wait(time.Second)
				k.wantGone(running)
				k.wantGone(waiting)
				k.expire()
				k.wantGone(running)
				k.wantEqual("Queued", int64(0), k.stats(echo).Queued)
			}),
		rule("AKeptFailureIsNotRetriedPastItsTTL",
			"a retry past the ttl would delete the job and its result at once: it is refused, and changes nothing",
			func(k *fixture) {
				j := k.run(short, kept(time.Minute))
				k.mustApply(failOp(j, "no"))
				k.wait(time.Second)
				k.mustRefuse(userOp(j, queue.OpRetry), queue.ErrExpired)
				k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpSetTTL, Until: k.now + 60_000})
				k.mustApply(userOp(j, queue.OpRetry))
				k.wantStatus(j, queue.InQueue)
			}),
		rule("AJobThatBeginsInAYearIsThereThen",
			"a job may begin up to 366 days ahead, and sweeps before that change nothing",
			func(k *fixture) {
				const year = 366 * 24 * time.Hour
				j := k.add(delayed(year), func(j *queue.Job) { j.Expires = j.Submitted.Add(year + time.Hour) })
				for range 6 {
					k.wait(61*24*time.Hour - time.Millisecond)
					k.expire()
					k.wantStatus(j, queue.InQueue)
				}
				k.wait(6 * time.Millisecond)
				k.expire()
				if got := k.take("w"); got.Ref != j.Ref {
					k.Errorf("Claim after a year gave %v, want %v", got.Ref, j.Ref)
				}
			}),
	}
}
