package serverlesstest

import (
	"context"
	"fmt"
	"time"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/serverless/queue"
)

// A ReadCounter is an optional interface of a queue under test, or of one that it wraps. With it the
// suite measures what a call costs, because no clock of a shared machine can. Cases of cost skip
// other queues.
type ReadCounter interface {
	// Reads returns how much the queue has read so far: jobs that it looked at in memory, or
	// rows or pages of its database. What is counted must grow with what calls do.
	Reads(ctx context.Context) (int64, error)
}

// reads counts what the queue reads while f runs.
func (k *fixture) reads(f func()) int64 {
	k.Helper()
	c, ok := unwrap.As[ReadCounter](k.q)
	if !ok {
		k.Skip("the queue does not count its reads: see serverlesstest.ReadCounter")
	}
	before, err := c.Reads(k.Context())
	if err != nil {
		k.Fatalf("Reads = %v, want nil", err)
	}
	f()
	after, err := c.Reads(k.Context())
	if err != nil {
		k.Fatalf("Reads = %v, want nil", err)
	}
	return after - before
}

// addMany submits n jobs, a thousand at a time.
func (k *fixture) addMany(n int, change func(i int, j *queue.Job)) {
	k.Helper()
	for from := 0; from < n; from += 1000 {
		jobs := make([]queue.Job, min(1000, n-from))
		for i := range jobs {
			jobs[i] = k.job()
			change(from+i, &jobs[i])
		}
		k.enqueue(jobs...)
	}
}

func costCases() []QueueCase {
	const (
		owners, keys, waiting = 1000, 10_000, 100_000
		claims                = 40
		kept, page            = 50_000, 20
	)
	return []QueueCase{
		rule("AClaimCostsTheSameWhateverWaits",
			"a claim finds the next job of a thousand owners, ten thousand keys and ten priorities by the heads of indexes: it reads at most twenty times what it reads of a queue of one line",
			func(k *fixture) {
				k.reads(func() {}) // or it is skipped before the work
				plain := "plain"
				k.addMany(1000, func(_ int, j *queue.Job) { j.Endpoint = plain })
				k.addMany(waiting, func(i int, j *queue.Job) {
					j.Owner, j.Key = fmt.Sprint("owner-", i%owners), fmt.Sprint("key-", i%keys)
					j.Priority = uint8(i / keys % (queue.MaxPriority + 1))
				})
				// claim makes claims of one job and then one of many, and ends half of the jobs.
				claim := func(endpoint string, rules *queue.Rules) int64 {
					slot := queue.Slot{Endpoint: endpoint, Worker: "w", N: 1, Until: k.now + lease, Rules: rules}
					k.claim(slot) // indexes may be made for the rules
					return k.reads(func() {
						for n := range claims + 1 {
							k.wait(time.Second)
							slot.Until = k.now + lease
							if n == claims {
								slot.N = claims
							}
							jobs := k.claim(slot)
							if len(jobs) != slot.N {
								k.Fatalf("Claim gave %d jobs, want %d", len(jobs), slot.N)
							}
							if n%2 == 0 {
								k.mustApply(finishOp(jobs[0], "1"))
							}
						}
					})
				}
				for _, rules := range []queue.Rules{{Ageing: time.Minute}, {Ageing: time.Minute, PerKey: 1, PerUser: 3, Total: waiting}} {
					one, many := claim(plain, nil), claim(echo, &rules)
					k.Logf("%d jobs cost %d reads of one line, %d of %d lines with rules %+v", 2*claims, one, many, waiting, rules)
					if many > 20*max(one, 1) {
						k.Errorf("with rules %+v %d jobs cost %d reads, want at most 20 times the %d of a queue of one line", rules, 2*claims, many, one)
					}
				}
			}),
		rule("APageCostsWhatItHas",
			"a page of a listing, and the number of all that match, cost the page: not what is kept, what is skipped, or what others have",
			func(k *fixture) {
				counter, ok := unwrap.As[queue.Counter](k.q)
				if !ok {
					k.Skip("the queue is no queue.Counter")
				}
				k.reads(func() {}) // or it is skipped before the work
				k.addMany(kept, func(i int, j *queue.Job) {
					if j.Owner = "many"; i%100 == 0 {
						j.Owner = "few"
					}
				})
				slot := k.slot("w", kept/10) // some of them are in progress, and few have failed
				for i, j := range k.claim(slot) {
					if i%50 == 0 {
						k.mustApply(failOp(j, "no"))
					}
				}
				for _, q := range []queue.ListQuery{
					{Owner: "many"},
					{Owner: "many", Offset: kept / 2},
					{Owner: "many", Status: []queue.Status{queue.InQueue}, Offset: kept / 2},
					{Owner: "many", Status: []queue.Status{queue.Failed}},
					{Owner: "many", Status: []queue.Status{queue.Failed, queue.InProgress}, Offset: page},
					{Owner: "few"},
					{Owner: "few", Offset: kept / 200},
					{Offset: kept / 2},
				} {
					q.Endpoint, q.Limit = echo, page
					total, got := 0, 0
					n := k.reads(func() {
						var err error
						if total, err = counter.Count(k.Context(), k.now, q); err != nil {
							k.Fatalf("Count = %v, want nil", err)
						}
						got = len(k.list(q))
					})
					k.Logf("%d jobs of %d cost %d reads: %+v", got, total, n, q)
					if want := min(page, total-q.Offset); got != want || n > 20*page {
						k.Errorf("%d jobs of %d cost %d reads, want %d jobs and at most %d reads: %+v", got, total, n, want, 20*page, q)
					}
				}
			}),
	}
}
