package disk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(suite.Within(20 * time.Second)); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it does not come about: %s", what)
		}
	}
}

// runForTest calls Run until the test ends.
func runForTest(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var ran sync.WaitGroup
	ran.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); ran.Wait() })
	eventually(t, "the store runs", func() bool { return s.running.Load() > 0 })
}

func TestNewWorkIsRefusedBeforeTheInodesAreUsedUp(t *testing.T) {
	f := failingDisk(vfs.NewMem())
	opts := inMemory(f)
	opts.inodes = f.inodes
	s := openForTest(t, "store", opts)
	ctx := t.Context()
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("a"), newJob("b")}))
	left := func(n int64) {
		f.files.Store(n)
		s.space.budget.Store(0) // as after several writes
	}
	must(t, s.Ready())
	left(keepInodes - 1)
	unavailableError(t, "Ready", s.Ready(), "no inodes left", "999 are free")
	unavailableError(t, "Enqueue", s.Jobs().Enqueue(ctx, []queue.Job{newJob("c")}), "no inodes left")
	if w := s.Warning(); !strings.Contains(w, "few inodes") {
		t.Errorf("Warning = %q", w)
	}
	j := claimOne(t, s.Jobs(), "w")
	finish(t, s.Jobs(), &j, "1") // existing work continues
	left(keepInodes/2 - 1)
	_, err := s.Jobs().Claim(ctx, at, []queue.Slot{{Endpoint: "echo", Worker: "w", N: 1, Until: at + 1000}}, nil)
	unavailableError(t, "Claim", err, "no inodes left")
	left(0)
	if _, err := s.Jobs().Expire(ctx, at+86_400_000, 100); err != nil {
		t.Errorf("Expire = %v: it makes room", err)
	}
	left(90_000)
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("d")}))
	must(t, s.Ready())
}

// Other programs fill the disk without the store writing anything.
func TestAMeasurementOfTheDiskIsNeverOld(t *testing.T) {
	f := failingDisk(vfs.NewMem())
	opts := inMemory(f)
	opts.KeepFree = 100 << 20
	s := openForTest(t, "store", opts)
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")}))
	f.free.Store(1 << 20)
	eventually(t, "new work is refused", func() bool {
		return s.Jobs().Enqueue(t.Context(), []queue.Job{newJob(fmt.Sprint("j", time.Now().UnixNano()))}) != nil
	})
}

func TestWhatFindsNoRoomWaitsForItAndReadsGoOn(t *testing.T) {
	f := failingDisk(vfs.NewCrashableMem())
	s := openForTest(t, "store", inMemory(f))
	runForTest(t, s)
	ctx := t.Context()
	must(t, s.Jobs().Enqueue(ctx, []queue.Job{newJob("before")}))
	must(t, s.Pods().Create(ctx, &pods.Pod{ID: "p"}))
	full := error(syscall.ENOSPC)
	f.write.Store(&full)
	ended := make(chan error, 1)
	go func() { ended <- s.Jobs().Enqueue(ctx, []queue.Job{newJob("waits")}) }()
	eventually(t, "the job waits for room", func() bool { return s.space.waitingLogs.Load() > 0 })
	for name, call := range map[string]func() error{
		"a job":   func() error { _, err := s.Jobs().Get(ctx, at, newJob("before").Ref); return err },
		"a pod":   func() error { _, err := s.Pods().Get(ctx, "p"); return err },
		"the log": func() error { return s.Err() },
	} {
		if err := call(); err != nil {
			t.Errorf("reading %s without room on the disk = %v", name, err)
		}
	}
	if _, err := s.Jobs().Get(ctx, at, newJob("waits").Ref); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("a job that is not durable = %v, want that it is not there", err)
	}
	unavailableError(t, "another job", s.Jobs().Enqueue(ctx, []queue.Job{newJob("refused")}), "disk space")
	unavailableError(t, "Ready", s.Ready(), "disk space", "no space left")
	f.write.Store(nil)
	must(t, <-ended)
	eventually(t, "the store is ready", func() bool { return s.Ready() == nil })
	for _, id := range []string{"before", "waits"} {
		getJob(t, s.Jobs(), newJob(id).Ref)
	}
	must(t, s.Err())
}

// A store that is closed while it waits for room ends, and what was acknowledged is there.
func TestAStoreThatWaitsForRoomCanBeClosed(t *testing.T) {
	mem := vfs.NewCrashableMem()
	f := failingDisk(mem)
	s, err := Open(t.Context(), "store", inMemory(f))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")}))
	eventually(t, "the store runs", func() bool { return s.running.Load() > 0 })
	full := error(syscall.EDQUOT)
	f.write.Store(&full)
	ended := make(chan error, 1)
	go func() { ended <- s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("b")}) }()
	eventually(t, "the job waits for room", func() bool { return s.space.waitingLogs.Load() > 0 })
	cancel()
	must(t, s.Close())
	must(t, <-ran)
	unavailableError(t, "a job that waited", <-ended)
	f.write.Store(nil)
	s = openForTest(t, "store", inMemory(f))
	getJob(t, s.Jobs(), newJob("a").Ref)
}

// A life of a store, with every kind of file that it has. Each step is repeated while it is refused
// for lack of room. It returns what was acknowledged.
func lifeWithoutRoom(t *testing.T, s *Store, what string) (jobs []queue.Ref) {
	t.Helper()
	ctx := t.Context()
	step := func(name string, call func() error) {
		t.Helper()
		eventually(t, what+": "+name, func() bool {
			err := call()
			if err != nil {
				unavailableError(t, what+": "+name, err)
			}
			if e := s.Err(); e != nil {
				t.Fatalf("%s: %s: the store has failed: %v", what, name, e)
			}
			return err == nil
		})
	}
	for i := range 24 {
		j := newJob(fmt.Sprint("j", i))
		j.Input = make([]byte, 4000)
		if i%6 == 5 {
			j.Input = make([]byte, bigPayload+1) // a table of its own
		}
		step("submit", func() error { return s.Jobs().Enqueue(ctx, []queue.Job{j}) })
		jobs = append(jobs, j.Ref)
	}
	step("create a pod", func() error { return s.Pods().Create(ctx, &pods.Pod{ID: "p"}) })
	step("delete a pod", func() error { return s.Pods().Delete(ctx, "p", nil) })
	step("cancel", func() error {
		return s.Jobs().Apply(ctx, at, []queue.Op{{Ref: jobs[0], Kind: queue.OpCancel}}, make([]queue.Result, 1))
	})
	step("compact", func() error {
		e, err := s.engine()
		if err != nil {
			return err
		}
		return e.db.Compact(ctx, []byte{0}, []byte{0xff}, false)
	})
	return jobs
}

// From each operation on, several find no room. Nothing that was acknowledged is lost, the store
// never fails, and it goes on by itself.
func TestNoOperationWithoutRoomMakesTheStoreFail(t *testing.T) {
	step := int64(9)
	if longTime() > 0 {
		step = 1
	}
	kinds := map[errorfs.OpKind]int{}
	var mu sync.Mutex
	total := int64(1)
	for k := int64(1); k <= total; k += step {
		var n, failed atomic.Int64
		n.Store(-1 << 40)
		errs := []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE}
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpRemove, errorfs.OpFileClose, errorfs.OpFilePreallocate:
				return nil
			}
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
				return nil
			}
			if i := n.Add(1); i < k || i >= k+4 {
				return nil
			}
			failed.Add(1)
			mu.Lock()
			defer mu.Unlock()
			kinds[op.Kind]++
			return errs[k%3]
		}))
		opts := inMemory(fs)
		opts.memTable = 64 << 10
		s := openForTest(t, "store", opts)
		runForTest(t, s)
		n.Store(0)
		jobs := lifeWithoutRoom(t, s, fmt.Sprintf("operations %d to %d without room (%v)", k, k+3, errs[k%3]))
		total = max(total, n.Load()-4)
		n.Store(-1 << 40)
		s = reopen(t, s)
		for _, ref := range jobs {
			getJob(t, s.Jobs(), ref)
		}
		r, err := s.Check(t.Context())
		must(t, err)
		must(t, r.Err())
		if failed.Load() == 0 && k < total/2 {
			t.Errorf("no operation failed from %d on", k)
		}
	}
	t.Logf("%d operations; failures by kind: %v", total, kinds)
	if kinds[errorfs.OpCreate] == 0 || kinds[errorfs.OpFileWrite] == 0 {
		t.Errorf("not all kinds of operations have failed: %v", kinds)
	}
}

func TestTheReserveIsGivenUpForWhatFindsNoRoom(t *testing.T) {
	f := failingDisk(vfs.NewMem())
	opts := inMemory(f)
	opts.Ballast, opts.KeepFree, opts.inodes = 3<<20, 10<<20, f.inodes
	s := openForTest(t, "store", opts)
	count := func() (bytes, files int) {
		return len(s.space.reserve.files(bytePrefix)), len(s.space.reserve.files(inodePrefix))
	}
	if b, n := count(); b != byteFiles || n != inodeFiles {
		t.Fatalf("the reserve has %d files of bytes and %d of inodes, want %d and %d", b, n, byteFiles, inodeFiles)
	}
	size := int64(0)
	for _, path := range s.space.reserve.files(bytePrefix) {
		info, err := f.Stat(path)
		must(t, err)
		size += info.Size()
	}
	if size != 3<<20 {
		t.Errorf("the reserve has %d bytes, want %d", size, 3<<20)
	}
	f.free.Store(0)
	f.files.Store(0)
	must(t, s.space.reserve.take("store/new"))
	if !s.space.reserve.give() {
		t.Error("no part of the reserve was given up")
	}
	if b, n := count(); b != byteFiles-1 || n != inodeFiles-1 {
		t.Errorf("the reserve has %d files of bytes and %d of inodes, want one less of each", b, n)
	}
	if info, err := f.Stat("store/new"); err != nil || info.Size() != 0 {
		t.Errorf("a file of the reserve = %v, %v, want an empty one with the new name", info, err)
	}
	if s.space.reserve.restore() {
		t.Error("the reserve was made again without room")
	}
	f.free.Store(1 << 40)
	f.files.Store(90_000)
	runForTest(t, s)
	eventually(t, "the reserve is whole", func() bool { b, n := count(); return b == byteFiles && n == inodeFiles })
}

// The first start of this version may be on a full disk.
func TestTheBallastOfAnEarlierVersionIsGivenUpForWhatFindsNoRoom(t *testing.T) {
	mem := vfs.NewMem()
	must(t, openForTest(t, "store", inMemory(mem)).Close())
	writeFile(t, mem, "store/"+oldBallast, make([]byte, 1<<20))
	full := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpFileWrite {
			if _, err := mem.Stat("store/" + oldBallast); err == nil {
				return syscall.ENOSPC
			}
		}
		return nil
	}))
	s := openForTest(t, "store", inMemory(full))
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")}))
}

func TestTheReserveIsKeptWhereDescriptorsAreMissing(t *testing.T) {
	f := failingDisk(vfs.NewMem())
	opts := inMemory(f)
	opts.Ballast = 1 << 20
	s := openForTest(t, "store", opts)
	var err error = syscall.EMFILE
	f.write.Store(&err)
	unavailableError(t, "Enqueue", s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("a")}))
	if n := len(s.space.reserve.files(bytePrefix)); n != byteFiles {
		t.Errorf("%d files of the reserve are left, want all %d: they have no descriptors", n, byteFiles)
	}
}

// A flush that waits for room does not keep the store from being closed, or its log from being
// written.
func TestATableThatWaitsForRoomStopsNothing(t *testing.T) {
	var full atomic.Bool
	opts := inMemory(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpCreate && isTable(op.Path) {
			return syscall.ENOSPC
		}
		return nil
	})))
	opts.memTable = 64 << 10
	s := openForTest(t, "store", opts)
	runForTest(t, s)
	ctx := t.Context()
	must(t, s.Pods().Create(ctx, &pods.Pod{ID: "p"}))
	full.Store(true)
	var refs []queue.Ref
	eventually(t, "a table waits for room, and new work is refused", func() bool {
		j := newJob(fmt.Sprint("j", len(refs)))
		j.Input = make([]byte, 2000)
		err := s.Jobs().Enqueue(ctx, []queue.Job{j})
		if err == nil {
			refs = append(refs, j.Ref)
		}
		return err != nil
	})
	must(t, s.Pods().Delete(ctx, "p", nil))
	must(t, s.Jobs().Apply(ctx, at, []queue.Op{{Ref: refs[0], Kind: queue.OpCancel}}, make([]queue.Result, 1)))
	must(t, s.Close())
	full.Store(false)
	s = openForTest(t, "store", opts)
	for _, ref := range refs {
		getJob(t, s.Jobs(), ref)
	}
	if _, err := s.Pods().Get(ctx, "p"); !errors.Is(err, pods.ErrNotFound) {
		t.Errorf("a deleted pod = %v after an opening", err)
	}
}

func TestABackupThatWaitsForRoomDoesNotKeepTheStoreOpen(t *testing.T) {
	var full atomic.Bool
	s := openForTest(t, "store", inMemory(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite && strings.HasPrefix(op.Path, "store/") {
			return syscall.ENOSPC
		}
		return nil
	}))))
	runForTest(t, s)
	full.Store(true)
	ended := make(chan error, 1)
	go func() { ended <- s.Backup(t.Context(), "backup") }()
	eventually(t, "the backup waits for room", func() bool { return s.space.waiting.Load() > 0 })
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		must(t, err)
	case <-time.After(suite.Within(20 * time.Second)):
		full.Store(false)
		t.Fatal("the store is not closed while a backup waits for room")
	}
	if err := <-ended; err == nil {
		t.Error("a backup that found no room has succeeded")
	}
}

func TestWhatEndsWorkersOrVolumesNeedsNoRoom(t *testing.T) {
	f := failingDisk(vfs.NewMem())
	opts := inMemory(f)
	opts.inodes = f.inodes
	s := openForTest(t, "store", opts)
	ctx := t.Context()
	e := &endpoints.Endpoint{ID: "e", Workers: endpoints.WorkerLimits{Max: 3}}
	must(t, s.Endpoints().Create(ctx, e))
	must(t, s.Volumes().Create(ctx, volumes.Volume{ID: "v"}))
	f.free.Store(0)
	f.files.Store(0)
	s.space.budget.Store(0)
	change := func(fn func(*endpoints.Endpoint)) error {
		_, err := s.Endpoints().Update(ctx, "e", func(e *endpoints.Endpoint) error { fn(e); return nil })
		return err
	}
	for name, err := range map[string]error{
		"a cordon":      change(func(e *endpoints.Endpoint) { e.Cordon = endpoints.Drained }),
		"fewer workers": change(func(e *endpoints.Endpoint) { e.Workers.Max = 0 }),
		"no change":     change(func(*endpoints.Endpoint) {}),
		"a volume that is gone": func() error {
			_, err := s.Volumes().Update(ctx, "v", func(v *volumes.Volume) error { v.Deleted = true; return nil })
			return err
		}(),
	} {
		if err != nil {
			t.Errorf("%s without room on the disk = %v", name, err)
		}
	}
	if err := s.Endpoints().Create(ctx, e); !errors.Is(err, endpoints.ErrExists) {
		t.Errorf("an endpoint that exists = %v, want that it exists: a program declares its endpoints at every start", err)
	}
	unavailableError(t, "another name", change(func(e *endpoints.Endpoint) { e.Name = "x" }), "disk space")
	unavailableError(t, "more workers", change(func(e *endpoints.Endpoint) { e.Workers.Max = 5 }), "disk space")
}

// Who ends a pod makes room.
func TestAPodIsEndedAndDeletedWithoutRoom(t *testing.T) {
	f := failingDisk(vfs.NewMem())
	opts := inMemory(f)
	opts.inodes = f.inodes
	s := openForTest(t, "store", opts)
	ctx := t.Context()
	must(t, s.Pods().Create(ctx, &pods.Pod{ID: "p"}))
	f.free.Store(0)
	f.files.Store(0)
	s.space.budget.Store(0)
	_, err := s.Pods().Update(ctx, "p", func(p *pods.Pod) error { p.Want.Power = pods.PowerOn; p.Name = "x"; return nil })
	unavailableError(t, "another name for a pod", err, "disk space")
	_, err = s.Pods().Update(ctx, "p", func(p *pods.Pod) error { p.Want.Power = pods.PowerTerminated; return nil })
	must(t, err)
	must(t, s.Billing().Record(ctx, []pods.Usage{{Kind: "pod", ID: "p"}}))
	must(t, s.Pods().Delete(ctx, "p", nil))
}
