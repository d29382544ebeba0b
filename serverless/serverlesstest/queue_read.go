package serverlesstest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/podyard/podyard/serverless"
)

func readCases() []QueueCase {
	return []QueueCase{
		rule("AnUnknownJobIsNotFound",
			"Get and Chunks of an unknown job or endpoint answer ErrNotFound",
			func(k *kit) {
				k.gone(k.job())
				k.add()
				k.gone(k.job())
				k.gone(serverless.Job{})
			}),
		rule("PayloadsAreTheQueues",
			"what a caller does with a Job that it gave or was given changes nothing in the queue",
			func(k *kit) {
				jobs := []serverless.Job{k.job()}
				k.enqueue(jobs...)
				want := jobs[0]
				spoiled := &jobs[0] // what was given is the caller's again
				spoiled.Owner, spoiled.Status = "changed", serverless.Failed
				k.equal("Get", want, k.get(want))
			}),
		rule("ListIsNewestFirst",
			"List yields each job of the endpoint once, newest first, whatever its status: its ref, owner and state, and nothing else",
			func(k *kit) {
				var want []serverless.JobID
				for i := range 40 {
					j := k.add(hooked, func(j *serverless.Job) { j.Extra = []byte(`{}`) })
					k.add(on("other"))
					want = append(want, j.ID)
					switch i % 5 {
					case 1:
						k.must(user(j, serverless.OpCancel))
					case 2:
						k.take("w")
					case 3:
						k.must(done(k.take("w"), "1"))
					case 4:
						k.must(failed(k.take("w"), "no"))
					}
				}
				slices.Reverse(want)
				k.equal("List", want, k.list(serverless.ListQuery{Endpoint: echo}))
				for j, err := range k.q.List(k.Context(), k.now, serverless.ListQuery{Endpoint: echo}) {
					if err != nil {
						k.Fatal(err)
					}
					got := k.get(j)
					k.equal("a listed job", serverless.Job{Ref: got.Ref, Owner: got.Owner, State: got.State}, j)
				}
			}),
		rule("ListOfAnOwner",
			"List with an owner yields that owner's jobs only",
			func(k *kit) {
				a, b := k.add(of("a")), k.add(of("b"))
				k.equal("List of a", []serverless.JobID{a.ID}, k.list(serverless.ListQuery{Endpoint: echo, Owner: "a"}))
				k.equal("List of nobody", []serverless.JobID(nil), k.list(serverless.ListQuery{Endpoint: echo, Owner: "nobody"}))
				k.equal("List of all", []serverless.JobID{b.ID, a.ID}, k.list(serverless.ListQuery{Endpoint: echo}))
				k.equal("List of an unknown endpoint", []serverless.JobID(nil), k.list(serverless.ListQuery{Endpoint: "none", Owner: "a"}))
			}),
		rule("ListOfStatuses",
			"List with statuses yields the jobs that are in one of them",
			func(k *kit) {
				k.addN(5)
				held := k.claim(k.slot("w", 4))
				k.must(done(held[0], "1"), failed(held[1], "no"), user(held[2], serverless.OpCancel))
				queued := serverless.JobID("job-0005")
				for _, c := range []struct {
					in   []serverless.Status
					want []serverless.JobID
				}{
					{[]serverless.Status{serverless.InQueue}, []serverless.JobID{queued}},
					{[]serverless.Status{serverless.InProgress}, ids(held[3:])},
					{[]serverless.Status{serverless.Failed, serverless.Completed}, []serverless.JobID{held[1].ID, held[0].ID}},
					{[]serverless.Status{serverless.Cancelled}, ids(held[2:3])},
					{[]serverless.Status{serverless.TimedOut}, nil},
				} {
					k.equal(fmt.Sprintf("List of %v", c.in), c.want, k.list(serverless.ListQuery{Endpoint: echo, Status: c.in}))
				}
			}),
		rule("ListMayBeLeft",
			"a caller may stop listing after any job, and call the queue while it lists",
			func(k *kit) {
				jobs := k.addN(600)
				n := 0
				for j, err := range k.q.List(k.Context(), k.now, serverless.ListQuery{Endpoint: echo}) {
					if err != nil {
						k.Fatalf("List = %v, want no error", err)
					}
					k.must(user(j, serverless.OpCancel))
					if n++; n == 500 {
						break
					}
				}
				k.equal("Queued", int64(100), k.stats(echo).Queued)
				k.status(jobs[99], serverless.InQueue)
				k.status(jobs[100], serverless.Cancelled)
			}),
	}
}

func statsCases() []QueueCase {
	return []QueueCase{
		rule("StatsOfNothing",
			"Stats of an endpoint that has had no job are all zero",
			func(k *kit) {
				k.add()
				k.equal("Stats", serverless.Stats{}, k.stats("none"))
			}),
		rule("StatsFollowEachMove",
			"Stats count what is queued and runs now, and what ever completed, failed and was retried",
			func(k *kit) {
				want := serverless.Stats{}
				check := func(what string) {
					k.Helper()
					got := k.stats(echo)
					got.Oldest, got.LastSeq = 0, 0
					k.equal("Stats after "+what, want, got)
				}
				jobs := k.enqueue(k.job(), k.job(low), k.job(), k.job(low))
				want.Queued, want.QueuedLow = 4, 2
				check("submit")
				held := k.claim(k.slot("w", 3))
				want.Queued, want.QueuedLow, want.Running = 1, 1, 3
				check("claim")
				k.must(done(held[0], "1"))
				want.Running, want.Completed = 2, 1
				check("finish")
				k.must(failed(held[1], "no"))
				want.Running, want.Failed = 1, 1
				check("failure")
				k.must(user(held[1], serverless.OpRetry))
				want.Queued, want.QueuedLow = 2, 2
				check("retry")
				k.must(serverless.Op{Ref: held[2].Ref, Kind: serverless.OpLose, Worker: "w"})
				want.Queued, want.Running, want.Retried = 3, 0, 1
				check("loss")
				k.must(user(jobs[3], serverless.OpCancel))
				want.Queued, want.QueuedLow = 2, 1
				check("cancel")
				k.now += ttl
				k.expire()
				want.Queued, want.QueuedLow = 0, 0
				check("ttl")
			}),
		rule("OldestIsTheOldestOfNormalPriority",
			"Oldest is when the oldest queued job that is not of low priority was queued, 0 when there is none",
			func(k *kit) {
				k.add(low)
				k.equal("Oldest of low ones", serverless.Instant(0), k.stats(echo).Oldest)
				k.wait(time.Second)
				first := k.add()
				k.wait(time.Second)
				second := k.add()
				k.equal("Oldest", first.Queued, k.stats(echo).Oldest)
				held := k.claim(k.slot("w", 2))
				k.equal("Oldest when the first runs", second.Queued, k.stats(echo).Oldest)
				k.must(as(held[1], serverless.OpRelease))
				k.equal("Oldest when it is back", first.Queued, k.stats(echo).Oldest)
				k.must(user(first, serverless.OpCancel))
				k.equal("Oldest when it is cancelled", second.Queued, k.stats(echo).Oldest)
				k.must(user(second, serverless.OpCancel))
				k.equal("Oldest when both are", serverless.Instant(0), k.stats(echo).Oldest)
				k.wait(time.Second)
				third := k.run()
				k.must(failed(third, "no"))
				k.wait(time.Second)
				k.must(user(third, serverless.OpRetry))
				k.equal("Oldest after a retry", k.now, k.stats(echo).Oldest)
			}),
		rule("StatsEqualARecount",
			"after any moves, Stats are what a count of the listed jobs gives",
			func(k *kit) {
				random := rand.New(rand.NewPCG(1, 2))
				workers := []serverless.WorkerID{"a", "b", "c"}
				var jobs []serverless.Job
				for range 600 {
					k.wait(time.Duration(random.IntN(3000)) * time.Millisecond)
					switch random.IntN(8) {
					case 0, 1, 2:
						jobs = append(jobs, k.add(func(j *serverless.Job) {
							j.Flags = serverless.Flags(random.IntN(2))
							j.Expires = k.now + serverless.Instant(1000+random.IntN(ttl))
						}))
					case 3, 4:
						k.claim(k.slot(workers[random.IntN(3)], random.IntN(4)))
					case 5:
						k.expire()
					default:
						if len(jobs) == 0 {
							continue
						}
						j := jobs[random.IntN(len(jobs))]
						got, err := k.q.Get(k.Context(), k.now, j.Ref)
						if err != nil {
							continue
						}
						ops := []serverless.Op{done(got, "1"), failed(got, "no"), user(got, serverless.OpCancel), user(got, serverless.OpRetry),
							as(got, serverless.OpRelease), as(got, serverless.OpLose)}
						k.apply(ops[random.IntN(len(ops))])
					}
					k.recount(echo)
				}
			}),
	}
}

// recount compares Stats with what List tells. Jobs past their ttl may still be counted
// until they are swept.
func (k *kit) recount(endpoint string) {
	k.Helper()
	k.expire()
	var want serverless.Stats
	for j, err := range k.q.List(k.Context(), k.now, serverless.ListQuery{Endpoint: endpoint}) {
		if err != nil {
			k.Fatalf("List = %v, want no error", err)
		}
		want.Note(nil, &j.State, serverless.Put)
		if j.Status == serverless.InQueue && j.Flags&serverless.LowPriority == 0 {
			want.Oldest = j.Queued // the last one listed is the oldest
		}
	}
	got := k.stats(endpoint)
	got.Completed, got.Failed, got.Retried, got.LastSeq = 0, 0, 0, 0
	k.equal("Stats and a recount", want, got)
}
