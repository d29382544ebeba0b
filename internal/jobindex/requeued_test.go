package jobindex

import (
	"fmt"
	"testing"

	"github.com/podyard/podyard/serverless/queue"
)

// BenchmarkStatsWithJobsInFront has many jobs that were queued again because a worker was lost.
func BenchmarkStatsWithJobsInFront(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		x := New()
		for k := range n {
			i, _ := x.Add(queue.Ref{Endpoint: "e", ID: queue.JobID(fmt.Sprint(k))}, "user", "", 0)
			s := queue.State{Seq: uint64(k + 1), Queued: queue.Instant(k + 1), Expires: 1 << 50}
			x.Show(i, &s)
			claimed := s
			claimed.Status = queue.InProgress
			x.NextReady(0, &queue.Slot{Endpoint: "e"})
			x.Commit(i, &claimed, queue.Put)
			x.Commit(i, &s, queue.Put|queue.EvReady)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				x.Stats("e", nil, 0)
			}
		})
	}
}
