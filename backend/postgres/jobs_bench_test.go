package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// benchStore opens a store over the database that PODYARD_POSTGRES_URL names, or over one of the
// tests, whose commits then wait for the log as those of a real one do, but not for the disk.
func benchStore(b *testing.B) *postgres.Jobs {
	b.Helper()
	url := os.Getenv("PODYARD_POSTGRES_URL")
	if url == "" {
		url = durable(postgresql.Database(b))
	}
	s, err := postgres.Open(b.Context(), url, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	s.Limit(budget.NewSet(budget.Users{Limits: budget.Default()}))
	return s.Jobs()
}

var benchInput = []byte(`{"prompt":"` + strings.Repeat("abcdefghijklmnop", 31) + `"}`)

// benchCallers makes b.N operations with n callers, and reports how many a second.
func benchCallers(b *testing.B, n int, op func(ctx context.Context, caller int, id string) error) {
	b.Helper()
	var made atomic.Int64
	var callers sync.WaitGroup
	prefix := fmt.Sprintf("%x", time.Now().UnixNano())
	b.ResetTimer()
	for c := range n {
		callers.Go(func() {
			for i := made.Add(1); i <= int64(b.N); i = made.Add(1) {
				if err := op(b.Context(), c, fmt.Sprintf("%s-%d", prefix, i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

func benchJob(id string) queue.Job {
	j := newJob(id)
	j.Input = benchInput
	return j
}

// work claims up to n jobs and ends them.
func work(ctx context.Context, q *postgres.Jobs, worker, n int) (done int, err error) {
	w := queue.WorkerID(fmt.Sprint("w", worker))
	jobs, err := q.Claim(ctx, instant, []queue.Slot{{Endpoint: "e", Worker: w, N: n, Until: instant + 30_000}}, nil)
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	ops := make([]queue.Op, len(jobs))
	for i, j := range jobs {
		ops[i] = queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: w, Token: j.Token, Payload: benchInput}
	}
	return len(jobs), q.Apply(ctx, instant, ops, make([]queue.Result, len(ops)))
}

// A cycle is to submit a job, to claim one and to end it, each awaited.
func BenchmarkPostgresCycle(b *testing.B) {
	for _, n := range []int{1, 32, 256} {
		b.Run(fmt.Sprint("callers=", n), func(b *testing.B) {
			q := benchStore(b)
			benchCallers(b, n, func(ctx context.Context, c int, id string) error {
				if err := q.Enqueue(ctx, []queue.Job{benchJob(id)}); err != nil {
					return err
				}
				_, err := work(ctx, q, c, 1)
				return err
			})
		})
	}
}

func BenchmarkPostgresInsert(b *testing.B) {
	for _, n := range []int{1, 32, 256} {
		b.Run(fmt.Sprint("callers=", n), func(b *testing.B) {
			q := benchStore(b)
			benchCallers(b, n, func(ctx context.Context, _ int, id string) error { return q.Enqueue(ctx, []queue.Job{benchJob(id)}) })
		})
	}
}

// BenchmarkPostgresBulk submits 1,000 jobs at once. An operation is one job.
func BenchmarkPostgresBulk(b *testing.B) {
	q := benchStore(b)
	prefix := fmt.Sprintf("%x", time.Now().UnixNano())
	b.ResetTimer()
	for n := 0; n < b.N; n += 1000 {
		jobs := make([]queue.Job, min(1000, b.N-n))
		for i := range jobs {
			jobs[i] = benchJob(fmt.Sprintf("%s-%d", prefix, n+i))
		}
		if err := q.Enqueue(b.Context(), jobs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkPostgresBacklog works off jobs that wait, 100 at once. An operation is one job.
func BenchmarkPostgresBacklog(b *testing.B) {
	q := benchStore(b)
	prefix := fmt.Sprintf("%x", time.Now().UnixNano())
	for n := 0; n < b.N; n += 1000 {
		jobs := make([]queue.Job, min(1000, b.N-n))
		for i := range jobs {
			jobs[i] = benchJob(fmt.Sprintf("%s-%d", prefix, n+i))
		}
		if err := q.Enqueue(b.Context(), jobs); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for left := b.N; left > 0; {
		n, err := work(b.Context(), q, 0, min(left, 100))
		if err != nil || n == 0 {
			b.Fatalf("%d jobs are left: %v", left, err)
		}
		left -= n
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
