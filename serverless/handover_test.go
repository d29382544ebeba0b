package serverless_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
)

// BenchmarkHandOver measures how long it takes from the call of Submit until a worker of
// this process that was idle has the job.
func BenchmarkHandOver(b *testing.B) {
	s := serverless.New(memory.NewJobs(), twoEndpoints(b), nil)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	held := make(chan time.Time, 1)
	wg.Go(func() { _ = s.Run(ctx) })
	wg.Go(func() {
		_ = s.Serve(ctx, "echo", serverless.WorkerFunc(func(context.Context, *serverless.Task) ([]byte, error) {
			held <- time.Now()
			return nil, nil
		}), nil)
	})
	defer wg.Wait()
	defer cancel()
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		begin := time.Now()
		j, err := s.Submit(ctx, "alice", "echo", serverless.Request{Input: []byte(`{"prompt":"a lighthouse"}`)})
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-held).Sub(begin))
		if _, err := s.Wait(ctx, "alice", j.Ref, time.Minute); err != nil { // the worker is idle again
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	report := func(name string, d time.Duration) { b.ReportMetric(float64(d.Microseconds())/1000, name) }
	report("p50-ms", took[len(took)/2])
	report("p99-ms", took[len(took)*99/100])
}

func TestTwoThousandIdleTakesAreCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, limit = 2000, 60 << 20
		q := newFaultyQueue()
		s := serviceOn(t, q, nil)
		before := memoryInUse()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range takes {
			wg.Go(func() {
				if jobs, err := s.Take(ctx, "echo", serverless.WorkerID(fmt.Sprint("worker-", i)), 1); len(jobs) != 0 || err != nil {
					t.Errorf("Take = %d jobs, %v, want none", len(jobs), err)
				}
			})
		}
		synctest.Wait()
		if used := int64(memoryInUse()) - int64(before); used > limit {
			t.Errorf("%d idle takes use %d MB, want less than %d", takes, used>>20, limit>>20)
		}
		calls := q.calls.Load()
		time.Sleep(24 * time.Hour)
		if n := q.calls.Load() - calls; n != 0 {
			t.Errorf("%d calls of the queue in a day of %d idle takes, want none", n, takes)
		}
		cancel()
		wg.Wait()
	})
}

// memoryInUse is the memory that heap and stacks use.
func memoryInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
