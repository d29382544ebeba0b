package serverlesstest

import (
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless"
)

func endCases() []QueueCase {
	return []QueueCase{
		rule("FinishKeepsTheOutput",
			"a finished job is COMPLETED at the instant of the report, with the output byte for byte",
			func(k *kit) {
				j := k.run()
				k.wait(1500 * time.Millisecond)
				out := " {\"a\": 1e2,\n\"a\":\"\\u00e4\"} "
				k.must(done(j, out))
				want := j
				want.Status, want.Finished, want.Output = serverless.Completed, k.now, []byte(out)
				k.equal("the job", want, k.get(j))
				k.equal("Completed", int64(1), k.stats(echo).Completed)
			}),
		rule("AFailureKeepsErrorAndOutput",
			"a failed job is FAILED with the worker's words and the output it sent besides",
			func(k *kit) {
				j := k.run()
				op := failed(j, "boom ä \"\n")
				op.Payload = []byte(`{"partial":true}`)
				k.must(op)
				got := k.status(j, serverless.Failed)
				k.equal("Error, Output", []string{op.Error, string(op.Payload)}, []string{got.Error, string(got.Output)})
				k.equal("Failed", int64(1), k.stats(echo).Failed)
			}),
		rule("AResultReplacesProgress",
			"Get has the last progress value while the job runs, and then the result, also when there is none",
			func(k *kit) {
				progress := func(j serverless.Job, text string) serverless.Op {
					return as(j, serverless.OpProgress, func(op *serverless.Op) { op.Payload = []byte(text) })
				}
				a := k.run()
				k.must(progress(a, "1"), progress(a, "2"))
				k.equal("Output", "2", string(k.status(a, serverless.InProgress).Output))
				k.must(failed(a, "no"))
				k.equal("Output", "", string(k.get(a).Output))
				b := k.run()
				k.must(progress(b, "1"), done(b, `"end"`))
				k.equal("Output", `"end"`, string(k.get(b).Output))
			}),
		rule("WhatALostWorkerMadeIsVoid",
			"output and chunks of a delivery that was lost are gone: the next one starts over",
			func(k *kit) {
				j := k.run()
				k.must(as(j, serverless.OpProgress, func(op *serverless.Op) { op.Payload = []byte("1") }), chunk(j, "old"))
				k.must(serverless.Op{Ref: j.Ref, Kind: serverless.OpLose, Worker: "w"})
				k.equal("Output", "", string(k.get(j).Output))
				left, s := k.chunks(j, 1<<20)
				k.equal("Chunks", []string(nil), left)
				k.equal("State.Chunks, Stream", []int64{0, 0}, []int64{int64(s.Chunks), s.Stream})
				second := k.take("second")
				k.must(chunk(second, "new"))
				left, _ = k.chunks(j, 1<<20)
				k.equal("Chunks", []string{"new"}, left)
			}),
		rule("OnlyOneFinish",
			"a second report of the same lease answers ErrLeaseLost and changes nothing",
			func(k *kit) {
				j := k.run()
				res := k.apply(done(j, "1"), done(j, "2"))
				if res[0].Err != nil || !errors.Is(res[1].Err, serverless.ErrLeaseLost) {
					k.Errorf("two reports = %v, %v, want nil, ErrLeaseLost", res[0].Err, res[1].Err)
				}
				k.refuse(failed(j, "late"), serverless.ErrLeaseLost)
				k.equal("Output", "1", string(k.get(j).Output))
			}),
		rule("CancelInEachStatus",
			"cancel ends a queued or running job and leaves one that has ended as it is, without an error",
			func(k *kit) {
				queued := k.add()
				k.must(user(queued, serverless.OpCancel))
				k.status(queued, serverless.Cancelled)
				running := k.run()
				k.wait(time.Second)
				s := k.must(user(running, serverless.OpCancel))
				k.equal("Status, Finished", []any{serverless.Cancelled, k.now}, []any{s.Status, s.Finished})
				k.refuse(done(running, "1"), serverless.ErrLeaseLost)
				for i, end := range []func(serverless.Job) serverless.Op{
					func(j serverless.Job) serverless.Op { return done(j, "1") },
					func(j serverless.Job) serverless.Op { return failed(j, "no") },
					func(j serverless.Job) serverless.Op { return user(j, serverless.OpCancel) },
				} {
					j := k.run()
					want := k.must(end(j))
					k.wait(time.Second)
					k.equal(fmt.Sprintf("cancel of ended job %d", i), want, k.must(user(j, serverless.OpCancel)))
				}
			}),
		rule("UnknownJobs",
			"every op on a job that is not there answers ErrNotFound, and the others of the call are done",
			func(k *kit) {
				j := k.run()
				ghost := j
				ghost.ID = "ghost"
				var ops []serverless.Op
				for kind := serverless.OpClaim; kind <= lastOp; kind++ {
					ops = append(ops, as(ghost, kind))
				}
				for i, r := range k.apply(append(ops, done(j, "1"))...) {
					if i < len(ops) && !errors.Is(r.Err, serverless.ErrNotFound) {
						k.Errorf("op %d on an unknown job = %v, want ErrNotFound", ops[i].Kind, r.Err)
					}
				}
				k.status(j, serverless.Completed)
				k.gone(ghost)
			}),
		rule("EachOpHasItsAnswer",
			"the ops of one call are independent and answered in their places; those of one job are made in order",
			func(k *kit) {
				k.addN(3)
				held := k.claim(k.slot("w", 3))
				a, b, c := held[0], held[1], held[2]
				stale := done(b, "9")
				stale.Token++
				res := k.apply(chunk(a, "1"), stale, chunk(a, "2"), done(c, "3"), done(a, "4"), user(c, serverless.OpRetry), chunk(a, "5"))
				var got []any
				for _, r := range res {
					got = append(got, r.State.Status, r.Err == nil)
				}
				k.equal("statuses and success", []any{
					serverless.InProgress, true, serverless.InProgress, false, serverless.InProgress, true, serverless.Completed, true,
					serverless.Completed, true, serverless.Completed, false, serverless.Completed, false,
				}, got)
				left, _ := k.chunks(a, 1<<20)
				k.equal("chunks", []string{"1", "2"}, left)
			}),
	}
}

func lifetimeCases() []QueueCase {
	reach := map[serverless.Status]func(k *kit) serverless.Job{
		serverless.InQueue:    func(k *kit) serverless.Job { return k.add() },
		serverless.InProgress: func(k *kit) serverless.Job { return k.run() },
		serverless.Completed:  func(k *kit) serverless.Job { j := k.run(); k.must(done(j, "1")); return j },
		serverless.Failed:     func(k *kit) serverless.Job { j := k.run(); k.must(failed(j, "no")); return j },
		serverless.Cancelled:  func(k *kit) serverless.Job { j := k.add(); k.must(user(j, serverless.OpCancel)); return j },
		serverless.TimedOut: func(k *kit) serverless.Job {
			j := k.run(func(j *serverless.Job) { j.ExecTimeout = 5000 })
			k.wait(5 * time.Second)
			k.expire()
			return j
		},
	}
	var cases []QueueCase
	for s := serverless.InQueue; s <= serverless.TimedOut; s++ {
		cases = append(cases, rule("TheTTLDeletes_"+s.String(),
			"a job is deleted when its ttl elapses, whatever its status: nothing finds it, swept or not",
			func(k *kit) {
				j := reach[s](k)
				k.status(j, s)
				k.must(serverless.Op{Ref: j.Ref, Kind: serverless.OpSetTTL, Until: k.now + 1000})
				k.now += 999
				k.expire()
				k.status(j, s)
				k.now++
				k.gone(j)
				k.expire()
				k.gone(j)
				st := k.stats(echo)
				k.equal("Queued, Running", []int64{0, 0}, []int64{st.Queued, st.Running})
			}))
		cases = append(cases, rule("NoOpFindsWhatIsPastItsTTL_"+s.String(),
			"an op on a job past its ttl answers ErrNotFound, swept or not",
			func(k *kit) {
				for kind := serverless.OpClaim; kind <= lastOp; kind++ {
					if kind == serverless.OpTick || kind == serverless.OpRecover {
						continue // they make it so
					}
					j := reach[s](k)
					k.must(serverless.Op{Ref: j.Ref, Kind: serverless.OpSetTTL, Until: k.now + 1000})
					k.now += 1000
					k.refuse(as(j, kind, until(k.now+ttl)), serverless.ErrNotFound)
					k.refuse(as(j, kind, until(k.now+ttl)), serverless.ErrNotFound)
				}
			}))
	}
	return append(cases,
		rule("ResultsAreKeptForTheRetention",
			"a job that has ended is deleted when its retention is over, and its counters stay",
			func(k *kit) {
				j := k.run()
				k.must(done(j, "1"))
				k.now += keep - 1
				k.expire()
				k.status(j, serverless.Completed)
				k.now++
				k.gone(j)
				k.equal("next", serverless.Instant(0), k.expire())
				k.gone(j)
				k.equal("Completed", int64(1), k.stats(echo).Completed)
			}),
		rule("TheTTLEndsTheRetention",
			"a result is not kept past the ttl of its job",
			func(k *kit) {
				j := k.run(func(j *serverless.Job) { j.Expires = k.now + 10_000 })
				k.must(done(j, "1"))
				k.wait(10 * time.Second)
				k.gone(j)
			}),
		rule("TheTTLMovesBothWays",
			"OpSetTTL makes a job live longer or shorter than it was to",
			func(k *kit) {
				longer, shorter := k.add(), k.add()
				k.must(serverless.Op{Ref: longer.Ref, Kind: serverless.OpSetTTL, Until: k.now + 2*ttl},
					serverless.Op{Ref: shorter.Ref, Kind: serverless.OpSetTTL, Until: k.now + 1000})
				k.wait(time.Second)
				k.expire()
				k.gone(shorter)
				k.now += 2*ttl - 1001
				k.expire()
				k.status(longer, serverless.InQueue)
				k.now++
				k.expire()
				k.gone(longer)
			}),
	)
}
