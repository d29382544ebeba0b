package serverless_test

import (
	"testing"
	"testing/synctest"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
)

// An uncounted queue is no queue.Counter, whatever it wraps.
type uncounted struct{ serverless.JobQueue }

func TestPageOfAQueueThatCountsIsThatOfOneThatDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counting := memory.NewJobs()
		a, b := serviceOn(t, uncounted{counting}, nil), serverless.New(counting, twoEndpoints(t), nil)
		for range 7 {
			submitEcho(t, a)
		}
		for _, q := range []serverless.RequestsQuery{{Limit: 3}, {Offset: 3, Limit: 3}, {Offset: 6, Limit: 3}, {Offset: 9, Limit: 3}, {}} {
			want, err := a.Requests(t.Context(), "alice", "echo", q)
			if err != nil {
				t.Fatal(err)
			}
			got, err := b.Requests(t.Context(), "alice", "echo", q)
			if err != nil || got.Total != want.Total || len(got.Jobs) != len(want.Jobs) {
				t.Errorf("%+v: %d of %d jobs, %v; want %d of %d", q, len(got.Jobs), got.Total, err, len(want.Jobs), want.Total)
			}
			for i := range got.Jobs {
				if got.Jobs[i].Ref != want.Jobs[i].Ref {
					t.Errorf("%+v: job %d is %v, want %v", q, i, got.Jobs[i].Ref, want.Jobs[i].Ref)
				}
			}
		}
	})
}
