package disk

import (
	"bytes"
	"crypto/rand"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// comesAndGoes runs jobs with an input and an output of random bytes to their ends, and deletes them.
func comesAndGoes(t *testing.T, s *Store, from, n, size int) {
	t.Helper()
	for k := range n {
		j := newJob(strconv.Itoa(from + k))
		j.Input = make([]byte, size)
		_, _ = rand.Read(j.Input)
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
		c := claimOne(t, s.Jobs(), "w")
		op := queue.Op{Ref: c.Ref, Kind: queue.OpFinish, Worker: "w", Token: c.Token, Status: queue.Completed, Payload: j.Input}
		must(t, applyOne(t, s.Jobs(), op).Err)
		must(t, applyOne(t, s.Jobs(), queue.Op{Ref: c.Ref, Kind: queue.OpDelete}).Err)
	}
}

// Nothing is short of space, and nobody opens the store again.
func TestTheSpaceOfDeletedPayloadsComesBackWithinAMinute(t *testing.T) {
	for what, size := range map[string]int{"tables of their own": 300 << 10, "shared tables": 30 << 10} {
		t.Run(what, func(t *testing.T) {
			jobs := 150
			if longTime() > 0 && size > bigPayload {
				jobs = 20_000
			}
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewMem()
				s := openForTest(t, "store", inMemory(mem))
				var running sync.WaitGroup
				running.Go(func() { _ = s.Run(t.Context()) })
				stays := newJob("stays")
				stays.Input = bytes.Repeat([]byte("x"), size)
				stays.Endpoint = "other"
				must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{stays}))
				most := 0
				for from := 0; from < jobs; from += 50 {
					comesAndGoes(t, s, from, 50, size)
					time.Sleep(10 * time.Second)
					most = max(most, len(tablesIn(t, mem, "store")))
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				files, bytes := len(tablesIn(t, mem, "store")), int64(0)
				for _, name := range tablesIn(t, mem, "store") {
					bytes += int64(len(readFile(t, mem, name)))
				}
				if files > 50 || bytes > 20<<20 || s.Dead() > 20<<20 {
					t.Errorf("%d tables of %d MB are left of %d jobs, %d bytes are dead, %d of them in no table", files, bytes>>20, jobs, s.Dead(), s.space.gone.Load())
				}
				if most > 400 {
					t.Errorf("there were %d tables at once", most)
				}
				if j, err := s.Jobs().Get(t.Context(), at+3, stays.Ref); err != nil || len(j.Input) != size {
					t.Errorf("the job that stays has %d bytes, %v", len(j.Input), err)
				}
				must(t, s.Close())
				running.Wait()
				t.Logf("%d jobs: %d tables at most, %d tables and %d KB in the end", jobs, most, files, bytes>>10)
			})
		})
	}
}

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
