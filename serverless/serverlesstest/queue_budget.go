package serverlesstest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// counter returns the queue as a counter. A queue that does not count is not tested for it.
func (k *fixture) counter() budget.Counter {
	c, ok := k.q.(budget.Counter)
	if !ok {
		k.Skip("the queue is no budget.Counter")
	}
	return c
}

// limit limits user-1, the owner of most jobs.
func (k *fixture) limit(l budget.Limits) {
	k.counter().Limit(budget.NewSet(budget.Users{Named: map[string]budget.Limits{"user-1": l}}))
}

func (k *fixture) usage(user string) budget.Usage {
	k.Helper()
	u, err := k.counter().Usage(k.Context(), user)
	if err != nil {
		k.Fatalf("Usage = %v, want nil", err)
	}
	return u
}

// mustBeFull checks that jobs are refused by a budget, and that nothing is changed.
func (k *fixture) mustBeFull(b budget.Budget, jobs ...queue.Job) {
	k.Helper()
	before, stats := k.usage("user-1"), k.stats(echo)
	err := k.q.Enqueue(k.Context(), jobs)
	var full *budget.Error
	if !errors.As(err, &full) || full.Budget != b {
		k.Errorf("Enqueue of %d jobs = %v, want a *budget.Error for %s", len(jobs), err, b)
		return
	}
	k.wantEqual("Used", before[b], full.Used)
	k.wantEqual("Usage after the refusal", before, k.usage("user-1"))
	k.wantEqual("Stats after the refusal", stats, k.stats(echo))
	for _, j := range jobs {
		k.wantGone(j)
	}
}

func budgetCases() []QueueCase {
	return []QueueCase{
		rule("ASubmitOverABudgetChangesNothing",
			"a submit that would go over a budget of its owner is refused as a whole, and other owners and smaller submits go on",
			func(k *fixture) {
				k.limit(budget.Limits{Jobs: 3})
				k.addN(2)
				k.mustBeFull(budget.Jobs, k.job(), k.job())
				k.enqueue(k.job(ownedBy("user-2")), k.job(ownedBy("user-2")), k.job(ownedBy("")), k.job(ownedBy("")))
				k.add()
				k.mustBeFull(budget.Jobs, k.job())
				k.mustBeFull(budget.Jobs, k.job(onEndpoint("other")))
			}),
		rule("EachBudgetOfAQueueIsHeld",
			"queued jobs, bytes, webhooks and dead letters have budgets of their own",
			func(k *fixture) {
				k.limit(budget.Limits{QueuedJobs: 1})
				j := k.run()
				k.add()
				k.mustBeFull(budget.QueuedJobs, k.job())
				k.limit(budget.Limits{JobBytes: k.usage("user-1")[budget.JobBytes] + 10})
				k.mustBeFull(budget.JobBytes, k.job(func(j *queue.Job) { j.Input = []byte(`{"a":"12345"}`) }))
				k.add(func(j *queue.Job) { j.Input = []byte(`{"a":"12"}`) })
				k.limit(budget.Limits{Deliveries: 1, DeadLetters: 1})
				k.mustApply(finishOp(j, `1`))
				k.mustApply(finishOp(k.runOther(withWebhook), `1`))
				k.mustApply(failOp(k.runOther(withDeadLetter), "no"))
				k.mustBeFull(budget.Deliveries, k.job(withWebhook))
				k.mustBeFull(budget.DeadLetters, k.job(withDeadLetter))
				k.add()
			}),
		rule("ConcurrentSubmitsDoNotGoOverABudget",
			"of many submits at once exactly as many are taken as the budget has room for",
			func(k *fixture) {
				const room = 50
				k.limit(budget.Limits{Jobs: room})
				var taken atomic.Int64
				inParallel(32, func(i int) {
					for n := range 4 {
						j := k.jobNamed(fmt.Sprintf("%d-%d", i, n))
						var full *budget.Error
						switch err := k.q.Enqueue(k.Context(), []queue.Job{j}); {
						case err == nil:
							taken.Add(1)
						case !errors.As(err, &full):
							k.Errorf("Enqueue = %v, want nil or a *budget.Error", err)
						}
					}
				})
				k.wantEqual("jobs", []int64{room, room}, []int64{taken.Load(), k.usage("user-1")[budget.Jobs]})
			}),
		rule("AReportOverABudgetChangesNothing",
			"a chunk, an interim output or a result for which the owner has no room is refused and changes nothing; a small result is taken",
			func(k *fixture) {
				j, large := k.run(withWebhook, withDeadLetter), `"`+strings.Repeat("x", 2000)+`"`
				used := k.usage("user-1")[budget.JobBytes]
				k.limit(budget.Limits{JobBytes: used + 100})
				for _, op := range []queue.Op{
					chunk(j, large), finishOp(j, large), failOp(j, large),
					workerOp(j, queue.OpProgress, func(op *queue.Op) { op.Payload = []byte(large) }),
				} {
					k.mustNotFit(j, op)
				}
				k.mustApply(chunk(j, `{"output":1}`))
				k.limit(budget.Limits{JobBytes: 1})
				k.mustNotFit(j, chunk(j, `{"output":2}`))
				k.mustApply(failOp(j, "small"))
			}),
		rule("ConcurrentReportsDoNotGoOverABudget",
			"of many results at once as many are taken as the budget has room for",
			func(k *fixture) {
				const room, size = 10, 5000
				jobs := make([]queue.Job, 4*room)
				for i := range jobs {
					jobs[i] = k.run()
				}
				used := k.usage("user-1")[budget.JobBytes]
				k.limit(budget.Limits{JobBytes: used + room*size + size - 1})
				var taken atomic.Int64
				inParallel(len(jobs), func(i int) {
					res := make([]queue.Result, 1)
					if err := k.q.Apply(k.Context(), k.now, []queue.Op{finishOp(jobs[i], strings.Repeat("1", size))}, res); err != nil {
						k.Errorf("Apply = %v, want nil", err)
					}
					if res[0].Err == nil {
						taken.Add(1)
					}
				})
				k.wantEqual("results", int64(room), taken.Load())
			}),
		rule("WhatIsOverALoweredLimitStays",
			"a limit below what an owner has takes nothing away, and a repeated submit is still ErrExists",
			func(k *fixture) {
				jobs := k.addN(3)
				k.limit(budget.Limits{Jobs: 1})
				if err := k.q.Enqueue(k.Context(), []queue.Job{jobs[0]}); !errors.Is(err, queue.ErrExists) {
					k.Errorf("a repeated Enqueue = %v, want ErrExists", err)
				}
				k.mustBeFull(budget.Jobs, k.job())
				k.wantEqual("jobs", 3, len(k.list(queue.ListQuery{Endpoint: echo})))
				k.mustApply(finishOp(k.take("w"), "1"))
			}),
		rule("AUsersEndpointsAreThoseWithTheirJobs",
			"a queue that lists the endpoints of a user lists each with a job of any status, as long as it is kept",
			func(k *fixture) {
				q, ok := k.q.(queue.OwnerLister)
				if !ok {
					k.Skip("the queue is no queue.OwnerLister")
				}
				want := func(when, user string, want ...string) {
					got, err := q.EndpointsOf(k.Context(), user)
					if errors.Is(err, errors.ErrUnsupported) {
						k.Skip("a part of the queue is no queue.OwnerLister")
					}
					if err != nil {
						k.Fatalf("EndpointsOf = %v, want nil", err)
					}
					slices.Sort(got)
					k.wantEqual("EndpointsOf "+user+" "+when, want, got)
				}
				want("before all", "user-1")
				k.mustApply(finishOp(k.run(), "1"))
				j := k.add(onEndpoint("other"))
				k.add(onEndpoint("third"), ownedBy("user-2"))
				want("with an ended and a queued job", "user-1", echo, "other")
				want("", "user-2", "third")
				k.mustApply(userOp(j, queue.OpCancel), userOp(j, queue.OpDelete))
				want("after a deletion", "user-1", echo)
				k.wait(2 * ttl * time.Millisecond)
				k.expire()
				want("after their ttl", "user-1")
			}),
		rule("EveryEndGivesBackOnce",
			"a job counts as queued while it is queued, and gives its count and its bytes back when it is deleted, in whatever way",
			func(k *fixture) {
				for name, end := range givesBack() {
					j := k.run(withWebhook, withDeadLetter)
					k.mustApply(chunk(j, `{"output":1}`), chunk(j, `{"output":22}`), workerOp(j, queue.OpProgress, func(op *queue.Op) { op.Payload = []byte(`{"half":1}`) }))
					end(k, j)
					k.settleAll()
					k.wait(2 * ttl * time.Millisecond)
					k.expire()
					k.wantGone(j)
					k.wantEqual("Usage after "+name, budget.Usage{}, k.usage("user-1"))
				}
				users, err := k.counter().Users(k.Context())
				if err != nil || len(users) > 0 {
					k.Errorf("Users = %v, %v, want none", users, err)
				}
			}),
	}
}

// mustNotFit checks that a report is refused by the budget of bytes, and that nothing is changed.
func (k *fixture) mustNotFit(j queue.Job, op queue.Op) {
	k.Helper()
	before, state := k.usage("user-1"), k.get(j).State
	res := make([]queue.Result, 1)
	if err := k.q.Apply(k.Context(), k.now, []queue.Op{op}, res); err != nil {
		k.Fatalf("Apply = %v, want nil", err)
	}
	var full *budget.Error
	if !errors.As(res[0].Err, &full) || full.Budget != budget.JobBytes || res[0].Effect != 0 {
		k.Errorf("a report of %d bytes = %v with effect %d, want a *budget.Error and none", len(op.Payload), res[0].Err, res[0].Effect)
	}
	k.wantEqual("State of the result", state, res[0].State)
	k.wantEqual("State after the refusal", state, k.get(j).State)
	k.wantEqual("Usage after the refusal", before, k.usage("user-1"))
}

// givesBack are ways in which a running job can end.
func givesBack() map[string]func(k *fixture, j queue.Job) {
	return map[string]func(k *fixture, j queue.Job){
		"its result":  func(k *fixture, j queue.Job) { k.mustApply(finishOp(j, `{"a":1}`)) },
		"its failure": func(k *fixture, j queue.Job) { k.mustApply(failOp(j, "no")) },
		"a cancel":    func(k *fixture, j queue.Job) { k.mustApply(userOp(j, queue.OpCancel)) },
		"its ttl":     func(*fixture, queue.Job) {},
		"a release and a purge": func(k *fixture, j queue.Job) {
			k.mustApply(workerOp(j, queue.OpRelease), userOp(j, queue.OpPurge))
		},
		"a retry and a delete": func(k *fixture, j queue.Job) {
			k.mustApply(failOp(j, "no"), userOp(j, queue.OpRetry))
			k.mustApply(failOp(k.take("w"), "no"), userOp(j, queue.OpDelete))
		},
		"a lost worker": func(k *fixture, j queue.Job) {
			k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: j.Worker})
		},
		"a read stream": func(k *fixture, j queue.Job) {
			op := userOp(j, queue.OpDrain)
			op.Token, op.N, op.Bytes = j.Token, 1, int64(len(`{"output":1}`))
			k.mustApply(op, finishOp(j, "1"))
		},
	}
}

func withDeadLetter(j *queue.Job) { j.DeadLetter = time.Hour }

// runOther is run for a queue with other jobs.
func (k *fixture) runOther(change ...func(*queue.Job)) queue.Job {
	k.Helper()
	want := k.add(append(change, func(j *queue.Job) { j.Endpoint = "other" })...)
	jobs := k.claim(queue.Slot{Endpoint: "other", Worker: "w", N: 1, Until: k.now + lease})
	if len(jobs) != 1 || jobs[0].Ref != want.Ref {
		k.Fatalf("Claim gave %d jobs, want %v", len(jobs), want.Ref)
	}
	return jobs[0]
}

// jobNamed is job for concurrent callers.
func (k *fixture) jobNamed(id string) queue.Job {
	return queue.Job{
		Ref: queue.Ref{Endpoint: echo, ID: queue.JobID(id)}, Owner: "user-1", Input: []byte(`{}`),
		State: queue.State{Submitted: k.now, Queued: k.now, Expires: k.now + ttl, Terms: queue.Terms{ExecTimeout: exec * time.Millisecond, Retain: keep * time.Millisecond}},
	}
}

// settleAll settles all webhooks that are due.
func (k *fixture) settleAll() {
	k.Helper()
	ds, err := k.q.Deliveries(k.Context(), k.now, k.now+lease, 100)
	if err != nil {
		k.Fatalf("Deliveries = %v, want nil", err)
	}
	for _, d := range ds {
		if err := k.q.Record(k.Context(), []queue.Attempt{{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: k.now, Status: 200}}); err != nil {
			k.Fatalf("Record = %v, want nil", err)
		}
	}
}
