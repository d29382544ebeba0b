package serverlesstest

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless"
)

// sendLease is how long a delivery of the suite is leased, in ms.
const sendLease = 60_000

func (k *kit) deliveries(limit int) []serverless.Delivery {
	k.Helper()
	ds, err := k.q.Deliveries(k.Context(), k.now, k.now+sendLease, limit)
	if err != nil {
		k.Fatalf("Deliveries = %v, want nil", err)
	}
	return ds
}

// delivery leases the one delivery that is due.
func (k *kit) delivery() serverless.Delivery {
	k.Helper()
	ds := k.deliveries(10)
	if len(ds) != 1 {
		k.Fatalf("Deliveries gave %d, want 1", len(ds))
	}
	return ds[0]
}

// attempt is an attempt now at d; next is when to try again, 0 when it is settled.
func (k *kit) attempt(d serverless.Delivery, next serverless.Instant) serverless.Attempt {
	return serverless.Attempt{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: k.now, Next: next, Status: 200}
}

func (k *kit) record(a ...serverless.Attempt) {
	k.Helper()
	if err := k.q.Record(k.Context(), a); err != nil {
		k.Fatalf("Record = %v, want nil", err)
	}
}

func (k *kit) nextDelivery() serverless.Instant {
	k.Helper()
	next, err := k.q.NextDelivery(k.Context())
	if err != nil {
		k.Fatalf("NextDelivery = %v, want nil", err)
	}
	return next
}

func (k *kit) attempts(j serverless.Job) []serverless.Attempt {
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
			func(k *kit) {
				j := k.run()
				k.must(done(j, "1"))
				k.run(hooked)
				k.equal("Deliveries", 0, len(k.deliveries(10)))
				k.equal("NextDelivery", serverless.Instant(0), k.nextDelivery())
				k.equal("Attempts", 0, len(k.attempts(j)))
			}),
		rule("EachTerminalStatusIsDelivered",
			"the commit that ends a job with a webhook writes one entry, due at once, with the job as it is then",
			func(k *kit) {
				for _, end := range []func(j serverless.Job){
					func(j serverless.Job) { k.must(done(j, `{"out":1}`)) },
					func(j serverless.Job) { k.must(failed(j, "no")) },
					func(j serverless.Job) { k.must(user(j, serverless.OpCancel)) },
					func(j serverless.Job) { k.now += exec; k.must(user(j, serverless.OpTick)) },
				} {
					j := k.run(hooked)
					end(j)
					want := k.get(j)
					if !want.Status.Terminal() {
						k.Fatalf("%q is %v, want a terminal status", j.ID, want.Status)
					}
					d := k.delivery()
					k.equal("the job of the delivery", want, d.Job)
					k.equal("Tries", 0, d.Tries)
					k.record(k.attempt(d, 0))
				}
			}),
		rule("DeletionIsNotDelivered",
			"a job that its ttl deletes has no delivery (decisions: deletion by ttl is no terminal state)",
			func(k *kit) {
				k.add(hooked, func(j *serverless.Job) { j.Expires = k.now + 1000 })
				k.wait(time.Second)
				k.expire()
				k.equal("Deliveries", 0, len(k.deliveries(10)))
			}),
		rule("PurgeAndSweepDeliver",
			"jobs that Purge or Expire ends are delivered like any other",
			func(k *kit) {
				k.add(hooked)
				k.purge(serverless.PurgeQuery{Endpoint: echo, UpTo: 1<<63 - 1, Limit: 10})
				k.run(hooked)
				k.now += exec
				k.expire()
				var got []serverless.Status
				for _, d := range k.deliveries(10) {
					got = append(got, d.Job.Status)
				}
				k.equal("statuses", []serverless.Status{serverless.Cancelled, serverless.TimedOut}, got)
			}),
		rule("ADeliveryIsLeased",
			"a delivery is given to one caller until the lease ends, then to the next, under another token",
			func(k *kit) {
				k.must(done(k.run(hooked), "1"))
				first := k.delivery()
				k.equal("Deliveries", 0, len(k.deliveries(10)))
				k.equal("NextDelivery", k.now+sendLease, k.nextDelivery())
				k.now += sendLease
				second := k.delivery()
				if second.ID != first.ID || second.Token == first.Token {
					k.Errorf("delivery %q under token %d, then %q under %d: want one id and two tokens", first.ID, first.Token, second.ID, second.Token)
				}
				k.record(k.attempt(first, 0))
				k.equal("attempts under a lost lease", 0, len(k.attempts(first.Job)))
				k.record(k.attempt(second, 0))
				k.equal("attempts", 1, len(k.attempts(first.Job)))
			}),
		rule("DueInOrder",
			"Deliveries gives limit entries at most, the earliest due first",
			func(k *kit) {
				var want []serverless.JobID
				for range 5 {
					j := k.run(hooked)
					k.must(done(j, "1"))
					want = append(want, j.ID)
					k.wait(time.Millisecond)
				}
				var got []serverless.JobID
				for _, n := range []int{0, 2, 1, 10} {
					ds := k.deliveries(n)
					if len(ds) > n {
						k.Errorf("Deliveries with limit %d gave %d", n, len(ds))
					}
					for _, d := range ds {
						got = append(got, d.Job.ID)
					}
				}
				k.equal("order", want, got)
			}),
		rule("ASettledDeliveryIsOver",
			"a delivery that is settled is not given again",
			func(k *kit) {
				k.must(done(k.run(hooked), "1"))
				d := k.delivery()
				k.record(k.attempt(d, 0))
				k.equal("NextDelivery", serverless.Instant(0), k.nextDelivery())
				k.wait(time.Hour)
				k.equal("Deliveries", 0, len(k.deliveries(10)))
			}),
		rule("ADeliveryIsTriedAgain",
			"a delivery is due again at Next, not before, with its tries counted and its id unchanged",
			func(k *kit) {
				k.must(done(k.run(hooked), "1"))
				first := k.delivery()
				for try := range 3 {
					k.record(k.attempt(first, k.now+10_000))
					k.equal("NextDelivery", k.now+10_000, k.nextDelivery())
					k.now += 9_999
					k.equal("Deliveries before Next", 0, len(k.deliveries(10)))
					k.now++
					d := k.delivery()
					k.equal("Tries", try+1, d.Tries)
					k.equal("ID", first.ID, d.ID)
					first = d
				}
			}),
		rule("RecordingTwiceCountsOnce",
			"a repeated Record of one attempt is left alone",
			func(k *kit) {
				k.must(done(k.run(hooked), "1"))
				d := k.delivery()
				a := k.attempt(d, k.now+10_000)
				k.record(a)
				k.record(a)
				k.equal("attempts", 1, len(k.attempts(d.Job)))
				k.now += 10_000
				k.equal("Tries", 1, k.delivery().Tries)
			}),
		rule("PostponedIsNoAttempt",
			"a postponed delivery is due again at Next; it is neither counted nor logged",
			func(k *kit) {
				k.must(done(k.run(hooked), "1"))
				d := k.delivery()
				a := k.attempt(d, k.now+500)
				a.Postponed, a.Status = true, 0
				k.record(a)
				k.equal("attempts", 0, len(k.attempts(d.Job)))
				k.equal("NextDelivery", k.now+500, k.nextDelivery())
				k.now += 500
				k.equal("Tries", 0, k.delivery().Tries)
			}),
		rule("TheLogIsOldestFirst",
			"Attempts are those of the job, oldest first, with what was recorded",
			func(k *kit) {
				j := k.run(hooked)
				k.must(done(j, "1"))
				var want []serverless.Attempt
				for i := range 3 {
					a := k.attempt(k.delivery(), k.now+10_000)
					a.Status, a.Err = 500+i, fmt.Sprint("answer ", i)
					k.record(a)
					want = append(want, a)
					k.now += 10_000
				}
				k.equal("Attempts", want, k.attempts(j))
				k.equal("Attempts of another job", 0, len(k.attempts(k.add())))
			}),
		rule("SeveralAttemptsInOneRecord",
			"Record takes attempts at several deliveries, and skips those that it does not know",
			func(k *kit) {
				for range 3 {
					k.must(done(k.run(hooked), "1"))
				}
				ds := k.deliveries(10)
				ghost := k.attempt(ds[0], 0)
				ghost.DeliveryID = "ghost"
				k.record(k.attempt(ds[0], 0), ghost, k.attempt(ds[1], k.now+1000), k.attempt(ds[2], 0))
				k.equal("NextDelivery", k.now+1000, k.nextDelivery())
				k.now += 1000
				k.equal("ID", ds[1].ID, k.delivery().ID)
			}),
		rule("ADeliveryOutlivesItsJob",
			"a delivery has the payloads of its run, also when the job is deleted meanwhile",
			func(k *kit) {
				j := k.run(hooked, func(j *serverless.Job) { j.Retain = 1000 })
				k.must(done(j, `{"out":1}`))
				want := k.get(j)
				k.wait(time.Second)
				k.expire()
				k.gone(j)
				k.equal("the job of the delivery", want, k.delivery().Job)
			}),
		rule("ADeliveryOutlivesARetry",
			"a delivery has the payloads of its run, also when the job is retried; the next run has its own",
			func(k *kit) {
				j := k.run(hooked)
				k.must(failed(j, "first"))
				want := k.get(j)
				k.must(user(j, serverless.OpRetry))
				k.must(done(k.take("w"), "2"))
				second := k.get(j)
				ds := k.deliveries(10)
				if len(ds) != 2 || ds[0].ID == ds[1].ID {
					k.Fatalf("Deliveries gave %d, want 2 with ids of their own", len(ds))
				}
				if ds[0].Job.Run == 1 {
					ds[0], ds[1] = ds[1], ds[0]
				}
				k.equal("the job of the first run", want, ds[0].Job)
				k.equal("the job of the second run", second, ds[1].Job)
			}),
		rule("ASettledDeliveryIsSentAgain",
			"OpRedeliver writes the entry of a run anew, due at once, with its id, and no tries counted",
			func(k *kit) {
				j := k.run(hooked)
				k.refuse(user(j, serverless.OpRedeliver), serverless.ErrStatus)
				k.must(done(j, "1"))
				first := k.delivery()
				k.record(k.attempt(first, 0))
				k.wait(time.Second)
				k.must(user(j, serverless.OpRedeliver))
				again := k.delivery()
				k.equal("ID, Tries", []any{first.ID, 0}, []any{again.ID, again.Tries})
				k.equal("the job of the delivery", first.Job, again.Job)
				k.record(k.attempt(again, 0))
				k.equal("attempts", 2, len(k.attempts(j)))
			}),
		rule("WhatIsOnItsWayIsNotSentTwice",
			"OpRedeliver of a run whose entry is not settled leaves it as it is",
			func(k *kit) {
				j := k.run(hooked)
				k.must(done(j, "1"))
				k.record(k.attempt(k.delivery(), k.now+10_000))
				k.must(user(j, serverless.OpRedeliver))
				k.equal("Deliveries before Next", 0, len(k.deliveries(10)))
				k.now += 10_000
				k.equal("Tries", 1, k.delivery().Tries)
			}),
		rule("OneEntryForEachRun",
			"a job that has ended writes no second entry, whatever is asked of it",
			func(k *kit) {
				j := k.run(hooked)
				k.must(done(j, "1"))
				k.must(user(j, serverless.OpCancel), user(j, serverless.OpTick), user(j, serverless.OpRecover))
				k.equal("Deliveries", 1, len(k.deliveries(10)))
			}),
	}
}
