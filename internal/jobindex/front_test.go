package jobindex

import (
	"fmt"
	"testing"

	"github.com/podyard/podyard/serverless"
)

// BenchmarkStatsWithJobsInFront has many jobs that lost workers put back.
func BenchmarkStatsWithJobsInFront(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		x := New()
		for k := range n {
			i, _ := x.Add(serverless.Ref{Endpoint: "e", ID: serverless.JobID(fmt.Sprint(k))}, "user")
			s := serverless.State{Seq: uint64(k + 1), Queued: serverless.Instant(k + 1), Expires: 1 << 50}
			x.Show(i, &s)
			claimed := s
			claimed.Status = serverless.InProgress
			x.NextReady("e")
			x.Move(i, &s, &claimed, serverless.Put)
			x.Move(i, &claimed, &s, serverless.Put|serverless.EvReady)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				x.Stats("e")
			}
		})
	}
}
