package serverlesstest

import (
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// sendLease is how long a delivery of the suite is leased, in ms.
const sendLease = 60_000

func (k *fixture) deliveries(limit int) []queue.Delivery {
	k.Helper()
	ds, err := k.q.Deliveries(k.Context(), k.now, k.now+sendLease, limit)
	if err != nil {
		k.Fatalf("Deliveries = %v, want nil", err)
	}
	for i := range ds {
		if err := k.q.LoadDelivery(k.Context(), &ds[i]); err != nil {
			k.Fatalf("LoadDelivery = %v, want nil", err)
		}
	}
	return ds
}

// delivery leases the one delivery that is due.
func (k *fixture) delivery() queue.Delivery {
	k.Helper()
	ds := k.deliveries(10)
	if len(ds) != 1 {
		k.Fatalf("Deliveries gave %d, want 1", len(ds))
	}
	return ds[0]
}

// attempt is an attempt now at d; next is when to try again, 0 when it is settled.
func (k *fixture) attempt(d queue.Delivery, next queue.Instant) queue.Attempt {
	return queue.Attempt{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: k.now, Next: next, Status: 200}
}

func (k *fixture) record(a ...queue.Attempt) {
	k.Helper()
	if err := k.q.Record(k.Context(), a); err != nil {
		k.Fatalf("Record = %v, want nil", err)
	}
}

func (k *fixture) nextDelivery() queue.Instant {
	k.Helper()
	next, err := k.q.NextDelivery(k.Context())
	if err != nil {
		k.Fatalf("NextDelivery = %v, want nil", err)
	}
	return next
}

func (k *fixture) attempts(j queue.Job) []queue.Attempt {
	k.Helper()
	list, err := k.q.Attempts(k.Context(), j.Ref)
	if err != nil {
		k.Fatalf("Attempts = %v, want nil", err)
	}
	return list
}

func outboxCases() []QueueCase {
	return []QueueCase{
		rule("NothingToDeliver",
			"a job without a webhook, and one that has not ended, have no delivery",
			func(k *fixture) {
				j := k.run()
				k.mustApply(finishOp(j, "1"))
				k.run(withWebhook)
				k.wantEqual("Deliveries", 0, len(k.deliveries(10)))
				k.wantNext("NextDelivery", 0, k.nextDelivery())
				k.wantEqual("Attempts", 0, len(k.attempts(j)))
			}),
		rule("EachTerminalStatusIsDelivered",
			"the commit that ends a job with a webhook writes one entry, due at once, with the job as it is then",
			func(k *fixture) {
				for _, end := range []func(j queue.Job){
					func(j queue.Job) { k.mustApply(finishOp(j, `{"out":1}`)) },
					func(j queue.Job) { k.mustApply(failOp(j, "no")) },
					func(j queue.Job) { k.mustApply(userOp(j, queue.OpCancel)) },
					func(j queue.Job) { k.now += exec; k.mustApply(userOp(j, queue.OpTick)) },
				} {
					j := k.run(withWebhook)
					end(j)
					want := k.get(j)
					if !want.Status.Terminal() {
						k.Fatalf("%q is %v, want a terminal status", j.ID, want.Status)
					}
					d := k.delivery()
					k.wantEqual("the job of the delivery", want, d.Job)
					k.wantEqual("Tries", 0, d.Tries)
					k.record(k.attempt(d, 0))
				}
			}),
		rule("DeletionIsNotDelivered",
			"a job that its ttl deletes has no delivery (docs/decisions.md 31)",
			func(k *fixture) {
				k.add(withWebhook, func(j *queue.Job) { j.Expires = k.now + 1000 })
				k.wait(time.Second)
				k.expire()
				k.wantEqual("Deliveries", 0, len(k.deliveries(10)))
			}),
		rule("PurgeAndSweepDeliver",
			"jobs that Purge or Expire ends are delivered like any other",
			func(k *fixture) {
				k.add(withWebhook)
				k.purge(queue.PurgeQuery{Endpoint: echo, UpTo: 1<<63 - 1, Limit: 10})
				k.run(withWebhook)
				k.now += exec
				k.expire()
				var got []queue.Status
				for _, d := range k.deliveries(10) {
					got = append(got, d.Job.Status)
				}
				k.wantEqual("statuses", []queue.Status{queue.Cancelled, queue.TimedOut}, got)
			}),
		rule("ADeliveryIsLeased",
			"a delivery is leased to one caller until the lease ends, then to the next with another token",
			func(k *fixture) {
				k.mustApply(finishOp(k.run(withWebhook), "1"))
				first := k.delivery()
				k.wantEqual("Deliveries", 0, len(k.deliveries(10)))
				k.wantNext("NextDelivery", k.now+sendLease, k.nextDelivery())
				k.now += sendLease
				second := k.delivery()
				if second.ID != first.ID || second.Token == first.Token {
					k.Errorf("delivery %q under token %d, then %q under %d: want one id and two tokens", first.ID, first.Token, second.ID, second.Token)
				}
				k.record(k.attempt(first, 0))
				k.wantEqual("attempts under a lost lease", 0, len(k.attempts(first.Job)))
				k.record(k.attempt(second, 0))
				k.wantEqual("attempts", 1, len(k.attempts(first.Job)))
			}),
		rule("PayloadsAreLoadedUnderTheLease",
			"a lease reads no payloads, so that one may be given back for nothing; they are read while it lasts",
			func(k *fixture) {
				j := k.run(withWebhook)
				k.mustApply(finishOp(j, `{"out":1}`))
				want := k.get(j)
				lease := func() queue.Delivery {
					ds, err := k.q.Deliveries(k.Context(), k.now, k.now+sendLease, 10)
					if err != nil || len(ds) != 1 {
						k.Fatalf("Deliveries gave %d, %v, want 1", len(ds), err)
					}
					return ds[0]
				}
				first := lease()
				k.wantEqual("the job of the lease", queue.Job{Ref: want.Ref, Owner: want.Owner, Key: want.Key, State: want.State, Webhook: want.Webhook}, first.Job)
				k.now += sendLease
				second := lease()
				for range 2 {
					if err := k.q.LoadDelivery(k.Context(), &second); err != nil {
						k.Fatalf("LoadDelivery = %v, want nil", err)
					}
					k.wantEqual("the job of the delivery", want, second.Job)
				}
				k.record(k.attempt(second, 0))
				for _, lost := range []queue.Delivery{first, second} {
					if err := k.q.LoadDelivery(k.Context(), &lost); !errors.Is(err, queue.ErrLeaseLost) {
						k.Errorf("LoadDelivery without the lease = %v, want ErrLeaseLost", err)
					}
				}
			}),
		rule("DueInOrder",
			"Deliveries gives limit entries at most, the earliest due first",
			func(k *fixture) {
				var want []queue.JobID
				for range 5 {
					j := k.run(withWebhook)
					k.mustApply(finishOp(j, "1"))
					want = append(want, j.ID)
					k.wait(time.Millisecond)
				}
				var got []queue.JobID
				for _, n := range []int{0, 2, 1, 10} {
					ds := k.deliveries(n)
					if len(ds) > n {
						k.Errorf("Deliveries with limit %d gave %d", n, len(ds))
					}
					for _, d := range ds {
						got = append(got, d.Job.ID)
					}
				}
				k.wantEqual("order", want, got)
			}),
		rule("ASettledDeliveryIsOver",
			"a delivery that is settled is not given again",
			func(k *fixture) {
				k.mustApply(finishOp(k.run(withWebhook), "1"))
				d := k.delivery()
				k.record(k.attempt(d, 0))
				k.wantNext("NextDelivery", 0, k.nextDelivery())
				k.wait(time.Hour)
				k.wantEqual("Deliveries", 0, len(k.deliveries(10)))
			}),
		rule("ADeliveryIsTriedAgain",
			"a delivery is due again at Next, not before, with its tries counted and its id unchanged",
			func(k *fixture) {
				k.mustApply(finishOp(k.run(withWebhook), "1"))
				first := k.delivery()
				for try := range 3 {
					k.record(k.attempt(first, k.now+10_000))
					k.wantEqual("NextDelivery", k.now+10_000, k.nextDelivery())
					k.now += 9_999
					k.wantEqual("Deliveries before Next", 0, len(k.deliveries(10)))
					k.now++
					d := k.delivery()
					k.wantEqual("Tries", try+1, d.Tries)
					k.wantEqual("ID", first.ID, d.ID)
					first = d
				}
			}),
		rule("RecordingTwiceCountsOnce",
			"a repeated Record of one attempt changes nothing",
			func(k *fixture) {
				k.mustApply(finishOp(k.run(withWebhook), "1"))
				d := k.delivery()
				a := k.attempt(d, k.now+10_000)
				k.record(a)
				k.record(a)
				k.wantEqual("attempts", 1, len(k.attempts(d.Job)))
				k.now += 10_000
				k.wantEqual("Tries", 1, k.delivery().Tries)
			}),
		rule("PostponedIsNoAttempt",
			"a postponed delivery is due again at Next; it is neither counted nor logged",
			func(k *fixture) {
				k.mustApply(finishOp(k.run(withWebhook), "1"))
				d := k.delivery()
				a := k.attempt(d, k.now+500)
				a.Postponed, a.Status = true, 0
				k.record(a)
				k.wantEqual("attempts", 0, len(k.attempts(d.Job)))
				k.wantEqual("NextDelivery", k.now+500, k.nextDelivery())
				k.now += 500
				k.wantEqual("Tries", 0, k.delivery().Tries)
			}),
		rule("TheLogIsOldestFirst",
			"Attempts are those of the job, oldest first, with what was recorded",
			func(k *fixture) {
				j := k.run(withWebhook)
				k.mustApply(finishOp(j, "1"))
				var want []queue.Attempt
				for i := range 3 {
					a := k.attempt(k.delivery(), k.now+10_000)
					a.Status, a.Err = 500+i, fmt.Sprint("answer ", i)
					k.record(a)
					want = append(want, a)
					k.now += 10_000
				}
				k.wantEqual("Attempts", want, k.attempts(j))
				k.wantEqual("Attempts of another job", 0, len(k.attempts(k.add())))
			}),
		rule("SeveralAttemptsInOneRecord",
			"Record takes attempts at several deliveries, and skips those that it does not know",
			func(k *fixture) {
				for range 3 {
					k.mustApply(finishOp(k.run(withWebhook), "1"))
				}
				ds := k.deliveries(10)
				ghost := k.attempt(ds[0], 0)
				ghost.DeliveryID = "ghost"
				k.record(k.attempt(ds[0], 0), ghost, k.attempt(ds[1], k.now+1000), k.attempt(ds[2], 0))
				k.wantEqual("NextDelivery", k.now+1000, k.nextDelivery())
				k.now += 1000
				k.wantEqual("ID", ds[1].ID, k.delivery().ID)
			}),
		rule("ADeliveryOutlivesItsJob",
			"a delivery has the payloads of its run, also when the job is deleted meanwhile",
			func(k *fixture) {
				j := k.run(withWebhook, func(j *queue.Job) { j.Retain = time.Second })
				k.mustApply(finishOp(j, `{"out":1}`))
				want := k.get(j)
				k.wait(time.Second)
				k.expire()
				k.wantGone(j)
				k.wantEqual("the job of the delivery", want, k.delivery().Job)
			}),
		rule("ADeliveryOutlivesARetry",
			"a delivery has the payloads of its run, also when the job is retried; the next run has its own",
			func(k *fixture) {
				j := k.run(withWebhook)
				k.mustApply(failOp(j, "first"))
				want := k.get(j)
				k.mustApply(userOp(j, queue.OpRetry))
				k.mustApply(finishOp(k.take("w"), "2"))
				second := k.get(j)
				ds := k.deliveries(10)
				if len(ds) != 2 || ds[0].ID == ds[1].ID {
					k.Fatalf("Deliveries gave %d, want 2 with ids of their own", len(ds))
				}
				if ds[0].Job.Run == 1 {
					ds[0], ds[1] = ds[1], ds[0]
				}
				k.wantEqual("the job of the first run", want, ds[0].Job)
				k.wantEqual("the job of the second run", second, ds[1].Job)
			}),
		rule("ASettledDeliveryIsSentAgain",
			"OpRedeliver creates the entry of a run again, due at once, with the same id and no tries counted",
			func(k *fixture) {
				j := k.run(withWebhook)
				k.mustRefuse(userOp(j, queue.OpRedeliver), queue.ErrStatus)
				k.mustApply(finishOp(j, "1"))
				first := k.delivery()
				k.record(k.attempt(first, 0))
				k.wait(time.Second)
				k.mustApply(userOp(j, queue.OpRedeliver))
				again := k.delivery()
				k.wantEqual("ID, Tries", []any{first.ID, 0}, []any{again.ID, again.Tries})
				k.wantEqual("the job of the delivery", first.Job, again.Job)
				k.record(k.attempt(again, 0))
				k.wantEqual("attempts", 2, len(k.attempts(j)))
			}),
		rule("WhatIsOnItsWayIsNotSentTwice",
			"OpRedeliver of a run whose entry is not settled leaves it as it is",
			func(k *fixture) {
				j := k.run(withWebhook)
				k.mustApply(finishOp(j, "1"))
				k.record(k.attempt(k.delivery(), k.now+10_000))
				k.mustApply(userOp(j, queue.OpRedeliver))
				k.wantEqual("Deliveries before Next", 0, len(k.deliveries(10)))
				k.now += 10_000
				k.wantEqual("Tries", 1, k.delivery().Tries)
			}),
		rule("OneEntryForEachRun",
			"no op on an ended job writes a second entry",
			func(k *fixture) {
				j := k.run(withWebhook)
				k.mustApply(finishOp(j, "1"))
				k.mustApply(userOp(j, queue.OpCancel), userOp(j, queue.OpTick), userOp(j, queue.OpRecover))
				k.wantEqual("Deliveries", 1, len(k.deliveries(10)))
			}),
	}
}
