package serverlesstest

import (
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// threeAttempts gives a job two more attempts, 2 s and 6 s after the one before.
func threeAttempts(j *queue.Job) {
	j.Retry = queue.RetryPolicy{Attempts: 3, Factor: 3, Delay: 2 * time.Second, MaxDelay: time.Minute}
}

// delayed makes a job ready after a time.
func delayed(d time.Duration) func(*queue.Job) {
	return func(j *queue.Job) { j.Queued, j.Delayed = j.Submitted.Add(d), true }
}

func deadLetter(d time.Duration) func(*queue.Job) {
	return func(j *queue.Job) { j.DeadLetter = d }
}

// past returns the log of attempts of a job.
func (k *fixture) past(j queue.Job) []queue.JobAttempt {
	k.Helper()
	list, err := k.q.PastAttempts(k.Context(), k.now, j.Ref)
	if err != nil {
		k.Fatalf("PastAttempts(%q) = %v, want nil", j.ID, err)
	}
	return list
}

// wantNone checks that no job can be claimed.
func (k *fixture) wantNone(why string) {
	k.Helper()
	if got := k.claim(k.slot("w", 10)); len(got) > 0 {
		k.Errorf("Claim gave %v, want none: %s", ids(got), why)
	}
}

func attemptCases() []QueueCase {
	return []QueueCase{
		rule("ADelayedJobWaitsForItsTime",
			"a delayed job is claimed by nobody before its time, and Expire says when that is and makes it ready",
			func(k *fixture) {
				j := k.add(delayed(time.Minute))
				k.wantNone("the job is delayed")
				if next := k.expire(); next == 0 || next > j.Queued {
					k.Errorf("Expire says to call again at %d, want at %d at the latest", next, j.Queued)
				}
				k.now = j.Queued - 1
				k.expire()
				k.wantNone("the job is delayed")
				k.wait(time.Millisecond)
				k.expire()
				got := k.take("w")
				k.wantEqual("claimed, Delayed, DelayTime", []any{j.ID, false, time.Duration(0)}, []any{got.ID, got.Delayed, got.DelayTime()})
			}),
		rule("ADelayedJobDoesNotArriveAged",
			"a delayed job joins the end of the queue when it is ready: who came meanwhile is before it",
			func(k *fixture) {
				late := k.add(delayed(time.Minute))
				k.wait(time.Minute - time.Millisecond)
				waiting := k.add()
				k.wait(time.Millisecond)
				k.expire()
				after := k.add()
				k.wantEqual("Claim", []queue.JobID{waiting.ID, late.ID, after.ID}, ids(k.claim(k.slot("w", 3))))
			}),
		rule("DelayedJobsAreReadyInTheOrderOfTheirTimes",
			"jobs that one Expire makes ready are claimed in the order of their times, and then of their submission",
			func(k *fixture) {
				c, a, b := k.add(delayed(3*time.Second)), k.add(delayed(time.Second)), k.add(delayed(2*time.Second))
				b2 := k.add(delayed(2 * time.Second))
				k.wait(time.Hour)
				k.expire()
				k.wantEqual("Claim", []queue.JobID{a.ID, b.ID, b2.ID, c.ID}, ids(k.claim(k.slot("w", 4))))
			}),
		rule("ADelayedJobIsStartedByItsUser",
			"OpStart makes a delayed job ready now, at the end of the queue; another job is not started",
			func(k *fixture) {
				late, waiting := k.add(delayed(time.Hour)), k.add()
				k.wait(time.Second)
				k.mustRefuse(userOp(waiting, queue.OpStart), queue.ErrStatus)
				k.mustApply(userOp(late, queue.OpStart))
				after := k.add()
				k.mustRefuse(userOp(late, queue.OpStart), queue.ErrStatus)
				claimed := k.claim(k.slot("w", 3))
				k.wantEqual("Claim", []queue.JobID{waiting.ID, late.ID, after.ID}, ids(claimed))
				k.wantEqual("Queued", k.now, claimed[1].Queued)
			}),
		rule("DelayedJobsEndAsQueuedOnesDo",
			"a delayed job is listed, cancelled, purged and deleted as a queued one",
			func(k *fixture) {
				cancelled, purged := k.add(withWebhook, delayed(time.Hour)), k.add(delayed(time.Hour))
				gone := k.add(delayed(time.Hour), func(j *queue.Job) { j.Expires = k.now + 5_000 })
				k.wantEqual("Queued", int64(3), k.stats(echo).Queued)
				k.mustApply(userOp(cancelled, queue.OpCancel))
				k.wantEqual("webhooks", 1, len(k.deliveries(10)))
				k.wait(5 * time.Second)
				k.expire()
				k.wantGone(gone)
				n, _ := k.purge(queue.PurgeQuery{Endpoint: echo, UpTo: 1<<63 - 1, Limit: 10})
				k.wantEqual("purged", 1, n)
				k.wantStatus(purged, queue.Cancelled)
				k.wait(time.Hour)
				k.expire()
				k.wantNone("they have ended")
			}),
		rule("AnAttemptFollowsAFailure",
			"a job with a policy is IN_QUEUE again after a failure, ready at the end of the delay, and ends with its last attempt",
			func(k *fixture) {
				j := k.add(withWebhook, threeAttempts)
				for n, delay := range []time.Duration{2 * time.Second, 6 * time.Second} {
					k.wait(time.Second)
					op := failOp(k.take("w"), fmt.Sprint("no ", n))
					op.Payload = []byte(`1`)
					s := k.mustApply(op)
					k.wantEqual("Attempt, Queued", []any{uint8(n + 1), k.now.Add(delay)}, []any{s.Attempt, s.Queued})
					got := k.wantStatus(j, queue.InQueue)
					k.wantEqual("Output, Error", []string{"", ""}, []string{string(got.Output), got.Error})
					k.now = s.Queued - 1
					k.expire()
					k.wantNone("the attempt is delayed")
					k.wait(time.Millisecond)
					k.expire()
				}
				k.wantEqual("webhooks before the end", 0, len(k.deliveries(10)))
				k.mustApply(failOp(k.take("w"), "no more"))
				got := k.wantStatus(j, queue.Failed)
				k.wantEqual("Error, DelayTime", []any{"no more", time.Duration(0)}, []any{got.Error, got.DelayTime()})
				k.wantEqual("webhooks", 1, len(k.deliveries(10)))
				st := k.stats(echo)
				k.wantEqual("Failed, Retried", []int64{1, 2}, []int64{st.Failed, st.Retried})
			}),
		rule("TheLogOfAttempts",
			"PastAttempts has each attempt that another one followed, in order, and none of an earlier run",
			func(k *fixture) {
				j := k.add(threeAttempts)
				k.wantEqual("PastAttempts", []queue.JobAttempt(nil), k.past(j))
				var want []queue.JobAttempt
				for n, delay := range []time.Duration{2 * time.Second, 6 * time.Second} {
					w := queue.WorkerID(rune('a' + n))
					running := k.take(w)
					k.wait(time.Second)
					k.mustApply(failOp(running, fmt.Sprint("no ", n)))
					want = append(want, queue.JobAttempt{
						Number: n + 1, Status: queue.Failed, Error: fmt.Sprint("no ", n), Worker: w,
						Started: running.Started, Finished: k.now, Delay: delay,
					})
					k.wantEqual("PastAttempts", want, k.past(j))
					k.wait(delay)
					k.expire()
				}
				k.mustApply(failOp(k.take("c"), "no more"))
				k.wantEqual("PastAttempts", want, k.past(j))
				k.mustApply(userOp(j, queue.OpRetry))
				k.wantEqual("PastAttempts after a retry of the user", []queue.JobAttempt(nil), k.past(j))
				again := k.take("d")
				k.mustApply(failOp(again, "again"))
				k.wantEqual("attempts of the second run", 1, len(k.past(j)))
				k.wantEqual("Error", "again", k.past(j)[0].Error)
				if _, err := k.q.PastAttempts(k.Context(), k.now, queue.Ref{Endpoint: echo, ID: "none"}); !errors.Is(err, queue.ErrNotFound) {
					k.Errorf("PastAttempts of no job = %v, want ErrNotFound", err)
				}
			}),
		rule("ALostWorkerSpendsNoAttempt",
			"a job that lost its worker keeps its place and has the same attempt; each attempt has MaxDeliveries deliveries",
			func(k *fixture) {
				j := k.add(threeAttempts)
				after := k.add()
				for attempt := range uint8(2) {
					for i := range queue.MaxDeliveries {
						w := queue.WorkerID(rune('a' + i))
						got := k.take(w)
						k.wantEqual("claimed, Attempt", []any{j.ID, attempt}, []any{got.ID, got.Attempt})
						k.mustApply(queue.Op{Ref: j.Ref, Kind: queue.OpWorkerLost, Worker: w})
					}
					k.wantEqual("Attempt", attempt+1, k.get(j).Attempt)
					k.wantEqual("Status in the log", queue.Failed, k.past(j)[attempt].Status)
					if attempt == 0 {
						k.mustApply(userOp(after, queue.OpCancel))
						k.wait(2 * time.Second)
						k.expire()
					}
				}
				k.wantEqual("Retried", int64(6), k.stats(echo).Retried)
			}),
		rule("TimeoutsAreRetriedWhereThePolicySaysSo",
			"a job that runs too long is TIMED_OUT, and has another attempt with RetryPolicy.Timeouts only",
			func(k *fixture) {
				short := func(j *queue.Job) { j.ExecTimeout = 5 * time.Second }
				plain := k.add(threeAttempts, short)
				again := k.add(threeAttempts, short, func(j *queue.Job) { j.Retry.Timeouts = true })
				k.claim(k.slot("w", 2))
				k.wait(5 * time.Second)
				k.expire()
				k.wantStatus(plain, queue.TimedOut)
				k.wantStatus(again, queue.InQueue)
				k.wantEqual("Status in the log", queue.TimedOut, k.past(again)[0].Status)
				k.mustRefuse(withAdopt(finishOp(queue.Job{Ref: again.Ref, State: queue.State{Worker: "w"}}, "1")), queue.ErrLeaseLost)
			}),
		rule("NoAttemptFollowsAChunkThatWasRead",
			"after a chunk was read the job fails at once; unread chunks are dropped with their attempt",
			func(k *fixture) {
				unread := k.run(threeAttempts)
				k.mustApply(chunk(unread, "a"), failOp(unread, "no"))
				k.wantStatus(unread, queue.InQueue)
				left, s := k.chunks(unread, 100)
				k.wantEqual("chunks", 0, len(left)+int(s.Chunks))
				k.mustApply(userOp(unread, queue.OpCancel))

				read := k.run(threeAttempts)
				k.mustApply(chunk(read, "a"), chunk(read, "b"))
				k.mustApply(queue.Op{Ref: read.Ref, Kind: queue.OpDrain, Token: read.Token, N: 1, Bytes: 1})
				k.mustApply(queue.Op{Ref: read.Ref, Kind: queue.OpWorkerLost, Worker: "w"})
				k.mustApply(failOp(k.take("v"), "no"))
				k.wantStatus(read, queue.Failed)
			}),
		rule("NoAttemptPastTheTTL",
			"an attempt that would be ready at the ttl or later is none: the job fails at once, and its webhook is sent",
			func(k *fixture) {
				j := k.run(withWebhook, threeAttempts, func(j *queue.Job) { j.Expires = k.now + 2_000 })
				k.mustApply(failOp(j, "no"))
				k.wantEqual("Error", "no", k.wantStatus(j, queue.Failed).Error)
				k.wantEqual("webhooks", 1, len(k.deliveries(10)))
			}),
	}
}

func (k *fixture) dead(owner string) (ids []queue.JobID) {
	k.Helper()
	for d, err := range k.q.DeadLetters(k.Context(), k.now, echo, owner) {
		if err != nil {
			k.Fatalf("DeadLetters = %v, want no error", err)
		}
		ids = append(ids, d.ID)
	}
	return ids
}

// letter reads the dead letter of a job.
func (k *fixture) letter(j queue.Job) queue.DeadLetter {
	k.Helper()
	d, err := k.q.DeadLetter(k.Context(), k.now, j.Ref)
	if err != nil {
		k.Fatalf("DeadLetter(%q) = %v, want it", j.ID, err)
	}
	return d
}

// wantNoLetter checks that a job has no dead letter.
func (k *fixture) wantNoLetter(j queue.Job) {
	k.Helper()
	if d, err := k.q.DeadLetter(k.Context(), k.now, j.Ref); !errors.Is(err, queue.ErrNotFound) {
		k.Errorf("DeadLetter(%q) = %v, %v, want ErrNotFound", j.ID, d.Status, err)
	}
}

func deadCases() []QueueCase {
	day := 24 * time.Hour
	return []QueueCase{
		rule("ADeadLetterIsACopyOfTheFailure",
			"the final failure leaves a copy of the job with its payloads, which outlives the job; no other end does",
			func(k *fixture) {
				full := k.run(withWebhook, deadLetter(30*day), func(j *queue.Job) {
					j.Key, j.Extra, j.Trace = "key", []byte(`{"s3Config":{}}`), trace()
				})
				op := failOp(full, "no")
				op.Payload = []byte(`{"x":1}`)
				k.mustApply(op)
				want := k.get(full)
				k.wantEqual("DeadLetter", queue.DeadLetter{Job: want, Until: k.now.Add(30 * day)}, k.letter(full))
				for d, err := range k.q.DeadLetters(k.Context(), k.now, echo, "") {
					k.wantEqual("listed", queue.DeadLetter{Job: queue.Job{Ref: want.Ref, Owner: want.Owner, Key: "key", State: want.State}, Until: k.now.Add(30 * day)}, d)
					k.wantEqual("error", error(nil), err)
				}
				completed, none := k.run(deadLetter(day)), k.job()
				k.mustApply(finishOp(completed, "1"))
				none = k.run(func(j *queue.Job) { j.ID = none.ID })
				k.mustApply(failOp(none, "no"))
				cancelled := k.add(deadLetter(day))
				k.mustApply(userOp(cancelled, queue.OpCancel))
				for _, j := range []queue.Job{completed, none, cancelled} {
					k.wantNoLetter(j)
				}
				k.wait(20 * day)
				k.expire()
				k.wantGone(full)
				got := k.letter(full)
				k.wantEqual("Input, Output, Error, Extra", []string{string(want.Input), `{"x":1}`, "no", `{"s3Config":{}}`},
					[]string{string(got.Input), string(got.Output), got.Error, string(got.Extra)})
			}),
		rule("DeadLettersOfACallHaveItsOrder",
			"moves of one call leave their dead letters in its order, also if a job has several moves",
			func(k *fixture) {
				a, b, c := k.run(deadLetter(day)), k.run(deadLetter(day)), k.run(deadLetter(day))
				k.mustApply(workerOp(b, queue.OpProgress), failOp(b, "no"), failOp(c, "no"), failOp(a, "no"))
				d, e := k.run(deadLetter(day)), k.run(deadLetter(day))
				k.mustApply(failOp(e, "no"), failOp(d, "no"))
				var got []queue.JobID
				for l, err := range k.q.DeadLetters(k.Context(), k.now, echo, "") {
					k.wantEqual("error", error(nil), err)
					got = append(got, l.Job.ID)
				}
				k.wantEqual("the newest first", []queue.JobID{d.ID, e.ID, a.ID, c.ID, b.ID}, got)
			}),
		rule("ADeadLetterGoesWhenItsTimeIsOver",
			"a dead letter is not found from its time on, swept or not, and Expire says when that is",
			func(k *fixture) {
				j := k.run(deadLetter(2 * day))
				k.mustApply(failOp(j, "no"))
				until := k.now.Add(2 * day)
				k.now += ttl
				k.wantNext("Expire before the end of the dead letter", until, k.expire())
				k.now = until - 1
				k.letter(j)
				k.now = until
				k.wantNoLetter(j)
				k.wantEqual("DeadLetters", []queue.JobID(nil), k.dead(""))
				k.wantNext("Expire", 0, k.expire())
			}),
		rule("AJobHasOneDeadLetter",
			"the failure of a later run takes the place of the dead letter of an earlier one, and a run that completes takes it away",
			func(k *fixture) {
				j := k.run(deadLetter(day))
				op := failOp(j, "first")
				op.Payload = []byte("1")
				k.mustApply(op)
				k.mustApply(userOp(j, queue.OpRetry))
				k.wantEqual("while it runs again", []any{"first", "1", uint32(0)}, []any{k.letter(j).Error, string(k.letter(j).Output), k.letter(j).Run})
				k.mustApply(failOp(k.take("w"), "second"))
				k.wantEqual("after the second failure", []any{"second", "", uint32(1)}, []any{k.letter(j).Error, string(k.letter(j).Output), k.letter(j).Run})
				k.mustApply(userOp(j, queue.OpRetry))
				k.mustApply(finishOp(k.take("w"), "2"))
				k.wantNoLetter(j)
				k.wantEqual("DeadLetters", []queue.JobID(nil), k.dead(""))
				k.wantEqual("Input of the job", string(j.Input), string(k.get(j).Input))
			}),
		rule("ADeadLetterKeepsTheInputThatItsJobDrops",
			"OpDropInput leaves a dead letter as it is, whether it goes before its job or after it",
			func(k *fixture) {
				for _, first := range []string{"the dead letter", "the job"} {
					j := k.run(deadLetter(day))
					k.mustApply(failOp(j, "no"))
					k.mustApply(userOp(j, queue.OpDropInput))
					k.wantEqual("Input of the dead letter", string(j.Input), string(k.letter(j).Input))
					k.wantEqual("Input of the job", "", string(k.get(j).Input))
					if first == "the job" {
						k.mustApply(userOp(j, queue.OpDelete))
						k.wantEqual("Input after the deletion", string(j.Input), string(k.letter(j).Input))
						continue
					}
					if err := k.q.DropDead(k.Context(), []queue.Ref{j.Ref}); err != nil {
						k.Fatal(err)
					}
					k.wantNoLetter(j)
					k.wantEqual("Input without the dead letter", "", string(k.get(j).Input))
				}
			}),
		rule("DeadLettersOfAnOwner",
			"dead letters are listed newest first, of one owner or of all, and each can be deleted",
			func(k *fixture) {
				var jobs []queue.Job
				for i := range 4 {
					j := k.run(deadLetter(day), ownedBy(fmt.Sprint("owner-", i%2)))
					k.mustApply(failOp(j, "no"))
					jobs = append(jobs, j)
				}
				k.wantEqual("of all", []queue.JobID{jobs[3].ID, jobs[2].ID, jobs[1].ID, jobs[0].ID}, k.dead(""))
				k.wantEqual("of one", []queue.JobID{jobs[2].ID, jobs[0].ID}, k.dead("owner-0"))
				for range 2 {
					if err := k.q.DropDead(k.Context(), []queue.Ref{jobs[2].Ref, jobs[1].Ref}); err != nil {
						k.Errorf("DropDead = %v, want nil, also the second time", err)
					}
				}
				k.wantNoLetter(jobs[2])
				k.wantStatus(jobs[2], queue.Failed)
				k.wantEqual("of all", []queue.JobID{jobs[3].ID, jobs[0].ID}, k.dead(""))
			}),
		rule("DeadLettersAreBounded",
			"an owner with MaxDeadLetters loses the oldest one to the next; another owner does not",
			func(k *fixture) {
				other := k.run(deadLetter(day), ownedBy("other"))
				k.mustApply(failOp(other, "no"))
				jobs := make([]queue.Job, queue.MaxDeadLetters+2)
				for i := range jobs {
					jobs[i] = k.job(deadLetter(day))
				}
				k.enqueue(jobs...)
				claimed := k.claim(k.slot("w", len(jobs)))
				ops := make([]queue.Op, len(claimed))
				for i := range ops {
					ops[i] = failOp(claimed[i], "no")
				}
				k.mustApply(ops...)
				k.wantEqual("dead letters", queue.MaxDeadLetters, len(k.dead("user-1")))
				k.wantNoLetter(jobs[0])
				k.wantNoLetter(jobs[1])
				k.letter(jobs[2])
				k.letter(other)
			}),
	}
}
