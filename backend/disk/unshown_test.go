package disk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

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

// A job that is durable at its end is in the queue without a commit, unless the place of an earlier
// job is not durable yet: then it comes after that one.
func TestAJobThatIsDurableAtItsEndWaitsOnlyForThePlacesBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Pointer[chan struct{}] // syncs wait for it; nil: they do not
		o := inMemory(vfs.NewMem())
		o.wait = func(g *group) error {
			if ch := held.Load(); ch != nil {
				<-*ch
			}
			return g.wait()
		}
		s := openForTest(t, "store", o)
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("running")})) // reserves numbers
		running := claimOne(t, s.Jobs(), "w")
		release := make(chan struct{})
		held.Store(&release)
		var calls sync.WaitGroup
		calls.Go(func() {
			end := queue.Op{Ref: running.Ref, Kind: queue.OpFinish, Worker: "w", Token: running.Token, Status: queue.Completed}
			if err := s.Jobs().Apply(t.Context(), at+2, []queue.Op{end}, make([]queue.Result, 1)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()

		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{durableAtEnd("first")}))
		if j := claimOne(t, s.Jobs(), "w"); j.ID != "first" {
			t.Errorf("%s was claimed while a sync is under way, want first", j.ID)
		}
		for _, j := range []queue.Job{newJob("second"), durableAtEnd("third")} {
			calls.Go(func() {
				if err := s.Jobs().Enqueue(t.Context(), []queue.Job{j}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		slot := []queue.Slot{{Endpoint: "echo", Worker: "w", N: 1, Until: at + 9_000}}
		if got, err := s.Jobs().Claim(t.Context(), at, slot, nil); err != nil || len(got) != 0 {
			t.Errorf("%d jobs were claimed, %v, while the second is not durable, want none", len(got), err)
		}
		held.Store(nil)
		close(release)
		calls.Wait()
		for _, want := range []queue.JobID{"second", "third"} {
			if j := claimOne(t, s.Jobs(), "w"); j.ID != want {
				t.Errorf("%s was claimed, want %s", j.ID, want)
			}
		}
	})
}

// A store that is closed keeps a job that nobody has seen, with all that it was submitted with.
func TestACloseKeepsWhatNobodyHasSeen(t *testing.T) {
	fs := vfs.NewMem()
	s := openForTest(t, "store", inMemory(fs))
	waiting, running := durableAtEnd("waiting"), durableAtEnd("running")
	running.Webhook, running.Flags = "https://example.org/", running.Flags|queue.HasWebhook
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{running}))
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{waiting}))
	claimed := claimOne(t, s.Jobs(), "w")
	if string(claimed.Input) != string(running.Input) || claimed.Webhook != running.Webhook {
		t.Errorf("the worker got %s %q, want %s %q", claimed.Input, claimed.Webhook, running.Input, running.Webhook)
	}
	must(t, s.Close())
	s = openForTest(t, "store", inMemory(fs))
	for _, want := range []queue.Job{claimed, waiting} {
		got := getJob(t, s.Jobs(), want.Ref)
		if string(got.Input) != string(want.Input) || got.Webhook != want.Webhook || got.Status != want.Status || got.Worker != want.Worker {
			t.Errorf("%s is %+v after the store was opened again, want %+v", want.ID, got, want)
		}
	}
	finish(t, s.Jobs(), &claimed, "1")
}

// Jobs that are not written take no more memory than is meant for them, and leave none behind.
func TestJobsThatAreNotWrittenTakeABoundedMemory(t *testing.T) {
	s := openForTest(t, "store", inMemory(vfs.NewMem()))
	const size, n = 60_000, 300
	var ids []queue.Ref
	for k := range n {
		j := durableAtEnd(fmt.Sprint("j", k))
		j.Input = []byte(`"` + strings.Repeat("x", size) + `"`)
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
		ids = append(ids, j.Ref)
	}
	q := &s.current.Load().jobs
	if kept := q.unwritten.bytes; kept == 0 || kept > maxUnwritten {
		t.Errorf("%d bytes are kept of %d jobs, want at most %d", kept, n, maxUnwritten)
	}
	for k := range n {
		c := claimOne(t, s.Jobs(), "w")
		if c.Ref != ids[k] || len(c.Input) != size+2 {
			t.Fatalf("claim %d is %s with %d bytes", k, c.ID, len(c.Input))
		}
		finish(t, s.Jobs(), &c, "1")
	}
	if len(q.unwritten.by) != 0 || q.unwritten.bytes != 0 {
		t.Errorf("%d jobs with %d bytes are kept after their end", len(q.unwritten.by), q.unwritten.bytes)
	}
}
