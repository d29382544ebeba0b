package serverlesstest

import (
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

func endCases() []QueueCase {
	return []QueueCase{
		rule("FinishKeepsTheOutput",
			"a finished job is COMPLETED at the instant of the report, with the output byte for byte",
			func(k *fixture) {
				j := k.run()
				k.wait(1500 * time.Millisecond)
				out := " {\"a\": 1e2,\n\"a\":\"\\u00e4\"} "
				k.mustApply(finishOp(j, out))
				want := j
				want.Status, want.Finished, want.Output, want.OutBytes = queue.Completed, k.now, []byte(out), uint32(len(out))
				k.wantEqual("the job", want, k.get(j))
				k.wantEqual("Completed", int64(1), k.stats(echo).Completed)
			}),
		rule("AFailureKeepsErrorAndOutput",
			"a failed job is FAILED with the error text and the output of the worker",
			func(k *fixture) {
				j := k.run()
				op := failOp(j, "boom ä \"\n")
				op.Payload = []byte(`{"partial":true}`)
				k.mustApply(op)
				got := k.wantStatus(j, queue.Failed)
				k.wantEqual("Error, Output", []string{op.Error, string(op.Payload)}, []string{got.Error, string(got.Output)})
				k.wantEqual("Failed", int64(1), k.stats(echo).Failed)
			}),
		rule("AResultReplacesProgress",
			"Get has the last progress value while the job runs, and then the result, also when there is none",
			func(k *fixture) {
				progress := func(j queue.Job, text string) queue.Op {
					return workerOp(j, queue.OpProgress, func(op *queue.Op) { op.Payload = []byte(text) })
				}
				a := k.run()
				k.mustApply(progress(a, "1"), progress(a, "2"))
				k.wantEqual("Output", "2", string(k.wantStatus(a, queue.InProgress).Output))
				k.mustApply(failOp(a, "no"))
				k.wantEqual("Output", "", string(k.get(a).Output))
				b := k.run()
				k.mustApply(progress(b, "1"), finishOp(b, `"end"`))
				k.wantEqual("Output", `"end"`, string(k.get(b).Output))
			}),
		rule("WhatALostWorkerMadeIsVoid",
			"output and chunks of a delivery that was lost are gone: the next one starts over",
			func(k *fixture) {
				j := k.run()
				k.mustApply(workerOp(j, queue.OpProgress, func(op *queue.Op) { op.Payload = []byte("1") }), chunk(j, "old"))
				k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: "w"})
				k.wantEqual("Output", "", string(k.get(j).Output))
				left, s := k.chunks(j, 1<<20)
				k.wantEqual("Chunks", []string(nil), left)
				k.wantEqual("State.Chunks, Stream", []int64{0, 0}, []int64{int64(s.Chunks), s.Stream})
				second := k.take("second")
				k.mustApply(chunk(second, "new"))
				left, _ = k.chunks(j, 1<<20)
				k.wantEqual("Chunks", []string{"new"}, left)
			}),
		rule("OnlyOneFinish",
			"a second report of the same lease answers ErrLeaseLost and changes nothing",
			func(k *fixture) {
				j := k.run()
				res := k.apply(finishOp(j, "1"), finishOp(j, "2"))
				if res[0].Err != nil || !errors.Is(res[1].Err, queue.ErrLeaseLost) {
					k.Errorf("two reports = %v, %v, want nil, ErrLeaseLost", res[0].Err, res[1].Err)
				}
				k.mustRefuse(failOp(j, "late"), queue.ErrLeaseLost)
				k.wantEqual("Output", "1", string(k.get(j).Output))
			}),
		rule("CancelInEachStatus",
			"cancel ends a queued or running job and leaves one that has ended as it is, without an error",
			func(k *fixture) {
				queued := k.add()
				k.mustApply(userOp(queued, queue.OpCancel))
				k.wantStatus(queued, queue.Cancelled)
				running := k.run()
				k.wait(time.Second)
				s := k.mustApply(userOp(running, queue.OpCancel))
				k.wantEqual("Status, Finished", []any{queue.Cancelled, k.now}, []any{s.Status, s.Finished})
				k.mustRefuse(finishOp(running, "1"), queue.ErrLeaseLost)
				for i, end := range []func(queue.Job) queue.Op{
					func(j queue.Job) queue.Op { return finishOp(j, "1") },
					func(j queue.Job) queue.Op { return failOp(j, "no") },
					func(j queue.Job) queue.Op { return userOp(j, queue.OpCancel) },
				} {
					j := k.run()
					want := k.mustApply(end(j))
					k.wait(time.Second)
					k.wantEqual(fmt.Sprintf("cancel of ended job %d", i), want, k.mustApply(userOp(j, queue.OpCancel)))
				}
			}),
		rule("UnknownJobs",
			"an op on an unknown job returns ErrNotFound, and the other ops of the call are made",
			func(k *fixture) {
				j := k.run()
				ghost := j
				ghost.ID = "ghost"
				var ops []queue.Op
				for kind := queue.OpClaim; kind <= lastOp; kind++ {
					ops = append(ops, workerOp(ghost, kind))
				}
				for i, r := range k.apply(append(ops, finishOp(j, "1"))...) {
					if i < len(ops) && !errors.Is(r.Err, queue.ErrNotFound) {
						k.Errorf("op %d on an unknown job = %v, want ErrNotFound", ops[i].Kind, r.Err)
					}
				}
				k.wantStatus(j, queue.Completed)
				k.wantGone(ghost)
			}),
		rule("EachOpHasItsAnswer",
			"the ops of one call are independent, and res has the results in order; ops of one job are made in order",
			func(k *fixture) {
				k.addN(3)
				held := k.claim(k.slot("w", 3))
				a, b, c := held[0], held[1], held[2]
				stale := finishOp(b, "9")
				stale.Token++
				res := k.apply(chunk(a, "1"), stale, chunk(a, "2"), finishOp(c, "3"), finishOp(a, "4"), userOp(c, queue.OpRetry), chunk(a, "5"))
				var got []any
				for _, r := range res {
					got = append(got, r.State.Status, r.Err == nil)
				}
				k.wantEqual("statuses and success", []any{
					queue.InProgress, true, queue.InProgress, false, queue.InProgress, true, queue.Completed, true,
					queue.Completed, true, queue.Completed, false, queue.Completed, false,
				}, got)
				left, _ := k.chunks(a, 1<<20)
				k.wantEqual("chunks", []string{"1", "2"}, left)
			}),
	}
}

func lifetimeCases() []QueueCase {
	reach := map[queue.Status]func(k *fixture) queue.Job{
		queue.InQueue:    func(k *fixture) queue.Job { return k.add() },
		queue.InProgress: func(k *fixture) queue.Job { return k.run() },
		queue.Completed:  func(k *fixture) queue.Job { j := k.run(); k.mustApply(finishOp(j, "1")); return j },
		queue.Failed:     func(k *fixture) queue.Job { j := k.run(); k.mustApply(failOp(j, "no")); return j },
		queue.Cancelled:  func(k *fixture) queue.Job { j := k.add(); k.mustApply(userOp(j, queue.OpCancel)); return j },
		queue.TimedOut: func(k *fixture) queue.Job {
			j := k.run(func(j *queue.Job) { j.ExecTimeout = 5 * time.Second })
			k.wait(5 * time.Second)
			k.expire()
			return j
		},
	}
	var cases []QueueCase
	for s := queue.InQueue; s <= queue.TimedOut; s++ {
		cases = append(cases, rule("TheTTLDeletes_"+s.String(),
			"a job is deleted when its ttl elapses, whatever its status: nothing finds it, swept or not",
			func(k *fixture) {
				j := reach[s](k)
				k.wantStatus(j, s)
				k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpSetTTL, Until: k.now + 1000})
				k.now += 999
				k.expire()
				k.wantStatus(j, s)
				k.now++
				k.wantGone(j)
				k.expire()
				k.wantGone(j)
				st := k.stats(echo)
				k.wantEqual("Queued, Running", []int64{0, 0}, []int64{st.Queued, st.Running})
			}))
		cases = append(cases, rule("NoOpFindsWhatIsPastItsTTL_"+s.String(),
			"an op on a job past its ttl answers ErrNotFound, swept or not",
			func(k *fixture) {
				for kind := queue.OpClaim; kind <= lastOp; kind++ {
					if kind == queue.OpTick || kind == queue.OpRecover {
						continue // they make it so
					}
					j := reach[s](k)
					k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpSetTTL, Until: k.now + 1000})
					k.now += 1000
					k.mustRefuse(workerOp(j, kind, withUntil(k.now+ttl)), queue.ErrNotFound)
					k.mustRefuse(workerOp(j, kind, withUntil(k.now+ttl)), queue.ErrNotFound)
				}
			}))
	}
	return append(cases,
		rule("ResultsAreKeptForTheRetention",
			"a job that has ended is deleted when its retention is over, and its counters stay",
			func(k *fixture) {
				j := k.run()
				k.mustApply(finishOp(j, "1"))
				k.now += keep - 1
				k.expire()
				k.wantStatus(j, queue.Completed)
				k.now++
				k.wantGone(j)
				k.wantNext("Expire", 0, k.expire())
				k.wantGone(j)
				k.wantEqual("Completed", int64(1), k.stats(echo).Completed)
			}),
		rule("TheTTLEndsTheRetention",
			"a result is not kept past the ttl of its job",
			func(k *fixture) {
				j := k.run(func(j *queue.Job) { j.Expires = k.now + 10_000 })
				k.mustApply(finishOp(j, "1"))
				k.wait(10 * time.Second)
				k.wantGone(j)
			}),
		rule("TheTTLMovesBothWays",
			"OpSetTTL lengthens or shortens the life of a job",
			func(k *fixture) {
				longer, shorter := k.add(), k.add()
				k.mustApply(queue.Op{Ref: longer.Ref, Kind: queue.OpSetTTL, Until: k.now + 2*ttl},
					queue.Op{Ref: shorter.Ref, Kind: queue.OpSetTTL, Until: k.now + 1000})
				k.wait(time.Second)
				k.expire()
				k.wantGone(shorter)
				k.now += 2*ttl - 1001
				k.expire()
				k.wantStatus(longer, queue.InQueue)
				k.now++
				k.expire()
				k.wantGone(longer)
			}),
	)
}
