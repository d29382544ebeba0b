package workers_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/workers"
)

// TestRunningIsWhatCountingWouldFind moves workers and jobs at random, and counts.
func TestRunningIsWhatCountingWouldFind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r workers.Registry
		var handles []*workers.Worker // those that have left included
		now := queue.Instant(1)
		draw := func(name string, n int) int { return rapid.IntRange(0, n-1).Draw(t, name) }
		for range draw("steps", 60) + 1 {
			now += queue.Instant(draw("time", 5000))
			endpoint := []string{"e", "f"}[draw("endpoint", 2)]
			id := queue.WorkerID(fmt.Sprint("w", draw("worker", 4)))
			if len(handles) == 0 {
				w, _ := r.Join(endpoint, id, now, now+10000)
				handles = append(handles, w)
			}
			w := handles[draw("handle", len(handles))]
			job := queue.JobID(fmt.Sprint("j", draw("job", 3)))
			at := queue.Ref{Endpoint: w.Key().Endpoint, ID: job}
			switch draw("move", 10) {
			case 0:
				w, _ := r.Join(endpoint, id, now, now+10000)
				handles = append(handles, w)
			case 1:
				if w := r.JoinLocal(endpoint, id, now); w != nil {
					handles = append(handles, w)
				}
			case 2, 3:
				j := queue.Job{Ref: at}
				w.Lease([]queue.Job{j}, now)
			case 4:
				w.Done(&queue.Op{Ref: at}, now, true)
			case 5:
				r.Stop(at, w.Key().ID, now)
			case 6:
				ops, _ := w.Ping([]queue.JobID{job}, nil, now, now+10000, 3*time.Second)
				w.Pinged(ops, make([]queue.Result, len(ops)), now)
			case 7:
				w.Leave()
			case 8:
				r.Expire(now)
			case 9:
				w.StartPoll()
				w.EndPoll(now + 10000)
			}
			for _, e := range []string{"e", "f"} {
				busy := 0
				for _, v := range r.List(e) {
					if len(v.Jobs) > 0 {
						busy++
					}
				}
				if got := r.Running(e); got != busy {
					t.Fatalf("Running(%s) = %d, and %d workers have a job", e, got, busy)
				}
			}
		}
	})
}

// crowd is a registry with n busy workers.
func crowd(n int) *workers.Registry {
	r := &workers.Registry{}
	for i := range n {
		w, _ := r.Join("e", queue.WorkerID(fmt.Sprint("w", i)), 0, queue.Instant(1_000_000+i))
		w.Lease(jobs("j"), 0)
	}
	return r
}

func TestCostOfACountDoesNotGrowWithTheWorkers(t *testing.T) {
	one, many := crowd(1), crowd(100_000)
	const calls, limit = 1000, 50 // a scan of all would take 100,000 times as long
	ratio := 0.0
	for range 5 { // the machine may do something else meanwhile
		ratio = float64(timed(calls, many)) / float64(max(timed(calls, one), 1))
		if ratio < limit {
			return
		}
	}
	t.Errorf("with 100,000 workers it takes %.0f times as long as with one, want about the same", ratio)
}

func timed(calls int, r *workers.Registry) time.Duration {
	begin := time.Now()
	for range calls {
		r.Running("e")
		r.Expire(1)
	}
	return time.Since(begin)
}

func BenchmarkRunning(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		r := crowd(n)
		b.Run(fmt.Sprintf("%d workers", n), func(b *testing.B) {
			for b.Loop() {
				r.Running("e")
			}
		})
	}
}

func BenchmarkExpire(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		r := crowd(n)
		b.Run(fmt.Sprintf("%d workers", n), func(b *testing.B) {
			for b.Loop() {
				r.Expire(1)
			}
		})
	}
}
