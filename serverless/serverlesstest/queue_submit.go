package serverlesstest

import (
	"errors"
	"strings"

	"github.com/podyard/podyard/serverless"
)

func submitCases() []QueueCase {
	return []QueueCase{
		rule("WhatWasSubmittedIsRead",
			"Get returns every field that Enqueue was given, payloads byte for byte",
			func(k *kit) {
				full := k.job(hooked, low, of("someone else"))
				full.Flags |= serverless.Sync
				full.Input = []byte("{ \"a\" : 1.0e2,\n\"a\":\"\\u0041\xf0\x9f\x8e\x88\", \"b\":[ ] }")
				full.Extra = []byte(`{"s3Config": {"accessSecret":"x"} }`)
				bare := k.job()
				bare.Owner = ""
				for _, want := range k.enqueue(full, bare) {
					k.equal("Get", want, k.get(want))
				}
			}),
		rule("IdsHaveUpTo63Bytes",
			"an id of 1 to MaxJobID bytes names a job, and no other",
			func(k *kit) {
				long := strings.Repeat("x", serverless.MaxJobID)
				for _, id := range []string{"x", "X", "x0", long, long[1:], "a/b", "ä"} {
					k.add(func(j *serverless.Job) { j.ID = serverless.JobID(id) })
				}
				for _, id := range []string{"x", "X", "x0", long, long[1:], "a/b", "ä"} {
					j := k.get(serverless.Job{Ref: serverless.Ref{Endpoint: echo, ID: serverless.JobID(id)}})
					if string(j.ID) != id {
						k.Errorf("Get(%q) is the job %q", id, j.ID)
					}
				}
			}),
		rule("EndpointsAreApart",
			"a job is found under its endpoint only: the same id may be used by another one",
			func(k *kit) {
				same := func(j *serverless.Job) { j.ID = "same" }
				a := k.add(same, on("a"), of("A"))
				k.gone(serverless.Job{Ref: serverless.Ref{Endpoint: "b", ID: "same"}})
				b := k.add(same, on("b"), of("B"))
				k.must(user(a, serverless.OpCancel))
				k.status(a, serverless.Cancelled)
				if j := k.status(b, serverless.InQueue); j.Owner != "B" {
					k.Errorf("Get of endpoint b has the job of %q, want that of B", j.Owner)
				}
			}),
		rule("AnIdIsTakenOnce",
			"Enqueue of an id that the endpoint has answers ErrExists and leaves the first job as it is",
			func(k *kit) {
				first := k.add()
				second := k.job(func(j *serverless.Job) { j.ID, j.Input = first.ID, []byte(`{"other":true}`) })
				if err := k.q.Enqueue(k.Context(), []serverless.Job{second}); !errors.Is(err, serverless.ErrExists) {
					k.Errorf("second Enqueue = %v, want ErrExists", err)
				}
				k.equal("the first job", first, k.get(first))
				k.equal("Queued", int64(1), k.stats(echo).Queued)
			}),
		rule("AnIdIsTakenWhileTheJobIsThere",
			"an id is taken in whatever status its job is, and free when the job is deleted",
			func(k *kit) {
				j := k.run()
				k.must(done(j, "1"))
				if err := k.q.Enqueue(k.Context(), []serverless.Job{j}); !errors.Is(err, serverless.ErrExists) {
					k.Errorf("Enqueue of a finished job's id = %v, want ErrExists", err)
				}
				k.now += ttl
				k.expire()
				k.add(func(n *serverless.Job) { n.ID = j.ID })
			}),
		rule("AllJobsOrNone",
			"when one id of an Enqueue is taken, no job of it is there afterwards",
			func(k *kit) {
				taken := k.add()
				a, b := k.job(), k.job()
				if err := k.q.Enqueue(k.Context(), []serverless.Job{a, taken, b}); !errors.Is(err, serverless.ErrExists) {
					k.Errorf("Enqueue = %v, want ErrExists", err)
				}
				k.gone(a)
				k.gone(b)
				k.equal("Claim", []serverless.JobID{taken.ID}, ids(k.claim(k.slot("w", 10))))
				k.enqueue(a, b)
			}),
		rule("NoIdTwiceInOneEnqueue",
			"an Enqueue with the same id twice answers ErrExists and adds nothing",
			func(k *kit) {
				a := k.job()
				if err := k.q.Enqueue(k.Context(), []serverless.Job{a, k.job(), a}); !errors.Is(err, serverless.ErrExists) {
					k.Errorf("Enqueue = %v, want ErrExists", err)
				}
				k.equal("List", []serverless.JobID(nil), k.list(serverless.ListQuery{Endpoint: echo}))
			}),
		rule("ManyJobsAtOnce",
			"an Enqueue has room for thousands of jobs, of several endpoints",
			func(k *kit) {
				jobs := make([]serverless.Job, 3000)
				for i := range jobs {
					jobs[i] = k.job()
					if i%3 == 0 {
						jobs[i].Endpoint = "other"
					}
				}
				k.enqueue(jobs...)
				k.equal("Queued", []int64{2000, 1000}, []int64{k.stats(echo).Queued, k.stats("other").Queued})
			}),
		rule("SeqGrows",
			"Enqueue assigns Seq, not zero, in the order of the jobs and of the calls",
			func(k *kit) {
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
			func(k *kit) {
				k.enqueue()
				k.equal("Stats", serverless.Stats{}, k.stats(echo))
			}),
		rule("PayloadsMayBeLarge",
			"inputs and outputs of some megabytes come back byte for byte",
			func(k *kit) {
				big := []byte(`{"s":"` + strings.Repeat("0123456789abcdef", 3<<16) + `"}`)
				j := k.run(func(j *serverless.Job) { j.Input = big })
				if string(j.Input) != string(big) {
					k.Errorf("Claim gave %d bytes of input, want the %d that were submitted", len(j.Input), len(big))
				}
				k.must(done(j, string(big)))
				if got := k.get(j); string(got.Output) != string(big) {
					k.Errorf("Get gave %d bytes of output, want the %d that were reported", len(got.Output), len(big))
				}
			}),
	}
}
