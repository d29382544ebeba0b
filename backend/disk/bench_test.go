package disk

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/serverless/queue"
)

// A rate is how many operations several callers have completed in a time.
type rate struct {
	done int64
	took time.Duration
	slow []time.Duration // duration of each submit
}

func (r *rate) perSecond() float64 { return float64(r.done) / r.took.Seconds() }

func (r *rate) p99() time.Duration {
	slices.Sort(r.slow)
	return r.slow[len(r.slow)*99/100]
}

// callers runs fn repeatedly in n goroutines until d has passed. fn returns the duration to
// report.
func callers(b *testing.B, n int, d time.Duration, fn func(caller, i int) (time.Duration, error)) rate {
	b.Helper()
	var all rate
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	for c := range n {
		wg.Go(func() {
			var slow []time.Duration
			for i := 0; time.Since(begin) < d; i++ {
				took, err := fn(c, i)
				if err != nil {
					b.Error(err)
					return
				}
				slow = append(slow, took)
			}
			mu.Lock()
			defer mu.Unlock()
			all.done += int64(len(slow))
			all.slow = append(all.slow, slow...)
		})
	}
	wg.Wait()
	all.took = time.Since(begin)
	return all
}

// pebbleOnly measures the database alone: two synced writes of 1 KiB for each job.
func pebbleOnly(b *testing.B, n int, d time.Duration) rate {
	b.Helper()
	db, err := pebble.Open(b.TempDir(), &pebble.Options{Logger: pebbleLogger{}, MemTableSize: memTable})
	must(b, err)
	defer func() { must(b, db.Close()) }()
	value := make([]byte, 1024)
	return callers(b, n, d, func(c, i int) (time.Duration, error) {
		key := fmt.Appendf(nil, "%03d/%09d", c, i)
		begin := time.Now()
		err := db.Set(append(key, 's'), value, pebble.Sync)
		took := time.Since(begin)
		if err != nil {
			return 0, err
		}
		return took, db.Set(append(key, 'f'), value, pebble.Sync)
	})
}

var made atomic.Int64

func benchJob(endpoint string, now queue.Instant) queue.Job {
	n := made.Add(1)
	j := newJob(fmt.Sprintf("%08x-0000-4000-8000-%012x-u1", n*2654435761&0xffffffff, n))
	j.Endpoint, j.Input = endpoint, benchInput
	j.Submitted, j.Queued, j.Expires = now, now, now+86_400_000
	return j
}

var benchInput = append([]byte(`{"prompt":"`), append(make512(), `"}`...)...)

func make512() []byte {
	b := make([]byte, 499)
	for i := range b {
		b[i] = "abcdefghijklmnop"[i*7%16]
	}
	return b
}

// cycles submits, claims and finishes jobs. Each caller has one job at a time.
func cycles(b *testing.B, q *Jobs, n int, d time.Duration) rate {
	b.Helper()
	ctx := b.Context()
	return callers(b, n, d, func(c, _ int) (time.Duration, error) {
		jobs := [1]queue.Job{benchJob("echo", at)}
		begin := time.Now()
		err := q.Enqueue(ctx, jobs[:])
		took := time.Since(begin)
		if err != nil {
			return 0, err
		}
		return took, workOne(ctx, q, queue.WorkerID(fmt.Sprint("w", c)))
	})
}

func workOne(ctx context.Context, q *Jobs, w queue.WorkerID) error {
	var room [1]queue.Job
	jobs, err := q.Claim(ctx, at+1, []queue.Slot{{Endpoint: "echo", Worker: w, N: 1, Until: at + 60_000}}, room[:0])
	if err != nil || len(jobs) == 0 {
		return err
	}
	ops := [1]queue.Op{{Ref: jobs[0].Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: w, Token: jobs[0].Token, Payload: benchInput}}
	var res [1]queue.Result
	if err := q.Apply(ctx, at+2, ops[:], res[:]); err != nil {
		return err
	}
	return res[0].Err
}

// BenchmarkDurableCycle compares the durable submit and finish of a job with two synced writes
// of the database. of-bare is the ratio.
func BenchmarkDurableCycle(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprint("callers=", n), func(b *testing.B) {
			s := openForTest(b, b.TempDir(), &Options{Ballast: -1})
			const part = 1500 * time.Millisecond
			var ours, theirs rate
			for b.Loop() {
				// Alternate the two, because the speed of a shared disk varies.
				for range 2 {
					theirs = plus(theirs, pebbleOnly(b, n, part))
					ours = plus(ours, cycles(b, s.Jobs(), n, part))
				}
			}
			b.ReportMetric(ours.perSecond(), "cycles/s")
			b.ReportMetric(theirs.perSecond(), "bare/s")
			b.ReportMetric(ours.perSecond()/theirs.perSecond(), "of-bare")
			b.ReportMetric(float64(ours.p99().Microseconds())/1000, "submit-p99-ms")
			b.ReportMetric(float64(theirs.p99().Microseconds())/1000, "bare-p99-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func plus(a, b rate) rate {
	return rate{a.done + b.done, a.took + b.took, append(a.slow, b.slow...)}
}

func heapMB() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// fill submits n jobs, many in each call.
func fill(b *testing.B, q *Jobs, endpoint string, n int) {
	b.Helper()
	for n > 0 {
		jobs := make([]queue.Job, min(n, 1000))
		for i := range jobs {
			jobs[i] = benchJob(endpoint, at)
		}
		must(b, q.Enqueue(b.Context(), jobs))
		n -= len(jobs)
	}
}

// BenchmarkMillionLive opens a store with a million live jobs.
func BenchmarkMillionLive(b *testing.B) {
	dir := b.TempDir()
	opts := &Options{Ballast: -1}
	s, err := Open(b.Context(), dir, opts)
	must(b, err)
	fill(b, s.Jobs(), "echo", 1_000_000)
	must(b, s.Close())
	for b.Loop() {
		before := heapMB()
		begin := time.Now()
		s, err := Open(b.Context(), dir, opts)
		must(b, err)
		b.ReportMetric(time.Since(begin).Seconds(), "reopen-s")
		b.ReportMetric(heapMB()-before, "heap-MB")
		must(b, s.Close())
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBacklog compares cycles in an empty queue with cycles in a queue with a million
// older jobs. The cycles then claim the older jobs first.
func BenchmarkBacklog(b *testing.B) {
	for b.Loop() {
		const part = 1500 * time.Millisecond
		empty := openForTest(b, b.TempDir(), &Options{Ballast: -1})
		full := openForTest(b, b.TempDir(), &Options{Ballast: -1})
		fill(b, full.Jobs(), "echo", 1_000_000)
		var none, many rate
		for range 4 { // alternate the two
			none = plus(none, cycles(b, empty.Jobs(), 64, part))
			many = plus(many, cycles(b, full.Jobs(), 64, part))
		}
		must(b, empty.Close())
		must(b, full.Close())
		b.ReportMetric(none.perSecond(), "empty/s")
		b.ReportMetric(many.perSecond(), "million/s")
		b.ReportMetric(many.perSecond()/none.perSecond(), "of-empty")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkTenMillionQueued measures the memory of ten million queued jobs of 512 bytes. It
// needs PODYARD_LONG, a few minutes and 8 GB of disk.
func BenchmarkTenMillionQueued(b *testing.B) {
	if longTime() == 0 {
		b.Skip("long: set PODYARD_LONG")
	}
	for b.Loop() {
		s := openForTest(b, b.TempDir(), &Options{Ballast: -1})
		before := heapMB()
		begin := time.Now()
		fill(b, s.Jobs(), "echo", 10_000_000)
		b.ReportMetric(10_000_000/time.Since(begin).Seconds(), "submits/s")
		b.ReportMetric(heapMB()-before, "heap-MB")
		must(b, s.Close())
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBigPayload measures the submits of small jobs, and the slowest of them, with and
// without concurrent submits of jobs of 20 MB.
func BenchmarkBigPayload(b *testing.B) {
	for b.Loop() {
		s := openForTest(b, b.TempDir(), &Options{Ballast: -1})
		const part = 3 * time.Second
		alone := cycles(b, s.Jobs(), 16, part)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		big := int64(0)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				j := benchJob("big", at)
				j.Input = make([]byte, 20<<20)
				for i := range j.Input {
					j.Input[i] = byte(i * i >> 7)
				}
				if err := s.Jobs().Enqueue(b.Context(), []queue.Job{j}); err != nil {
					b.Error(err)
					return
				}
				big++
			}
		})
		beside := cycles(b, s.Jobs(), 16, part)
		close(stop)
		wg.Wait()
		must(b, s.Close())
		b.ReportMetric(float64(alone.p99().Microseconds())/1000, "alone-p99-ms")
		b.ReportMetric(float64(beside.p99().Microseconds())/1000, "beside-p99-ms")
		b.ReportMetric(beside.perSecond()/alone.perSecond(), "of-alone")
		b.ReportMetric(float64(big), "big-jobs")
	}
	b.ReportMetric(0, "ns/op")
}
