package serverlesstest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// inParallel runs f in n goroutines at once and waits for them.
func inParallel(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

func raceCases() []QueueCase {
	const callers = 64
	return []QueueCase{
		rule("EachJobHasOneClaim",
			"callers that submit and claim at once get each job once, under tokens that differ",
			func(k *fixture) {
				const each = 20
				var mu sync.Mutex
				got := map[queue.JobID]int{}
				tokens := map[queue.Token]bool{}
				claim := func(worker queue.WorkerID, n int) int {
					jobs, err := k.q.Claim(k.Context(), k.now, []queue.Slot{k.slot(worker, n)}, nil)
					if err != nil {
						k.Errorf("Claim = %v, want nil", err)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, j := range jobs {
						got[j.ID]++
						tokens[j.Token] = true
						if j.Worker != worker {
							k.Errorf("%q is claimed for %q, want %q", j.ID, j.Worker, worker)
						}
					}
					return len(jobs)
				}
				inParallel(callers, func(i int) {
					for n := range each {
						j := queue.Job{
							Ref:   queue.Ref{Endpoint: echo, ID: queue.JobID(fmt.Sprintf("%d-%d", i, n))},
							Input: []byte(`{}`),
							State: queue.State{Submitted: k.now, Queued: k.now, Expires: k.now + ttl, Terms: queue.Terms{ExecTimeout: exec * time.Millisecond, Retain: keep * time.Millisecond}},
						}
						if err := k.q.Enqueue(k.Context(), []queue.Job{j}); err != nil {
							k.Errorf("Enqueue = %v, want nil", err)
						}
						claim(queue.WorkerID(fmt.Sprint("w", i)), 1+n%3)
					}
				})
				for claim("last", 1000) > 0 {
				}
				k.wantEqual("jobs, tokens", []int{callers * each, callers * each}, []int{len(got), len(tokens)})
				for id, n := range got {
					if n != 1 {
						k.Errorf("%q was claimed %d times, want once", id, n)
					}
				}
				k.wantEqual("Running", int64(callers*each), k.stats(echo).Running)
			}),
		rule("DeliverersShareTheWork",
			"callers that lease and record deliveries at once have each one once, and settle all",
			func(k *fixture) {
				const n = 200
				for range n {
					k.mustApply(finishOp(k.run(withWebhook), "1"))
				}
				var mu sync.Mutex
				got := map[string]int{}
				inParallel(8, func(int) {
					for {
						ds, err := k.q.Deliveries(k.Context(), k.now, k.now+sendLease, 3)
						if err != nil {
							k.Errorf("Deliveries = %v, want nil", err)
						}
						if len(ds) == 0 {
							return
						}
						var as []queue.Attempt
						mu.Lock()
						for _, d := range ds {
							got[d.ID]++
							as = append(as, k.attempt(d, 0))
						}
						mu.Unlock()
						if err := k.q.Record(k.Context(), as); err != nil {
							k.Errorf("Record = %v, want nil", err)
						}
					}
				})
				k.wantEqual("deliveries", n, len(got))
				for id, n := range got {
					if n != 1 {
						k.Errorf("%q was given %d times, want once", id, n)
					}
				}
				k.wantNext("NextDelivery", 0, k.nextDelivery())
			}),
		rule("OneIdOneJob",
			"when several callers submit the same id at once, one succeeds",
			func(k *fixture) {
				jobs := make([]queue.Job, callers)
				for i := range jobs {
					jobs[i] = k.job(func(j *queue.Job) { j.ID = queue.JobID(fmt.Sprint("same-", i%4)) })
				}
				var mu sync.Mutex
				added := 0
				inParallel(callers, func(i int) {
					err := k.q.Enqueue(k.Context(), jobs[i:i+1])
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						added++
					case !errors.Is(err, queue.ErrExists):
						k.Errorf("Enqueue = %v, want nil or ErrExists", err)
					}
				})
				k.wantEqual("jobs added", 4, added)
				k.wantEqual("jobs listed", 4, len(k.list(queue.ListQuery{Endpoint: echo})))
			}),
		rule("OneEnd",
			"when several callers finish, fail, cancel and lose one job at once, one ends it, and it is counted once",
			func(k *fixture) {
				for range 10 {
					j := k.run(withWebhook)
					ops := []queue.Op{finishOp(j, "1"), failOp(j, "no")}
					var mu sync.Mutex
					ends := 0
					inParallel(16, func(i int) {
						res := make([]queue.Result, 1)
						if err := k.q.Apply(k.Context(), k.now, ops[i%2:i%2+1], res); err != nil {
							k.Errorf("Apply = %v, want nil", err)
						}
						mu.Lock()
						defer mu.Unlock()
						if res[0].Err == nil {
							ends++
						} else if !errors.Is(res[0].Err, queue.ErrLeaseLost) {
							k.Errorf("a second report = %v, want ErrLeaseLost", res[0].Err)
						}
					})
					k.wantEqual("reports that were accepted", 1, ends)
				}
				st := k.stats(echo)
				k.wantEqual("Running, ended", []int64{0, 10}, []int64{st.Running, st.Completed + st.Failed})
				k.wantEqual("Deliveries", 10, len(k.deliveries(100)))
			}),
		rule("ChunksOfManyWorkers",
			"chunks that many workers add at once are all there, those of each in order",
			func(k *fixture) {
				k.addN(8)
				held := k.claim(k.slot("w", 8))
				inParallel(8, func(i int) {
					for n := range 30 {
						res := make([]queue.Result, 1)
						if err := k.q.Apply(k.Context(), k.now, []queue.Op{chunk(held[i], fmt.Sprint(n))}, res); err != nil || res[0].Err != nil {
							k.Errorf("chunk = %v, %v, want nil", err, res[0].Err)
						}
					}
				})
				for _, j := range held {
					got, _ := k.chunks(j, 1<<20)
					want := make([]string, 30)
					for n := range want {
						want[n] = fmt.Sprint(n)
					}
					k.wantEqual("chunks", want, got)
				}
			}),
		rule("SweepersShareTheWork",
			"concurrent sweeps requeue each lost job once",
			func(k *fixture) {
				const n = 500
				jobs := make([]queue.Job, n)
				for i := range jobs {
					jobs[i] = k.job()
				}
				k.enqueue(jobs...)
				k.claim(k.slot("w", n))
				k.now += lease
				inParallel(8, func(int) {
					for range 10_000 {
						next, err := k.q.Expire(k.Context(), k.now, 10)
						if err != nil {
							k.Errorf("Expire = %v, want nil", err)
						}
						if next == 0 || next > k.now {
							return
						}
					}
				})
				st := k.stats(echo)
				k.wantEqual("Queued, Retried", []int64{n, n}, []int64{st.Queued, st.Retried})
				k.wantEqual("Claim", ids(jobs), ids(k.claim(k.slot("other", n))))
			}),
	}
}
