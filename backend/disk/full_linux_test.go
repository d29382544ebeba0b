package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless/queue"
)

// fillForEver uses up the inodes and the bytes of a file system, and whatever becomes free of them,
// until stop is called. full is closed when there are none left.
func fillForEver(t *testing.T, dir string) (full chan struct{}, stop func()) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	bytes, err := os.Create(filepath.Join(dir, "bytes"))
	must(t, err)
	full = make(chan struct{})
	end := make(chan struct{})
	var eaters, ready sync.WaitGroup
	ready.Add(2)
	eat := func(bite func(i int) error) {
		first := true
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
			}
			if errors.Is(bite(i), syscall.ENOSPC) && first {
				first = false
				ready.Done()
			}
		}
	}
	part := make([]byte, 64<<10)
	eaters.Go(func() { eat(func(int) error { _, err := bytes.Write(part); return err }) })
	eaters.Go(func() {
		eat(func(i int) error {
			f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
			if err == nil {
				_ = f.Close()
			}
			return err
		})
	})
	go func() { ready.Wait(); close(full) }()
	return full, func() {
		close(end)
		eaters.Wait()
		must(t, bytes.Close())
		must(t, os.RemoveAll(dir))
	}
}

// What a pod gets of the room that becomes free is lost to the store, and everything can be deleted
// all the same.
func TestThingsAreDeletedWhileSomebodyFillsTheDiskWithoutAPause(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=96m,nr_inodes=3000"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	opts := &Options{Ballast: 8 << 20, KeepFree: 16 << 20, memTable: 4 << 20}
	s := openForTest(t, filepath.Join(dir, "store"), opts)
	t.Cleanup(func() { must(t, s.Close()) }) // before the file system goes
	runForTest(t, s)
	ctx := t.Context()
	const n = 200
	var refs []queue.Ref
	for i := range n {
		j := newJob(fmt.Sprint("j", i))
		j.Input = make([]byte, 10_000)
		must(t, s.Jobs().Enqueue(ctx, []queue.Job{j}))
		must(t, s.Pods().Create(ctx, &pods.Pod{ID: fmt.Sprint("p", i), Name: "a pod"}))
		refs = append(refs, j.Ref)
	}
	full, stop := fillForEver(t, filepath.Join(dir, "others"))
	<-full
	for i := range n {
		must(t, s.Pods().Delete(ctx, fmt.Sprint("p", i), nil))
		must(t, s.Jobs().Apply(ctx, at, []queue.Op{{Ref: refs[i], Kind: queue.OpCancel}}, make([]queue.Result, 1)))
	}
	for i := range n / 2 {
		must(t, s.Jobs().Apply(ctx, at, []queue.Op{{Ref: refs[i], Kind: queue.OpDelete}}, make([]queue.Result, 1)))
	}
	e, err := s.engine()
	must(t, err)
	compacted := make(chan error, 1)
	go func() { compacted <- e.db.Compact(ctx, []byte{0}, []byte{0xff}, false) }() // makes tables, which take inodes
	eventually(t, "a job on a full disk is refused", func() bool {
		err := s.Jobs().Enqueue(ctx, []queue.Job{newJob(fmt.Sprint("new", time.Now().UnixNano()))})
		return err != nil && strings.Contains(err.Error(), "disk space")
	})
	getJob(t, s.Jobs(), refs[n-1])
	must(t, s.Err())
	stop()
	must(t, <-compacted)
	eventually(t, "new work is taken", func() bool { return s.Jobs().Enqueue(ctx, []queue.Job{newJob("after")}) == nil })
	eventually(t, "the reserve is whole", func() bool { return s.space.reserve.restore() })
	s = reopen(t, s)
	for i, ref := range refs {
		if _, err := s.Jobs().Get(ctx, at, ref); (err == nil) != (i >= n/2) {
			t.Errorf("Get(%q) = %v after an opening", ref.ID, err)
		}
	}
}
