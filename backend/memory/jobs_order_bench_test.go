package memory_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless/queue"
)

// BenchmarkCycleOfKeys takes jobs from submit to result while jobs of a number of keys wait: with
// one priority or ten, and with limits. 0 keys are jobs without a key. The cost must not grow with
// the keys: compare cases with as many jobs that wait, because the records of many jobs are not in
// the cache of the processor.
func BenchmarkCycleOfKeys(b *testing.B) {
	for _, c := range []struct {
		keys, waiting, priorities int
		rules                     queue.Rules
	}{
		{0, 1, 1, queue.Rules{}},
		{1, 1, 1, queue.Rules{}},
		{10, 10, 1, queue.Rules{}},
		{0, 100_000, 1, queue.Rules{}},
		{10, 100_000, 1, queue.Rules{}},
		{100_000, 100_000, 1, queue.Rules{}},
		{10, 100_000, 10, queue.Rules{Ageing: time.Minute}},
		{100_000, 100_000, 10, queue.Rules{Ageing: time.Minute}},
		{10, 100_000, 10, queue.Rules{Ageing: time.Minute, PerKey: 2, PerUser: 1000, Total: 1000}},
		{100_000, 100_000, 10, queue.Rules{Ageing: time.Minute, PerKey: 2, PerUser: 1000, Total: 1000}},
	} {
		b.Run(fmt.Sprintf("keys=%d,waiting=%d,priorities=%d,limits=%t", c.keys, c.waiting, c.priorities, c.rules.Total > 0), func(b *testing.B) {
			q, payload := memory.NewJobs(), bytes.Repeat([]byte("x"), payloadSize)
			names := make([]string, max(c.keys, 1))
			for i := range c.keys {
				names[i] = fmt.Sprint("key-", i)
			}
			made := 0
			submit := func(now queue.Instant) {
				j := benchJob(uint64(made), now, payload)
				j.Key, j.Priority = names[made%len(names)], uint8(made%c.priorities)
				made++
				if err := q.Enqueue(b.Context(), []queue.Job{j}); err != nil {
					b.Fatal(err)
				}
			}
			for range c.waiting {
				submit(1)
			}
			b.ReportAllocs()
			claims := time.Duration(0)
			for b.Loop() {
				now := queue.Instant(made)
				submit(now)
				claims += cycleOne(b, q, now, &c.rules)
			}
			b.ReportMetric(float64(claims.Nanoseconds())/float64(b.N), "ns/claim")
		})
	}
}

// cycleOne claims a job and ends it. It returns how long the claim took, with a reading of the clock.
// It does not call b.Helper, which takes longer than a claim.
func cycleOne(b *testing.B, q *memory.Jobs, now queue.Instant, rules *queue.Rules) (claim time.Duration) {
	slots := [1]queue.Slot{{Endpoint: "echo", Worker: "worker", N: 1, Until: now + 30_000, Rules: rules}}
	began := time.Now()
	jobs, err := q.Claim(b.Context(), now, slots[:], nil)
	claim = time.Since(began)
	if err != nil || len(jobs) != 1 {
		b.Fatalf("Claim gave %d jobs, %v", len(jobs), err)
	}
	j := &jobs[0]
	ops := [1]queue.Op{{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: j.Worker, Token: j.Token, Payload: j.Input}}
	var res [1]queue.Result
	if err := q.Apply(b.Context(), now, ops[:], res[:]); err != nil || res[0].Err != nil {
		b.Fatal(err, res[0].Err)
	}
	if _, err := q.Expire(b.Context(), now, 4); err != nil {
		b.Fatal(err)
	}
	return claim
}
