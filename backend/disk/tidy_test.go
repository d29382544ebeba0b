package disk

import (
	"crypto/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// A compaction may end the shortage while much is still deleted behind it. What was deleted then
// makes room as well.
func TestWhatIsDeletedWhileTheDiskIsNearlyFullMakesRoom(t *testing.T) {
	f := failingDisk(vfs.NewMem())
	opts := inMemory(f)
	opts.KeepFree = 100 << 20
	s := openForTest(t, "store", opts)
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(t.Context()) })
	t.Cleanup(running.Wait)
	for _, id := range []string{"a", "b", "c", "d"} {
		j := newJob(id)
		j.Input = make([]byte, 2*tidyFrom) // which is not made smaller on the disk
		_, _ = rand.Read(j.Input)
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	}
	e, err := s.engine()
	must(t, err)
	from, to := prefixRange([]byte{keyBody})
	must(t, e.db.Compact(t.Context(), from, to, false))
	kept := func() (n int64) {
		for _, level := range e.db.Metrics().Levels {
			n += level.AggregateSize()
		}
		return n
	}
	makesRoom := func(id queue.JobID) {
		t.Helper()
		before := kept()
		must(t, applyOne(t, s.Jobs(), queue.Op{Ref: queue.Ref{Endpoint: "echo", ID: id}, Kind: queue.OpCancel}).Err)
		limit := suite.Within(20 * time.Second)
		deadline := time.Now().Add(limit)
		for kept() > before-2*tidyFrom+1<<20 {
			if time.Now().After(deadline) {
				t.Fatalf("the input of %s has its space after %v: %d MB are kept, %d before", id, limit, kept()>>20, before>>20)
			}
			time.Sleep(time.Millisecond)
		}
	}
	f.free.Store(150 << 20)
	makesRoom("a")
	f.free.Store(300 << 20)
	makesRoom("b")
	makesRoom("c")
}

// A log has the space of a whole table in memory before anything is in it. Five of them may be kept:
// of a nearly full disk the users would miss that.
func TestLogsReserveNoSpaceWhileTheDiskIsNearlyFull(t *testing.T) {
	var reserved atomic.Int64
	f := failingDisk(errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFilePreallocate {
			reserved.Add(1)
		}
		return nil
	})))
	dir, opts := t.TempDir(), inMemory(f)
	opts.KeepFree = 100 << 20
	f.free.Store(150 << 20)
	s := openForTest(t, dir, opts)
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")}))
	if n := reserved.Load(); n != 0 {
		t.Errorf("%d times space was reserved while the disk was nearly full", n)
	}
	must(t, s.Close())
	f.free.Store(300 << 20)
	s = openForTest(t, dir, opts)
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("b")}))
	if reserved.Load() == 0 {
		t.Error("no log reserves space on a disk with room")
	}
}
