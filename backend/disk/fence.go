package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/errno"
)

// A fence is the file system of one opened database. It reports the first write that fails,
// and then closes. A closed fence accepts all operations, but none of them changes the disk.
// The reason: the database ends its process on some failed writes, and that cannot be caught.
// Behind a closed fence it sees no more failures, can be closed, and cannot change the files
// of the next database. No caller sees the pretended success, because the fence reports the
// failure first.
type fence struct {
	vfs.FS
	dir    string // failures outside of it, as in a backup, do not close the fence
	failed func(what, name string, err error)

	changing sync.RWMutex // read-locked during each change
	closed   atomic.Bool
	void     *vfs.MemFS    // receives the writes of a closed fence
	hidden   []string      // names of files that the database does not see
	short    func() bool   // whether the disk is nearly full
	room     *space        // what to do without room on the disk; nil: fail
	patient  atomic.Bool   // what finds no room waits for it
	syncs    chan struct{} // signalled when a log of commits begins to be synced: all of it is written
}

func newFence(fs vfs.FS, dir string, failed func(what, name string, err error)) *fence {
	return &fence{FS: fs, dir: dir, failed: failed, void: vfs.NewMem(), short: func() bool { return false }, syncs: make(chan struct{}, 1)}
}

// close waits for the changes under way. After it, nothing changes the disk.
func (f *fence) close() {
	f.closed.Store(true)
	f.changing.Lock()
	defer f.changing.Unlock()
}

// change runs fn, which changes something on disk. done is false if the change did not happen
// and the caller must not see a failure.
//
// If there is no room for it, fn runs again after each part of the reserve that is given up, and
// then it waits until there is room: a database that is closed for that could not be read, and
// nothing could be deleted from it. A failed sync is not tried again, because it is unknown what
// is on disk, and a second sync would not show it.
func (f *fence) change(what, name string, fn func() error) (done bool, err error) {
	var w *waitError
	if done, err = f.try(what, name, fn); !errors.As(err, &w) {
		return done, err
	}
	_, log := isLog(f.PathBase(name))
	defer f.room.waits(log, w.cause)()
	for pause := minWait; errors.As(err, &w); pause = min(2*pause, maxWait) {
		f.room.pause(pause)
		done, err = f.try(what, name, fn)
	}
	return done, err
}

// The pauses of what waits for room.
const (
	minWait = 20 * time.Millisecond
	maxWait = time.Second
)

// A waitError says that a change has found no room and may wait for it.
type waitError struct{ cause error }

func (w *waitError) Error() string { return w.cause.Error() }

func (f *fence) try(what, name string, fn func() error) (done bool, err error) {
	if !within(f.FS, f.dir, name) { // who waits there, as a backup to another disk, must not hold close
		return true, fn()
	}
	f.changing.RLock()
	defer f.changing.RUnlock()
	if f.closed.Load() {
		return false, nil
	}
	if err = fn(); err == nil {
		return true, nil
	}
	if what != whatSync && noRoom(err) && f.room != nil {
		for errno.NoRoom(err) && f.room.reserve.give() { // it has no descriptors
			err = fn()
		}
		if err == nil {
			return true, nil
		}
		if noRoom(err) && f.patient.Load() && f.room.s.running.Load() > 0 {
			return false, &waitError{fmt.Errorf("%s %s: %w", what, f.PathBase(name), err)}
		}
	}
	f.failed(what, f.PathBase(name), err)
	f.closed.Store(true)
	return false, nil
}

const whatSync = "sync"

// noRoom reports whether an operation failed because something is used up that becomes free again:
// the bytes or inodes of the file system, the quota of the user, or descriptors.
func noRoom(err error) bool {
	return errno.NoRoom(err) || errno.NoDescriptors(err)
}

// within reports whether name is dir or below it.
func within(fs vfs.FS, dir, name string) bool {
	for {
		if name == dir {
			return true
		}
		up := fs.PathDir(name)
		if up == name {
			return false
		}
		name = up
	}
}

func (f *fence) file(what, name string, fn func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	done, err := f.change(what, name, func() (err error) {
		file, err = fn()
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !done:
		if err := f.void.MkdirAll(f.PathDir(name), 0o700); err != nil {
			return nil, err
		}
		return f.void.Create(name, vfs.WriteCategoryUnspecified)
	}
	return &fencedFile{File: file, fence: f, name: name}, nil
}

// Create syncs the directory after creating a manifest. The database moves its marker to the
// manifest without that, and a file system may then keep the marker and lose the manifest.
func (f *fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.create(name, c)
	f.writesAhead(file)
	return file, err
}

func (f *fence) create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file("create", name, func() (vfs.File, error) {
		file, err := f.FS.Create(name, c)
		if errno.NoRoom(err) && f.room != nil && f.room.reserve.take(name) == nil {
			file, err = f.FS.OpenReadWrite(name, c)
		}
		if err != nil || !strings.HasPrefix(f.PathBase(name), manifestPrefix) {
			return file, err
		}
		if err := syncDir(f.FS, f.PathDir(name)); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return file, nil
	})
}

func (f *fence) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file("open", name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

// ReuseForWrite is used for logs.
func (f *fence) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.file("reuse", to, func() (vfs.File, error) {
		return f.FS.ReuseForWrite(from, to, c)
	})
	f.writesAhead(file)
	return file, err
}

func (f *fence) OpenDir(name string) (vfs.File, error) {
	d, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &fencedFile{File: d, fence: f, name: name}, nil
}

// Open also finds files written to the closed fence.
func (f *fence) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if f.closed.Load() {
		if file, err := f.void.Open(name); err == nil {
			return file, nil
		}
	}
	file, err := f.FS.Open(name, opts...)
	if err != nil || !isTable(f.PathBase(name)) {
		return file, err
	}
	return openTable(f.PathBase(name), file)
}

// isTable reports whether a file is a table, including one that is about to be ingested.
func isTable(base string) bool {
	return strings.HasSuffix(base, ".sst") || strings.HasPrefix(base, stagePrefix)
}

// Stat also finds files written to the closed fence.
func (f *fence) Stat(name string) (vfs.FileInfo, error) {
	if f.closed.Load() {
		if info, err := f.void.Stat(name); err == nil {
			return info, nil
		}
	}
	return f.FS.Stat(name)
}

// List leaves out hidden files.
func (f *fence) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(f.hidden, name) }), err
}

func (f *fence) Link(from, to string) error {
	_, err := f.change("link", to, func() error { return f.FS.Link(from, to) })
	return err
}

func (f *fence) Rename(from, to string) error {
	_, err := f.change("rename", to, func() error { return f.FS.Rename(from, to) })
	return err
}

func (f *fence) MkdirAll(name string, perm os.FileMode) error {
	_, err := f.change("make", name, func() error { return f.FS.MkdirAll(name, perm) })
	return err
}

// Remove returns a failure and does not close the fence: a file that stays does no harm.
func (f *fence) Remove(name string) error {
	f.changing.RLock()
	defer f.changing.RUnlock()
	if f.closed.Load() {
		return nil
	}
	return f.FS.Remove(name)
}

// RemoveAll does not close the fence on a failure either.
func (f *fence) RemoveAll(name string) error {
	f.changing.RLock()
	defer f.changing.RUnlock()
	if f.closed.Load() {
		return nil
	}
	return f.FS.RemoveAll(name)
}

// Lock does nothing: the Store keeps the lock while databases are closed and opened.
func (f *fence) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (f *fence) Unwrap() vfs.FS { return f.FS }

type fencedFile struct {
	vfs.File
	fence *fence
	name  string

	// Of a log, written by one goroutine.
	size    int64 // of what was written
	written int64 // size of the file
	ahead   bool  // zeros are written ahead
}

// isCommitLog reports whether a file is a log of commits. Logs that are copied, as for a backup, are
// none: they are not written to any more.
func (f *fence) isCommitLog(name string) bool {
	number, ok := isLog(f.PathBase(name))
	return ok && number > 0 && f.PathDir(name) == f.dir
}

func (f *fence) writesAhead(file vfs.File) {
	if t, ok := file.(*fencedFile); ok && f.isCommitLog(t.name) {
		t.startAhead()
	}
}

func (f *fencedFile) Write(p []byte) (n int, err error) {
	done, err := f.fence.change("write", f.name, func() error {
		f.writeAhead(len(p) - n)
		k, err := f.File.Write(p[n:]) // a part may be written when there is no room for the rest
		n += k
		f.size += int64(k)
		return err
	})
	if !done {
		n = len(p)
	}
	return n, err
}

func (f *fencedFile) WriteAt(p []byte, at int64) (n int, err error) {
	done, err := f.fence.change("write", f.name, func() (err error) {
		n, err = f.File.WriteAt(p, at)
		return err
	})
	if !done {
		n = len(p)
	}
	return n, err
}

// Preallocate is a hint that some file systems do not support. A log is given the space of a whole
// table in memory, and is kept to be used again: of a disk that is nearly full that would be too much.
func (f *fencedFile) Preallocate(at, n int64) error {
	f.fence.changing.RLock()
	defer f.fence.changing.RUnlock()
	if f.fence.closed.Load() || f.fence.short() {
		return nil
	}
	return f.File.Preallocate(at, n)
}

// syncBegins is called before a sync. A log has been written as far as it will be synced.
func (f *fencedFile) syncBegins() {
	if f.fence.isCommitLog(f.name) {
		signal(f.fence.syncs)
	}
}

func (f *fencedFile) Sync() error {
	f.syncBegins()
	_, err := f.fence.change(whatSync, f.name, f.File.Sync)
	return err
}

func (f *fencedFile) SyncData() error {
	f.syncBegins()
	_, err := f.fence.change(whatSync, f.name, f.File.SyncData)
	return err
}

func (f *fencedFile) SyncTo(n int64) (full bool, err error) {
	f.syncBegins()
	done, err := f.fence.change(whatSync, f.name, func() (err error) {
		full, err = f.File.SyncTo(n)
		return err
	})
	return full || !done, err
}

// Close does not close the fence on a failure, because all data has been written before. It
// returns the error unless the fence is already closed.
func (f *fencedFile) Close() error {
	err := f.File.Close()
	if f.fence.closed.Load() {
		return nil
	}
	return err
}
