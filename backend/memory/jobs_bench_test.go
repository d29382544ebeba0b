package memory_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

const (
	callers     = 64
	payloadSize = 512
	perMS       = 300 // cycles in a virtual millisecond
)

// benchID is the n-th id, as long as the ids that a service makes.
func benchID(n uint64) queue.JobID {
	b := [39]byte([]byte("00000000-0000-4000-8000-000000000000-u1"))
	var h [16]byte
	binary.BigEndian.PutUint64(h[8:], n*0x9e3779b97f4a7c15)
	hex.Encode(h[:], h[8:])
	copy(b[:8], h[:8])
	copy(b[24:], h[8:])
	return queue.JobID(b[:])
}

// benchJob returns a job with a payload that it shares with no other.
func benchJob(n uint64, now queue.Instant, payload []byte) queue.Job {
	return queue.Job{
		Ref: queue.Ref{Endpoint: "echo", ID: benchID(n)}, Owner: "user", Input: bytes.Clone(payload),
		State: queue.State{Submitted: now, Queued: now, Expires: now + 86_400_000, Terms: queue.Terms{ExecTimeout: 10 * time.Minute, Retain: 500 * time.Millisecond}},
	}
}

// inParallel makes b.N cycles on 64 goroutines and reports how many there were a second.
func inParallel(b *testing.B, loop func(next func() (uint64, bool)) error) {
	b.Helper()
	var n atomic.Int64
	next := func() (uint64, bool) {
		i := n.Add(1)
		return uint64(i), i <= int64(b.N)
	}
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if err := loop(next); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

// BenchmarkCycle takes jobs of 512 bytes from submit to result, on 64 goroutines, while a
// number of others stay queued. Results are kept for half a virtual second and swept.
func BenchmarkCycle(b *testing.B) {
	for _, queued := range []int{0, 1_000, 1_000_000} {
		b.Run(fmt.Sprint("queued=", queued), func(b *testing.B) {
			q := memory.NewJobs()
			payload := bytes.Repeat([]byte("x"), payloadSize)
			if err := fill(b.Context(), q, queued, payload); err != nil {
				b.Fatal(err)
			}
			inParallel(b, func(next func() (uint64, bool)) error { return cycles(b.Context(), q, next, payload) })
		})
	}
}

func fill(ctx context.Context, q *memory.Jobs, n int, payload []byte) error {
	for i := range n {
		if err := q.Enqueue(ctx, []queue.Job{benchJob(1<<40+uint64(i), 1, payload)}); err != nil {
			return err
		}
	}
	return nil
}

// cycles makes cycles until next says that there are enough.
func cycles(ctx context.Context, q *memory.Jobs, next func() (uint64, bool), payload []byte) error {
	jobs, slots := make([]queue.Job, 1), []queue.Slot{{Endpoint: "echo", Worker: "worker", N: 1}}
	ops, res := make([]queue.Op, 1), make([]queue.Result, 1)
	var out []queue.Job
	for i, ok := next(); ok; i, ok = next() {
		now := queue.Instant(i/perMS + 1)
		jobs[0] = benchJob(i, now, payload)
		if err := q.Enqueue(ctx, jobs); err != nil {
			return err
		}
		slots[0].Until = now + 30_000
		var err error
		if out, err = q.Claim(ctx, now, slots, out[:0]); err != nil {
			return err
		}
		if len(out) != 1 {
			return fmt.Errorf("Claim gave %d jobs, want 1", len(out))
		}
		j := &out[0]
		ops[0] = queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: j.Worker, Token: j.Token, Payload: j.Input}
		if err := q.Apply(ctx, now, ops, res); err != nil || res[0].Err != nil {
			return errors.Join(err, res[0].Err)
		}
		if i%64 == 0 {
			if _, err := q.Expire(ctx, now, 128); err != nil {
				return err
			}
		}
	}
	return nil
}

// BenchmarkCeiling is an upper bound for BenchmarkCycle: the same goroutines and jobs, the
// payload copied once, and three steps on one map, one slice and one mutex. The queue should
// reach 60 % of it.
func BenchmarkCeiling(b *testing.B) {
	payload := bytes.Repeat([]byte("x"), payloadSize)
	var mu sync.Mutex
	jobs := map[queue.JobID]*queue.Job{}
	var fifo []*queue.Job
	inParallel(b, func(next func() (uint64, bool)) error {
		for i, ok := next(); ok; i, ok = next() {
			j := benchJob(i, queue.Instant(i/perMS+1), payload)
			mu.Lock()
			jobs[j.ID] = &j
			fifo = append(fifo, &j)
			mu.Unlock()

			mu.Lock()
			c := fifo[0]
			fifo = fifo[1:]
			c.Status = queue.InProgress
			mu.Unlock()

			mu.Lock()
			c.Status, c.Output = queue.Completed, c.Input
			delete(jobs, c.ID)
			mu.Unlock()
		}
		return nil
	})
}

// A queued job takes at most 400 bytes of live heap beyond its payload.
func TestQueuedJobSize(t *testing.T) {
	suite.SkipUnlessLong(t)
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	payload := make([]byte, payloadSize)
	before := heap()
	q := memory.NewJobs()
	if err := fill(t.Context(), q, n, payload); err != nil {
		t.Fatal(err)
	}
	each := float64(heap()-before)/float64(n) - payloadSize
	t.Logf("%.0f bytes a queued job beyond its payload, of %d jobs", each, n)
	if each > 400 {
		t.Errorf("a queued job takes %.0f bytes beyond its payload, want 400 at most", each)
	}
	runtime.KeepAlive(q)
}
