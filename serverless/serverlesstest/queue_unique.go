package serverlesstest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

func unique(key string, while queue.UniqueWhile) func(*queue.Job) {
	return func(j *queue.Job) { j.Unique = queue.Unique{Key: key, While: while, Period: time.Minute} }
}

// mustBeTaken checks that a job with a key is refused because another one holds the key, and is not there.
func (k *fixture) mustBeTaken(by queue.Job, change ...func(*queue.Job)) {
	k.Helper()
	j := k.job(change...)
	if err := k.q.Enqueue(k.Context(), []queue.Job{k.job(), j}); !errors.Is(err, &queue.TakenError{Ref: by.Ref}) {
		k.Fatalf("Enqueue of a job with the key of %q = %v, want TakenError", by.ID, err)
	}
	k.wantGone(j)
}

func replaceOp(j queue.Job, with *queue.Job) queue.Op {
	return queue.Op{Ref: j.Ref, Kind: queue.OpReplace, Job: with}
}

// uniqueCases are the rules of jobs with a unique key.
func uniqueCases() []QueueCase {
	return []QueueCase{
		rule("AKeyIsHeldWhileItsJobIsQueued",
			"with WhileQueued no other job has the key while the first one waits, delayed or not; once it runs there may be another",
			func(k *fixture) {
				u := unique("u", queue.WhileQueued)
				j := k.add(u)
				k.mustBeTaken(j, u)
				k.mustBeTaken(j, unique("u", queue.WhileActive), delayed(time.Hour))
				k.take("w")
				next := k.add(u, delayed(time.Minute))
				k.mustBeTaken(next, u)
				k.mustApply(userOp(next, queue.OpCancel))
				k.add(u)
			}),
		rule("AKeyIsHeldUntilItsJobHasEnded",
			"with WhileActive the key is held until the job has ended in any way, also while it is lost and queued again",
			func(k *fixture) {
				u := unique("u", queue.WhileActive)
				for _, end := range []func(queue.Job) queue.Op{
					func(j queue.Job) queue.Op { return finishOp(j, "1") },
					func(j queue.Job) queue.Op { return failOp(j, "no") },
					func(j queue.Job) queue.Op { return userOp(j, queue.OpCancel) },
				} {
					j := k.run(u)
					k.mustBeTaken(j, u)
					k.mustApply(workerOp(j, queue.OpRelease))
					k.mustBeTaken(j, u)
					k.mustApply(end(k.take("w")))
				}
				old := k.add(u, func(j *queue.Job) { j.Expires = k.now + 1000 })
				k.mustBeTaken(old, u)
				k.wait(time.Second)
				k.add(u) // not swept
			}),
		rule("AKeyIsHeldForItsPeriod",
			"with ForPeriod the key is held for the period from the submission, whatever its job does, as long as it is there",
			func(k *fixture) {
				u := unique("u", queue.ForPeriod)
				j := k.run(u)
				k.mustApply(finishOp(j, "1"))
				k.wait(time.Minute - time.Millisecond)
				k.mustBeTaken(j, u)
				k.wait(time.Millisecond)
				next := k.run(u)
				k.mustBeTaken(next, u)
				k.mustApply(userOp(next, queue.OpCancel))
				k.mustBeTaken(next, u)
				k.mustApply(userOp(next, queue.OpDelete))
				k.add(u)
			}),
		rule("AKeyIsOfOneOwnerAndEndpoint",
			"the same key of another owner or on another endpoint is another key, and Job.Key has nothing to do with it",
			func(k *fixture) {
				u := unique("u", queue.WhileActive)
				j := k.add(u)
				k.add(u, ownedBy("user-2"))
				k.add(u, onEndpoint("other"))
				k.add(unique("U", queue.WhileActive))
				k.add(withKey("u"))
				k.wantEqual("the job that is read", j, k.get(j))
				k.mustBeTaken(j, u)
			}),
		rule("TwoJobsOfOneCallDoNotShareAKey",
			"of jobs that are added together no two have one key, and none is added then",
			func(k *fixture) {
				u := unique("u", queue.WhileQueued)
				jobs := []queue.Job{k.job(u), k.job(), k.job(u)}
				if err := k.q.Enqueue(k.Context(), jobs); !errors.Is(err, &queue.TakenError{Ref: jobs[0].Ref}) {
					k.Errorf("Enqueue of two jobs with one key = %v, want TakenError", err)
				}
				k.wantEqual("Queued", int64(0), k.stats(echo).Queued)
				k.add(u)
			}),
		rule("OneOfManyCallersGetsAKey",
			"of 64 callers at once with one key one adds its job, and the others are told which",
			func(k *fixture) {
				const callers = 64
				u := unique("u", queue.WhileActive)
				var jobs [callers]queue.Job
				var errs [callers]error
				for i := range jobs {
					jobs[i] = k.job(u)
				}
				var all sync.WaitGroup
				for i := range jobs {
					all.Go(func() { errs[i] = k.q.Enqueue(k.Context(), jobs[i:i+1]) })
				}
				all.Wait()
				var first *queue.Job
				for i, err := range errs {
					if err == nil && first != nil {
						k.Fatalf("%q and %q were both added", first.ID, jobs[i].ID)
					}
					if err == nil {
						first = &jobs[i]
					}
				}
				if first == nil {
					k.Fatalf("no job was added: %v", errs[0])
				}
				for i, err := range errs {
					if err != nil && !errors.Is(err, queue.ErrKeyTaken) { // of a slow database without the job
						k.Errorf("caller %d got %v, want ErrKeyTaken because of %q", i, err, first.ID)
					}
				}
				k.wantEqual("Queued", int64(1), k.stats(echo).Queued)
			}),
		rule("ARetryTakesItsKeyOrIsRefused",
			"a retry of a job whose key another job holds is refused and changes nothing; else the job has its key again",
			func(k *fixture) {
				for _, while := range []queue.UniqueWhile{queue.WhileQueued, queue.WhileActive} {
					u := unique(fmt.Sprint("u", while), while)
					j := k.run(u)
					k.mustApply(failOp(j, "no"))
					next := k.add(u)
					k.mustRefuse(userOp(j, queue.OpRetry), &queue.TakenError{Ref: next.Ref})
					k.mustApply(userOp(next, queue.OpCancel), userOp(j, queue.OpRetry))
					k.mustBeTaken(j, u)
					k.mustApply(userOp(j, queue.OpCancel))
				}
				period := k.run(unique("p", queue.ForPeriod))
				k.mustApply(failOp(period, "no"))
				k.wait(time.Minute)
				next := k.add(unique("p", queue.ForPeriod))
				k.mustApply(userOp(period, queue.OpRetry)) // its period is over: it takes no key
				k.mustBeTaken(next, unique("p", queue.ForPeriod))
			}),
		rule("ReplaceChangesAQueuedJobInItsPlace",
			"OpReplace gives a queued job other payloads, another execution timeout and other flags; place, id, attempts and ttl stay",
			func(k *fixture) {
				u := unique("u", queue.WhileQueued)
				j, behind := k.add(u, withWebhook, lowPriority, func(j *queue.Job) { j.Trace = trace() }), k.add()
				with := k.job(func(j *queue.Job) { j.ExecTimeout = time.Minute })
				k.mustApply(replaceOp(j, &with))
				want := j
				want.Input, want.Webhook, want.Trace = with.Input, "", queue.Trace{}
				want.Flags, want.ExecTimeout, want.InBytes = 0, time.Minute, uint32(len(with.Input))
				k.wantEqual("the replaced job", want, k.get(j))
				k.wantEqual("the part of low priority", int64(0), k.stats(echo).ReadyLow)
				k.wantEqual("ready", int64(2), k.stats(echo).Ready)
				k.wantEqual("the oldest", j.Queued, k.stats(echo).Oldest)
				hooked := k.job(withWebhook, lowPriority)
				k.mustApply(replaceOp(j, &hooked))
				k.wantEqual("the part of low priority, replaced again", int64(1), k.stats(echo).ReadyLow)
				got := k.take("w")
				k.wantEqual("the input that a worker gets", string(hooked.Input), string(got.Input))
				k.wantEqual("the job that a worker gets", j.Ref, got.Ref)
				k.mustRefuse(replaceOp(j, &with), queue.ErrStatus)
				k.mustApply(finishOp(got, "1"))
				k.mustRefuse(replaceOp(j, &with), queue.ErrStatus)
				if ds, err := k.q.Deliveries(k.Context(), k.now, k.now+1000, 10); err != nil || len(ds) != 1 || ds[0].Job.Webhook != hooked.Webhook {
					k.Errorf("Deliveries after the end = %d, %v, want the webhook of the last submission", len(ds), err)
				}
				k.mustRefuse(replaceOp(behind, &with), queue.ErrStatus) // it is not unique
			}),
		rule("ReplaceTakesLargeInputs",
			"an input of any size replaces one of any size, and the job is then claimed with it",
			func(k *fixture) {
				u := unique("u", queue.WhileQueued)
				large := func(n int) queue.Job {
					return k.job(func(j *queue.Job) { j.Input = fmt.Appendf(nil, `{"x":"%0*d"}`, n, n) })
				}
				j := k.add(u)
				for _, n := range []int{200_000, 300_000, 10, 250_000} {
					with := large(n)
					k.mustApply(replaceOp(j, &with))
					k.wantEqual("the input", string(with.Input), string(k.get(j).Input))
				}
				k.wantEqual("the length that a worker gets", len(large(250_000).Input), len(k.take("w").Input))
			}),
		rule("ARetriedJobIsNotReplaced",
			"a job that the user has retried keeps its input, because dead letters and webhooks of its earlier runs have it",
			func(k *fixture) {
				j := k.run(unique("u", queue.WhileQueued), deadLetter(time.Hour))
				k.mustApply(failOp(j, "no"), userOp(j, queue.OpRetry))
				with := k.job()
				k.mustRefuse(replaceOp(j, &with), queue.ErrReplaced)
			}),
	}
}
