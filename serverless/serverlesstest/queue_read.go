package serverlesstest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/serverless/queue"
)

func readCases() []QueueCase {
	return []QueueCase{
		rule("AnUnknownJobIsNotFound",
			"Get and Chunks of an unknown job or endpoint answer ErrNotFound",
			func(k *fixture) {
				k.wantGone(k.job())
				k.add()
				k.wantGone(k.job())
				k.wantGone(queue.Job{})
			}),
		rule("PayloadsAreTheQueues",
			"a change of a Job that was passed to the queue, or returned by it, changes nothing in the queue",
			func(k *fixture) {
				jobs := []queue.Job{k.job()}
				k.enqueue(jobs...)
				want := jobs[0]
				spoiled := &jobs[0] // what was given is the caller's again
				spoiled.Owner, spoiled.Status = "changed", queue.Failed
				k.wantEqual("Get", want, k.get(want))
			}),
		rule("ListIsNewestFirst",
			"List yields each job of the endpoint once, newest first, whatever its status: its ref, owner and state, and nothing else",
			func(k *fixture) {
				var want []queue.JobID
				for i := range 40 {
					j := k.add(withWebhook, func(j *queue.Job) { j.Extra = []byte(`{}`) })
					k.add(onEndpoint("other"))
					want = append(want, j.ID)
					switch i % 5 {
					case 1:
						k.mustApply(userOp(j, queue.OpCancel))
					case 2:
						k.take("w")
					case 3:
						k.mustApply(finishOp(k.take("w"), "1"))
					case 4:
						k.mustApply(failOp(k.take("w"), "no"))
					}
				}
				slices.Reverse(want)
				k.wantEqual("List", want, k.list(queue.ListQuery{Endpoint: echo}))
				for j, err := range k.q.List(k.Context(), k.now, queue.ListQuery{Endpoint: echo}) {
					if err != nil {
						k.Fatal(err)
					}
					got := k.get(j)
					k.wantEqual("a listed job", queue.Job{Ref: got.Ref, Owner: got.Owner, State: got.State}, j)
				}
			}),
		rule("ListOfAnOwner",
			"List with an owner yields that owner's jobs only",
			func(k *fixture) {
				a, b := k.add(ownedBy("a")), k.add(ownedBy("b"))
				k.wantEqual("List of a", []queue.JobID{a.ID}, k.list(queue.ListQuery{Endpoint: echo, Owner: "a"}))
				k.wantEqual("List of nobody", []queue.JobID(nil), k.list(queue.ListQuery{Endpoint: echo, Owner: "nobody"}))
				k.wantEqual("List of all", []queue.JobID{b.ID, a.ID}, k.list(queue.ListQuery{Endpoint: echo}))
				k.wantEqual("List of an unknown endpoint", []queue.JobID(nil), k.list(queue.ListQuery{Endpoint: "none", Owner: "a"}))
			}),
		rule("ListOfStatuses",
			"List with statuses yields the jobs that are in one of them",
			func(k *fixture) {
				k.addN(5)
				held := k.claim(k.slot("w", 4))
				k.mustApply(finishOp(held[0], "1"), failOp(held[1], "no"), userOp(held[2], queue.OpCancel))
				queued := queue.JobID("job-0005")
				for _, c := range []struct {
					in   []queue.Status
					want []queue.JobID
				}{
					{[]queue.Status{queue.InQueue}, []queue.JobID{queued}},
					{[]queue.Status{queue.InProgress}, ids(held[3:])},
					{[]queue.Status{queue.Failed, queue.Completed}, []queue.JobID{held[1].ID, held[0].ID}},
					{[]queue.Status{queue.Cancelled}, ids(held[2:3])},
					{[]queue.Status{queue.TimedOut}, nil},
				} {
					k.wantEqual(fmt.Sprintf("List of %v", c.in), c.want, k.list(queue.ListQuery{Endpoint: echo, Status: c.in}))
				}
			}),
		rule("ListInPages",
			"List with Before and Limit yields the next jobs only, so pages have every job once, also while jobs are added",
			func(k *fixture) {
				want := ids(k.addN(600, ownedBy("a")))
				slices.Reverse(want)
				k.add(ownedBy("b"))
				var got []queue.JobID
				q := queue.ListQuery{Endpoint: echo, Owner: "a", Limit: 70}
				for more := true; more; {
					more = false
					n := 0
					for j, err := range k.q.List(k.Context(), k.now, q) {
						if err != nil {
							k.Fatal(err)
						}
						n++
						q.Before, more = j.Seq, true
						got = append(got, j.ID)
					}
					if n > 70 {
						k.Fatalf("a page of %d jobs, want 70 at most", n)
					}
					k.add(ownedBy("a"))
				}
				k.wantEqual("the pages", want, got)
			}),
		rule("ListOfIDs",
			"List with ids yields these jobs, newest first and once each, as far as they exist and are selected",
			func(k *fixture) {
				jobs := k.addN(4, ownedBy("a"))
				other := k.add(ownedBy("b"))
				q := queue.ListQuery{Endpoint: echo, Owner: "a", IDs: []queue.JobID{jobs[0].ID, "none", jobs[2].ID, other.ID, jobs[0].ID}}
				k.wantEqual("List", []queue.JobID{jobs[2].ID, jobs[0].ID}, k.list(q))
				q.Before = jobs[2].Seq
				k.wantEqual("List before the newest", []queue.JobID{jobs[0].ID}, k.list(q))
				q.Status = []queue.Status{queue.Failed}
				k.wantEqual("List of FAILED", []queue.JobID(nil), k.list(q))
			}),
		rule("ListOfAPrefix",
			"List with a prefix yields the jobs whose ids begin with it, newest first, and Count counts them, if the queue is a Counter",
			func(k *fixture) {
				var ids []queue.JobID
				for _, id := range []queue.JobID{"ab", "ab%c", "ab\xff", "b", "AB", "a", "abc"} {
					j := k.add(ownedBy("a"), func(j *queue.Job) { j.ID = id })
					ids = append(ids, j.ID)
				}
				for _, c := range []struct {
					prefix queue.JobID
					want   []queue.JobID
				}{{"ab", []queue.JobID{"abc", "ab\xff", "ab%c", "ab"}}, {"ab\xff", ids[2:3]}, {"ab%", ids[1:2]}, {"\xff", nil}, {"abcd", nil}} {
					q := queue.ListQuery{Endpoint: echo, Owner: "a", Prefix: c.prefix}
					k.wantEqual(fmt.Sprintf("List of %q", c.prefix), c.want, k.list(q))
					if counter, ok := unwrap.As[queue.Counter](k.q); ok {
						n, err := counter.Count(k.Context(), k.now, q)
						if err != nil {
							k.Fatal(err)
						}
						k.wantEqual(fmt.Sprintf("Count of %q", c.prefix), len(c.want), n)
					}
				}
				q := queue.ListQuery{Endpoint: echo, Prefix: "ab", Limit: 1}
				k.wantEqual("List of one", ids[6:], k.list(q))
				q.Status = []queue.Status{queue.Failed}
				k.wantEqual("List of FAILED", []queue.JobID(nil), k.list(q))
			}),
		rule("CountCountsWhatNoPageShows",
			"Count counts all jobs that List selects, whatever the page begins with and has, if the queue is a Counter",
			func(k *fixture) {
				counter, ok := unwrap.As[queue.Counter](k.q)
				if !ok {
					k.Skip("the queue is no queue.Counter")
				}
				jobs := k.addN(5)
				k.claim(k.slot("w", 3))
				for _, status := range [][]queue.Status{nil, {queue.InQueue}, {queue.InProgress}, {queue.InQueue, queue.InProgress}} {
					q := queue.ListQuery{Endpoint: echo, Status: status}
					want := len(k.list(q))
					for _, q.IDs = range [][]queue.JobID{nil, {jobs[0].ID, jobs[1].ID, jobs[2].ID, jobs[3].ID, jobs[4].ID}} {
						q.Before, q.Offset, q.Limit = jobs[1].Seq, 2, 1
						n, err := counter.Count(k.Context(), k.now, q)
						if err != nil {
							k.Fatal(err)
						}
						k.wantEqual(fmt.Sprintf("Count of %+v", q), want, n)
					}
				}
			}),
		rule("DeletedByItsUser",
			"OpDelete removes a job that has ended, with its results; the counters stay. Another job is not removed",
			func(k *fixture) {
				j := k.run()
				k.mustRefuse(userOp(j, queue.OpDelete), queue.ErrStatus)
				k.mustApply(finishOp(j, "1"))
				k.mustApply(userOp(j, queue.OpDelete))
				k.wantGone(j)
				k.wantEqual("Completed", int64(1), k.stats(echo).Completed)
				queued := k.add()
				k.mustRefuse(userOp(queued, queue.OpDelete), queue.ErrStatus)
				k.wantStatus(queued, queue.InQueue)
			}),
		rule("TheInputOfAnEndedJobIsDropped",
			"OpDropInput removes the input of a job that has ended, which is then not retried; its result stays. A job with a webhook keeps its input",
			func(k *fixture) {
				j, hooked := k.run(), k.runOther(withWebhook)
				k.mustRefuse(userOp(j, queue.OpDropInput), queue.ErrStatus)
				k.mustApply(failOp(j, "no"), finishOp(hooked, "1"))
				k.mustRefuse(userOp(hooked, queue.OpDropInput), queue.ErrStatus)
				k.mustApply(userOp(j, queue.OpDropInput))
				if got := k.get(j); len(got.Input) > 0 || got.HasInput() || got.Error != "no" || got.InBytes != 0 {
					k.Errorf("the job has the input %q of %d bytes and the error %q", got.Input, got.InBytes, got.Error)
				}
				k.mustRefuse(userOp(j, queue.OpRetry), queue.ErrInputLost)
				k.mustApply(userOp(j, queue.OpDropInput)) // again
				k.wantEqual("Input", true, len(k.get(hooked).Input) > 0)
			}),
		rule("ListMayBeLeft",
			"a caller may stop listing after any job, and call the queue while it lists",
			func(k *fixture) {
				jobs := k.addN(600)
				n := 0
				for j, err := range k.q.List(k.Context(), k.now, queue.ListQuery{Endpoint: echo}) {
					if err != nil {
						k.Fatalf("List = %v, want no error", err)
					}
					k.mustApply(userOp(j, queue.OpCancel))
					if n++; n == 500 {
						break
					}
				}
				k.wantEqual("Queued", int64(100), k.stats(echo).Queued)
				k.wantStatus(jobs[99], queue.InQueue)
				k.wantStatus(jobs[100], queue.Cancelled)
			}),
	}
}

func statsCases() []QueueCase {
	return []QueueCase{
		rule("StatsOfNothing",
			"Stats of an endpoint that has had no job are all zero",
			func(k *fixture) {
				k.add()
				k.wantEqual("Stats", queue.Stats{}, k.stats("none"))
			}),
		rule("StatsFollowEachMove",
			"Stats count the jobs that are queued and running now, and all that completed, failed and were retried",
			func(k *fixture) {
				want := queue.Stats{}
				check := func(what string) {
					k.Helper()
					got := k.stats(echo)
					got.Oldest, got.LastSeq = 0, 0
					want.Ready, want.ReadyLow = want.Queued, want.QueuedLow
					k.wantEqual("Stats after "+what, want, got)
				}
				jobs := k.enqueue(k.job(), k.job(lowPriority), k.job(), k.job(lowPriority))
				want.Queued, want.QueuedLow = 4, 2
				check("submit")
				held := k.claim(k.slot("w", 3))
				want.Queued, want.QueuedLow, want.Running = 1, 1, 3
				check("claim")
				k.mustApply(finishOp(held[0], "1"))
				want.Running, want.Completed = 2, 1
				check("finish")
				k.mustApply(failOp(held[1], "no"))
				want.Running, want.Failed = 1, 1
				check("failure")
				k.mustApply(userOp(held[1], queue.OpRetry))
				want.Queued, want.QueuedLow = 2, 2
				check("retry")
				k.mustApply(queue.Op{Ref: held[2].Ref, Kind: queue.OpWorkerLost, Worker: "w"})
				want.Queued, want.Running, want.Retried = 3, 0, 1
				check("loss")
				k.mustApply(userOp(jobs[3], queue.OpCancel))
				want.Queued, want.QueuedLow = 2, 1
				check("cancel")
				k.now += ttl
				k.expire()
				want.Queued, want.QueuedLow = 0, 0
				check("ttl")
			}),
		rule("OldestIsTheOldestOfNormalPriority",
			"Oldest is when the oldest queued job that is not of low priority was queued, 0 when there is none",
			func(k *fixture) {
				k.add(lowPriority)
				k.wantEqual("Oldest of low ones", queue.Instant(0), k.stats(echo).Oldest)
				k.wait(time.Second)
				first := k.add()
				k.wait(time.Second)
				second := k.add()
				k.wantEqual("Oldest", first.Queued, k.stats(echo).Oldest)
				held := k.claim(k.slot("w", 2))
				k.wantEqual("Oldest when the first runs", second.Queued, k.stats(echo).Oldest)
				k.mustApply(workerOp(held[1], queue.OpRelease))
				k.wantEqual("Oldest when it is back", first.Queued, k.stats(echo).Oldest)
				k.mustApply(userOp(first, queue.OpCancel))
				k.wantEqual("Oldest when it is cancelled", second.Queued, k.stats(echo).Oldest)
				k.mustApply(userOp(second, queue.OpCancel))
				k.wantEqual("Oldest when both are", queue.Instant(0), k.stats(echo).Oldest)
				k.wait(time.Second)
				third := k.run()
				k.mustApply(failOp(third, "no"))
				k.wait(time.Second)
				k.mustApply(userOp(third, queue.OpRetry))
				k.wantEqual("Oldest after a retry", k.now, k.stats(echo).Oldest)
			}),
		rule("StatsEqualARecount",
			"after any moves, Stats are what a count of the listed jobs gives",
			func(k *fixture) {
				random := rand.New(rand.NewPCG(1, 2))
				workers := []queue.WorkerID{"a", "b", "c"}
				var jobs []queue.Job
				for range 600 {
					k.wait(time.Duration(random.IntN(3000)) * time.Millisecond)
					switch random.IntN(8) {
					case 0, 1, 2:
						jobs = append(jobs, k.add(func(j *queue.Job) {
							j.Flags = queue.Flags(random.IntN(2))
							j.Expires = k.now + queue.Instant(1000+random.IntN(ttl))
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
						ops := []queue.Op{finishOp(got, "1"), failOp(got, "no"), userOp(got, queue.OpCancel), userOp(got, queue.OpRetry),
							workerOp(got, queue.OpRelease), workerOp(got, queue.OpWorkerLost)}
						k.apply(ops[random.IntN(len(ops))])
					}
					k.wantStatsLikeList(echo)
				}
			}),
	}
}

// wantStatsLikeList compares Stats with what List tells. Jobs past their ttl may still be counted
// until they are swept.
func (k *fixture) wantStatsLikeList(endpoint string) {
	k.Helper()
	k.expire()
	var want queue.Stats
	for j, err := range k.q.List(k.Context(), k.now, queue.ListQuery{Endpoint: endpoint}) {
		if err != nil {
			k.Fatalf("List = %v, want no error", err)
		}
		want.Count(nil, &j.State, queue.Put)
		if j.Status == queue.InQueue && j.Flags&queue.LowPriority == 0 {
			want.Oldest = j.Queued // the last listed job is the oldest
		}
	}
	got := k.stats(endpoint)
	want.Ready, want.ReadyLow = want.Queued, want.QueuedLow
	got.Completed, got.Failed, got.Retried, got.LastSeq = 0, 0, 0, 0
	k.wantEqual("Stats and a recount", want, got)
}
