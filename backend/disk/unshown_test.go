package disk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

func durableAtEnd(id string) queue.Job {
	j := newJob(id)
	j.Flags |= queue.Sync | queue.DurableAtEnd
	return j
}

// A power failure may forget a job that is durable at its end, while nobody but a worker has
// seen it. It keeps the job from the moment that somebody reads it.
func TestAPowerFailureForgetsOnlyWhatNobodyHasSeen(t *testing.T) {
	for _, c := range []struct {
		name string
		seen bool
		do   func(ctx context.Context, q queue.JobQueue, j queue.Job) error
	}{
		{"nothing", false, func(context.Context, queue.JobQueue, queue.Job) error { return nil }},
		{"renewed", false, func(ctx context.Context, q queue.JobQueue, j queue.Job) error {
			return q.Apply(ctx, at, []queue.Op{{Ref: j.Ref, Kind: queue.OpRenew, Worker: "w", Token: j.Token, Until: at + 9_000}}, make([]queue.Result, 1))
		}},
		{"read", true, func(ctx context.Context, q queue.JobQueue, j queue.Job) error {
			_, err := q.Get(ctx, at, j.Ref)
			return err
		}},
		{"streamed", true, func(ctx context.Context, q queue.JobQueue, j queue.Job) error {
			_, _, err := q.Chunks(ctx, at, j.Ref, 1)
			return err
		}},
		{"listed", true, func(ctx context.Context, q queue.JobQueue, _ queue.Job) error {
			for _, err := range q.List(ctx, at, queue.ListQuery{Endpoint: "echo"}) {
				return err
			}
			return errors.New("the list is empty")
		}},
		{"ended", true, func(ctx context.Context, q queue.JobQueue, j queue.Job) error {
			op := queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Worker: "w", Token: j.Token, Status: queue.Completed, Payload: []byte("1")}
			return q.Apply(ctx, at, []queue.Op{op}, make([]queue.Result, 1))
		}},
		{"cancelled", true, func(ctx context.Context, q queue.JobQueue, j queue.Job) error {
			return q.Apply(ctx, at, []queue.Op{{Ref: j.Ref, Kind: queue.OpCancel}}, make([]queue.Result, 1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			s := openForTest(t, "store", inMemory(fs))
			must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{durableAtEnd("j")}))
			must(t, c.do(t.Context(), s.Jobs(), claimOne(t, s.Jobs(), "w")))
			after := openForTest(t, "store", inMemory(fs.CrashClone(vfs.CrashCloneCfg{})))
			if _, err := after.Jobs().Get(t.Context(), at, newJob("j").Ref); (err == nil) != c.seen {
				t.Errorf("Get after the power failure = %v, want the job: %v", err, c.seen)
			}
		})
	}
}

// Jobs that need a sync and jobs that need none keep their order, whoever enqueues them.
func TestJobsWithAndWithoutASyncAreClaimedInTheOrderOfTheirSeq(t *testing.T) {
	s := openForTest(t, "store", inMemory(vfs.NewCrashableMem()))
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for n := range 50 {
				j := newJob(fmt.Sprintf("%d-%d", w, n))
				if (w+n)%2 == 0 {
					j = durableAtEnd(string(j.ID))
				}
				if err := s.Jobs().Enqueue(t.Context(), []queue.Job{j}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	last := uint64(0)
	for range 8 * 50 {
		j := claimOne(t, s.Jobs(), "w")
		if j.Seq <= last {
			t.Fatalf("%q has Seq %d and comes after %d", j.ID, j.Seq, last)
		}
		last = j.Seq
	}
}
