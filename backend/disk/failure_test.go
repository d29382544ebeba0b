package disk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// A failingFS is a disk whose writes and syncs can be made to fail.
type failingFS struct {
	vfs.FS
	write atomic.Pointer[error] // error of writes
	sync  atomic.Pointer[error] // error of syncs
	free  atomic.Uint64
	files atomic.Int64 // free inodes of 100,000
}

func failingDisk(under vfs.FS) *failingFS {
	f := &failingFS{}
	f.free.Store(1 << 40)
	f.files.Store(90_000)
	f.FS = errorfs.Wrap(under, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if err := f.sync.Load(); err != nil {
				return *err
			}
		}
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpRemove {
			if err := f.write.Load(); err != nil {
				return *err
			}
		}
		return nil
	}))
	return f
}

func (f *failingFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: f.free.Load(), TotalBytes: 1 << 41}, nil
}

func (f *failingFS) inodes(string) (free, total int64) { return f.files.Load(), 100_000 }

func unavailableError(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	d := problem.Of(err)
	if d.Status != 503 {
		t.Errorf("%s = %v (%d), want a problem of status 503", what, err, d.Status)
	}
	for _, w := range words {
		if !strings.Contains(d.Detail, w) {
			t.Errorf("%s: %q does not say %q", what, d.Detail, w)
		}
	}
}

func TestAFailedDiskIsAnsweredAndLeftBehind(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		set  func(f *failingFS, err *error)
	}{
		{"full", syscall.ENOSPC, func(f *failingFS, err *error) { f.write.Store(err) }},
		{"read-only", syscall.EROFS, func(f *failingFS, err *error) { f.write.Store(err) }},
		{"sync fails", syscall.EIO, func(f *failingFS, err *error) { f.sync.Store(err) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := failingDisk(vfs.NewCrashableMem())
			s := openForTest(t, "store", inMemory(f))
			ctx := t.Context()
			must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("before")}))
			claimed := claimOne(t, s.Jobs(), "w")
			c.set(f, &c.err)
			unavailableError(t, "Enqueue", s.Jobs().Enqueue(ctx, []queue.Job{newJob("lost")}), "the store failed", c.err.Error())
			_, err := s.Jobs().Get(ctx, at, newJob("lost").Ref)
			unavailableError(t, "Get of what was not acknowledged", err)
			_, err = s.Pods().Get(ctx, "p")
			unavailableError(t, "Get of a pod", err)
			_, err = s.Endpoints().Get(ctx, "e")
			unavailableError(t, "Get of an endpoint", err)
			if err := s.Recover(ctx); err == nil {
				t.Error("Recover while the disk fails must fail")
			}
			unavailableError(t, "Err", s.Err())

			c.set(f, nil)
			must(t, s.Recover(ctx))
			must(t, s.Err())
			must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("after")}))
			// Claims are not synced. If this one is lost, the job is queued again.
			if getJob(t, s.Jobs(), claimed.Ref).Status == queue.InQueue {
				claimed = claimOne(t, s.Jobs(), "w")
			}
			finish(t, s.Jobs(), &claimed, "1")
			r, err := s.Check(ctx)
			must(t, err)
			must(t, r.Err())
		})
	}
}

func TestRunRecoversTheStore(t *testing.T) {
	f := failingDisk(vfs.NewCrashableMem())
	s := openForTest(t, "store", inMemory(f))
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	back := make(chan struct{}, 8)
	go s.Jobs().Watch(ctx, func(evs []queue.Event) {
		for _, e := range evs {
			if e.Kind == queue.EventGap {
				back <- struct{}{}
			}
		}
	})
	<-back // the first one shows that the watch is registered
	eio := error(syscall.EIO)
	f.sync.Store(&eio)
	if err := s.Jobs().Enqueue(ctx, []queue.Job{newJob("a")}); err == nil {
		t.Fatal("Enqueue on a failing disk = nil")
	}
	f.sync.Store(nil)
	<-back
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("b")}))
	cancel()
	must(t, <-ran)
}

// Every nth operation of the disk fails once. No acknowledged change is lost, whichever
// operation it was, and the store recovers.
func TestAnyOneFailedWriteIsSurvived(t *testing.T) {
	for n := int64(1); n < 60; n++ {
		mem := vfs.NewCrashableMem()
		var left atomic.Int64
		left.Store(1 << 40)
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && left.Add(-1) == 0 {
				return syscall.EIO
			}
			return nil
		}))
		opts := inMemory(fs)
		opts.memTable = 64 << 10
		s := openForTest(t, "store", opts)
		left.Store(n)
		var acked []queue.Ref
		for i := range 60 {
			j := newJob("j" + string(rune('0'+i/10)) + string(rune('0'+i%10)))
			j.Input = append(j.Input, make([]byte, 4000)...)
			if err := s.Jobs().Enqueue(t.Context(), []queue.Job{j}); err != nil {
				unavailableError(t, "Enqueue", err)
				must(t, s.Recover(t.Context()))
				continue
			}
			acked = append(acked, j.Ref)
		}
		for _, ref := range acked {
			if _, err := s.Jobs().Get(t.Context(), at, ref); err != nil {
				t.Fatalf("operation %d failed: Get(%q) = %v, it was acknowledged", n, ref.ID, err)
			}
		}
	}
}

func TestNewWorkIsRefusedBeforeTheDiskIsFull(t *testing.T) {
	f := failingDisk(vfs.NewMem())
	opts := inMemory(f)
	opts.KeepFree = 100 << 20
	s := openForTest(t, "store", opts)
	ctx := t.Context()
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("a"), newJob("b")}))
	low := func(mib uint64) {
		f.free.Store(mib << 20)
		s.space.budget.Store(0) // as after several writes
	}
	must(t, s.Ready())
	f.free.Store(90 << 20) // another program fills the disk
	unavailableError(t, "Ready", s.Ready(), "disk space", "90 MiB")
	low(90)
	unavailableError(t, "Enqueue", s.Jobs().Enqueue(ctx, []queue.Job{newJob("c")}), "disk space", "90 MiB")
	j := claimOne(t, s.Jobs(), "w")
	finish(t, s.Jobs(), &j, "1") // existing work continues
	low(40)
	_, err := s.Jobs().Claim(ctx, at, []queue.Slot{{Endpoint: "echo", Worker: "w", N: 1, Until: at + 1000}}, nil)
	unavailableError(t, "Claim", err, "40 MiB")
	if _, err := s.Jobs().Expire(ctx, at+86_400_000, 100); err != nil {
		t.Errorf("Expire = %v: it makes room", err)
	}
	low(200)
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("d")}))
	must(t, s.Err())
	must(t, s.Ready())
}

func TestNearTheEndOfTheDiskThoseWhoKeepMostAreRefusedFirst(t *testing.T) {
	f := failingDisk(vfs.NewMem())
	opts := inMemory(f)
	opts.KeepFree = 100 << 20
	s := openForTest(t, "store", opts)
	free := func(kib uint64) {
		f.free.Store(kib << 10)
		s.space.budget.Store(0)
	}
	add := func(id, owner string, size int) error {
		j := newJob(id)
		j.Owner, j.Input = owner, make([]byte, size)
		return s.Jobs().Enqueue(t.Context(), []queue.Job{j})
	}
	full := func(what string, err error) {
		t.Helper()
		var e *budget.Error
		if !errors.As(err, &e) || e.Budget != budget.JobBytes || !e.Short || problem.KindOf(err) != problem.TooManyRequests {
			t.Errorf("%s = %v, want the budget of bytes while the disk is short", what, err)
		}
	}
	s.Limit(budget.NewSet(budget.Users{Limits: budget.Limits{JobBytes: 1 << 30}, Exempt: []string{"operator"}}))
	must(t, add("a", "rude", 1<<20))
	must(t, add("b", "rude", 1<<20))
	must(t, add("c", "operator", 1<<20))
	claim := func() queue.Job {
		jobs, err := s.Jobs().Claim(t.Context(), at+1, []queue.Slot{{Endpoint: "echo", Worker: "w", N: 2, Until: at + 30_000}}, nil)
		must(t, err)
		i := slices.IndexFunc(jobs, func(j queue.Job) bool { return j.Owner == "rude" })
		return jobs[i]
	}
	held := claim()
	free(101 << 10) // 1 MiB is left for new work, 51 MiB for results
	full("a job of who keeps 2 MiB", add("d", "rude", 10))
	full("a record of who keeps 2 MiB", s.Templates().Create(t.Context(), templates.Template{ID: "t", Owner: "rude"}))
	must(t, add("e", "polite", 1000))
	must(t, add("f", "operator", 1000))
	must(t, s.Ready())
	finish(t, s.Jobs(), &held, strings.Repeat("1", 1<<20))
	must(t, add("g", "other", 10))
	held = claim()
	free(51<<10 + 512)
	unavailableError(t, "a job of who keeps little", add("h", "polite", 10), "disk space")
	op := queue.Op{Ref: held.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: "w", Payload: make([]byte, 4000)}
	res := make([]queue.Result, 1)
	must(t, s.Jobs().Apply(t.Context(), at, []queue.Op{op}, res))
	full("a result of who keeps 3 MiB", res[0].Err)
	free(10 << 10) // purges and cancels make room
	_, _, err := s.Jobs().Purge(t.Context(), at, queue.PurgeQuery{Endpoint: "echo", UpTo: 1 << 60, Limit: 100})
	must(t, err)
	must(t, s.Jobs().Apply(t.Context(), at, []queue.Op{{Ref: held.Ref, Kind: queue.OpCancel}}, res))
	must(t, res[0].Err)
	free(300 << 10)
	must(t, add("i", "rude", 10))
}

// Every table is damaged one byte at a time. Damaged data is never returned.
func TestWhatRotsIsNeverServed(t *testing.T) {
	mem := rottingStore(t)
	found, flips := 0, 0
	for _, name := range tablesIn(t, mem, "store") {
		rotOneByOne(t, mem, name, func(at int) {
			flips++
			if servesWrong(t, mem, &found) {
				t.Errorf("%s with byte %d changed: something else than what was stored was served", name, at)
			}
		})
	}
	if flips == 0 || found == 0 {
		t.Errorf("%d bytes were changed, and %d times something could not be read", flips, found)
	}
	t.Logf("%d bytes changed, %d found", flips, found)
}

// rottingStore returns a store with three jobs in a table.
func rottingStore(t *testing.T) *vfs.MemFS {
	mem := vfs.NewMem()
	s := openForTest(t, "store", inMemory(mem))
	for _, id := range []string{"a", "b", "c"} {
		j := newJob(id)
		j.Input = append(j.Input, strings.Repeat(id, 2000)...)
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	}
	s = reopen(t, s) // writes a table
	must(t, s.Close())
	return mem
}

func compacted(t *testing.T, s *Store) {
	t.Helper()
	e, err := s.engine()
	must(t, err)
	must(t, e.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
}

func tablesIn(t *testing.T, fs vfs.FS, dir string) (tables []string) {
	t.Helper()
	names, err := fs.List(dir)
	must(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			tables = append(tables, fs.PathJoin(dir, name))
		}
	}
	return tables
}

// rotOneByOne calls fn with one byte of a file changed, for each byte in a long test, and
// otherwise for some bytes.
func rotOneByOne(t *testing.T, fs vfs.FS, name string, fn func(at int)) {
	rotSome(t, fs, name, 1<<30, fn)
}

// rotSome is rotOneByOne for at most that many bytes in a short test.
func rotSome(t *testing.T, fs vfs.FS, name string, most int, fn func(at int)) {
	whole := readFile(t, fs, name)
	step := max(37, len(whole)/most|1)
	if longTime() > 0 {
		step = max(1, len(whole)/(50*most))
	}
	for at := 0; at < len(whole); at += step {
		rotten := append([]byte{}, whole...)
		rotten[at] ^= 0x10
		writeFile(t, fs, name, rotten)
		fn(at)
	}
	writeFile(t, fs, name, whole)
}

// servesWrong opens a copy of the store and checks its answers.
func servesWrong(t *testing.T, mem *vfs.MemFS, found *int) bool {
	t.Helper()
	copied := vfs.NewMem()
	if _, err := vfs.Clone(mem, copied, "store", "store"); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), "store", inMemory(copied))
	if err != nil {
		*found++
		unavailableError(t, "Open", err)
		return false
	}
	defer s.Close()
	wrong := false
	for _, id := range []string{"a", "b", "c"} {
		j, err := s.Jobs().Get(t.Context(), queue.Instant(1_780_000_000_001), newJob(id).Ref)
		if err != nil {
			*found++
			unavailableError(t, "Get", err)
			continue
		}
		if j.Reason == queue.Damaged && j.Input == nil {
			*found++
			continue
		}
		want := string(newJob(id).Input) + strings.Repeat(id, 2000)
		wrong = wrong || string(j.Input) != want
	}
	return wrong
}

func readFile(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	must(t, err)
	b, err := io.ReadAll(f)
	must(t, errors.Join(err, f.Close()))
	return b
}

func writeFile(t testing.TB, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(bytes.Clone(b)) // a file system may modify the buffer
	must(t, errors.Join(err, f.Sync(), f.Close()))
}

// A backup may go to a disk that does not answer any more.
func TestAStoreRecoversWhateverABackupWaitsFor(t *testing.T) {
	broken, waits, goOn := atomic.Bool{}, make(chan bool), make(chan bool)
	var once sync.Once
	s := openForTest(t, "store", inMemory(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		write := op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileSync
		switch {
		case write && strings.HasPrefix(op.Path, "backup"):
			once.Do(func() { close(waits); <-goOn })
		case write && broken.Load():
			return syscall.EIO
		}
		return nil
	}))))
	ctx := t.Context()
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("before")}))
	ended := make(chan error, 1)
	go func() { ended <- s.Backup(ctx, "backup") }()
	<-waits
	broken.Store(true)
	if err := s.Jobs().Enqueue(ctx, []queue.Job{newJob("lost")}); err == nil {
		t.Error("a write that fails succeeds")
	}
	broken.Store(false)
	must(t, s.Recover(ctx))
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("after")}))
	close(goOn)
	if err := <-ended; err == nil {
		t.Error("a backup of a store that failed meanwhile has succeeded")
	}
	if _, err := s.opts.fs.Stat("backup"); err == nil {
		t.Error("there is a copy that is not whole")
	}
	must(t, s.Backup(ctx, "backup"))
}
