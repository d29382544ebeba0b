package serverlesstest

import (
	"errors"
	"strings"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// trace returns a trace context with every character that JSON escapes.
func trace() queue.Trace {
	return queue.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: `a=1,b="\`}
}

func submitCases() []QueueCase {
	return []QueueCase{
		rule("WhatWasSubmittedIsRead",
			"Get returns every field that Enqueue was given, payloads byte for byte",
			func(k *fixture) {
				full := k.job(withWebhook, lowPriority, ownedBy("someone else"))
				full.Flags |= queue.Sync
				full.Input = []byte("{ \"a\" : 1.0e2,\n\"a\":\"\\u0041\xf0\x9f\x8e\x88\", \"b\":[ ] }")
				full.Extra = []byte(`{"s3Config": {"accessSecret":"x"} }`)
				full.Trace = trace()
				full.Key, full.Priority, full.Attempt = "a key", 9, 2
				full.Retry = queue.RetryPolicy{Attempts: 20, Timeouts: true, Factor: 1.5, Jitter: 0.25, Delay: time.Second, MaxDelay: time.Hour}
				bare := k.job()
				bare.Owner = ""
				traced := k.job()
				traced.Trace = queue.Trace{Parent: trace().Parent}
				later := k.job(func(j *queue.Job) { j.Delayed, j.Queued = true, k.now+1000 })
				for _, want := range k.enqueue(full, bare, traced, later) {
					k.wantEqual("Get", want, k.get(want))
					for j, err := range k.q.List(k.Context(), k.now, queue.ListQuery{Endpoint: echo, Owner: want.Owner}) {
						if err != nil || j.ID == want.ID && (j.Key != want.Key || j.State != want.State) {
							k.Errorf("List has %q with key %q and %+v, %v, want key %q and %+v", j.ID, j.Key, j.State, err, want.Key, want.State)
						}
					}
				}
			}),
		rule("AJobThatIsDurableAtItsEndIsLikeOthers",
			"a job with the flag DurableAtEnd has its place in the queue, and is read before and after its end",
			func(k *fixture) {
				atEnd := func(j *queue.Job) { j.Flags |= queue.DurableAtEnd | queue.Sync }
				jobs := k.enqueue(k.job(), k.job(atEnd), k.job())
				jobs = append(jobs, k.add(atEnd), k.add())
				for _, want := range jobs {
					k.wantEqual("Get", want, k.get(want))
				}
				for i, j := range k.claim(k.slot("w", len(jobs))) {
					k.wantEqual("Claim", jobs[i].ID, j.ID)
					k.mustApply(finishOp(j, "1"))
					k.wantStatus(j, queue.Completed)
				}
			}),
		rule("TheTraceStaysWithTheJob",
			"the worker of each delivery and the webhook get the trace context, also after the job is deleted",
			func(k *fixture) {
				j := k.run(withWebhook, func(j *queue.Job) { j.Trace = trace() })
				k.wantEqual("Trace of the first delivery", trace(), j.Trace)
				k.mustApply(workerOp(j, queue.OpRelease))
				j = k.take("v")
				k.wantEqual("Trace of the second delivery", trace(), j.Trace)
				k.mustApply(finishOp(j, "1"))
				k.now += ttl
				k.expire()
				ds := k.deliveries(10)
				if len(ds) != 1 || ds[0].Job.Trace != trace() {
					k.Errorf("Deliveries = %+v, want one with the trace context", ds)
				}
			}),
		rule("IdsHaveUpTo63Bytes",
			"an id of 1 to MaxJobID bytes names a job, and no other",
			func(k *fixture) {
				long := strings.Repeat("x", queue.MaxJobID)
				for _, id := range []string{"x", "X", "x0", long, long[1:], "a/b", "ä"} {
					k.add(func(j *queue.Job) { j.ID = queue.JobID(id) })
				}
				for _, id := range []string{"x", "X", "x0", long, long[1:], "a/b", "ä"} {
					j := k.get(queue.Job{Ref: queue.Ref{Endpoint: echo, ID: queue.JobID(id)}})
					if string(j.ID) != id {
						k.Errorf("Get(%q) is the job %q", id, j.ID)
					}
				}
			}),
		rule("EndpointsAreApart",
			"a job is found under its endpoint only: the same id may be used by another one",
			func(k *fixture) {
				same := func(j *queue.Job) { j.ID = "same" }
				a := k.add(same, onEndpoint("a"), ownedBy("A"))
				k.wantGone(queue.Job{Ref: queue.Ref{Endpoint: "b", ID: "same"}})
				b := k.add(same, onEndpoint("b"), ownedBy("B"))
				k.mustApply(userOp(a, queue.OpCancel))
				k.wantStatus(a, queue.Cancelled)
				if j := k.wantStatus(b, queue.InQueue); j.Owner != "B" {
					k.Errorf("Get of endpoint b has the job of %q, want that of B", j.Owner)
				}
			}),
		rule("AnIdIsTakenOnce",
			"Enqueue of an id that the endpoint has answers ErrExists and leaves the first job as it is",
			func(k *fixture) {
				first := k.add()
				second := k.job(func(j *queue.Job) { j.ID, j.Input = first.ID, []byte(`{"other":true}`) })
				if err := k.q.Enqueue(k.Context(), []queue.Job{second}); !errors.Is(err, queue.ErrExists) {
					k.Errorf("second Enqueue = %v, want ErrExists", err)
				}
				k.wantEqual("the first job", first, k.get(first))
				k.wantEqual("Queued", int64(1), k.stats(echo).Queued)
			}),
		rule("AnIdIsTakenWhileTheJobIsThere",
			"an id is taken in whatever status its job is, and free when the job is deleted",
			func(k *fixture) {
				j := k.run()
				k.mustApply(finishOp(j, "1"))
				if err := k.q.Enqueue(k.Context(), []queue.Job{j}); !errors.Is(err, queue.ErrExists) {
					k.Errorf("Enqueue of a finished job's id = %v, want ErrExists", err)
				}
				k.now += ttl
				k.expire()
				k.add(func(n *queue.Job) { n.ID = j.ID })
			}),
		rule("AllJobsOrNone",
			"when one id of an Enqueue is taken, no job of it is there afterwards",
			func(k *fixture) {
				taken := k.add()
				a, b := k.job(), k.job()
				if err := k.q.Enqueue(k.Context(), []queue.Job{a, taken, b}); !errors.Is(err, queue.ErrExists) {
					k.Errorf("Enqueue = %v, want ErrExists", err)
				}
				k.wantGone(a)
				k.wantGone(b)
				k.wantEqual("Claim", []queue.JobID{taken.ID}, ids(k.claim(k.slot("w", 10))))
				k.enqueue(a, b)
			}),
		rule("NoIdTwiceInOneEnqueue",
			"an Enqueue with the same id twice answers ErrExists and adds nothing",
			func(k *fixture) {
				a := k.job()
				if err := k.q.Enqueue(k.Context(), []queue.Job{a, k.job(), a}); !errors.Is(err, queue.ErrExists) {
					k.Errorf("Enqueue = %v, want ErrExists", err)
				}
				k.wantEqual("List", []queue.JobID(nil), k.list(queue.ListQuery{Endpoint: echo}))
			}),
		rule("ManyJobsAtOnce",
			"an Enqueue has room for thousands of jobs, of several endpoints",
			func(k *fixture) {
				jobs := make([]queue.Job, 3000)
				for i := range jobs {
					jobs[i] = k.job()
					if i%3 == 0 {
						jobs[i].Endpoint = "other"
					}
				}
				k.enqueue(jobs...)
				k.wantEqual("Queued", []int64{2000, 1000}, []int64{k.stats(echo).Queued, k.stats("other").Queued})
			}),
		rule("SeqGrows",
			"Enqueue assigns Seq, not zero, in the order of the jobs and of calls that do not overlap",
			func(k *fixture) {
				jobs := append(k.enqueue(k.job(), k.job(), k.job()), k.addN(2)...)
				last := uint64(0)
				for _, j := range jobs {
					if j.Seq <= last {
						k.Errorf("Seq %d of %q after %d, want a larger one", j.Seq, j.ID, last)
					}
					last = j.Seq
					if got := k.get(j).Seq; got != j.Seq {
						k.Errorf("Get has Seq %d, want %d as Enqueue assigned", got, j.Seq)
					}
				}
				if got := k.stats(echo).LastSeq; got != last {
					k.Errorf("LastSeq = %d, want %d", got, last)
				}
			}),
		rule("NothingIsNoJob",
			"an Enqueue without jobs is no error and adds nothing",
			func(k *fixture) {
				k.enqueue()
				k.wantEqual("Stats", queue.Stats{}, k.stats(echo))
			}),
		rule("PayloadsMayBeLarge",
			"inputs and outputs of some megabytes come back byte for byte",
			func(k *fixture) {
				big := []byte(`{"s":"` + strings.Repeat("0123456789abcdef", 3<<16) + `"}`)
				j := k.run(func(j *queue.Job) { j.Input = big })
				if string(j.Input) != string(big) {
					k.Errorf("Claim gave %d bytes of input, want the %d that were submitted", len(j.Input), len(big))
				}
				k.mustApply(finishOp(j, string(big)))
				if got := k.get(j); string(got.Output) != string(big) {
					k.Errorf("Get gave %d bytes of output, want the %d that were reported", len(got.Output), len(big))
				}
			}),
	}
}
