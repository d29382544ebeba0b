package disk

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A fence is the file system as one opened database sees it. It reports the first write
// that fails and closes: from then on nothing that the database does reaches the disk, and
// all of it succeeds. For the database ends its process on some failed writes, in ways that
// cannot be caught; like this it can be closed and forgotten, and cannot touch the files of
// the one that is opened after it. Nobody is told of its successes: the report comes first.
type fence struct {
	vfs.FS
	dir    string // failures elsewhere, in the directory of a backup, are not of the store
	failed func(what, name string, err error)

	changing sync.RWMutex // read by changes while they last
	closed   atomic.Bool
	void     *vfs.MemFS        // what is written to a closed fence
	hidden   []string          // names of files that the database does not see
	restore  func(name string) // called with a table that is damaged
}

func newFence(fs vfs.FS, dir string, failed func(what, name string, err error)) *fence {
	return &fence{FS: fs, dir: dir, failed: failed, void: vfs.NewMem(), restore: func(string) {}}
}

// close waits for the changes under way, which are the last ones.
func (f *fence) close() {
	f.closed.Store(true)
	f.changing.Lock()
	defer f.changing.Unlock()
}

// change runs fn, which changes something on disk. done is false when it was not done, and
// not to be seen as a failure.
func (f *fence) change(what, name string, fn func() error) (done bool, err error) {
	f.changing.RLock()
	defer f.changing.RUnlock()
	if f.closed.Load() {
		return false, nil
	}
	err = fn()
	if err == nil || !within(f.FS, f.dir, name) {
		return true, err
	}
	f.failed(what, f.PathBase(name), err)
	f.closed.Store(true)
	return false, nil
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

// Create makes the name of a manifest durable at once: the database moves its marker to a
// manifest without that, and a file system may keep the marker and lose the manifest. A table
// gets a parity file, and a log a mirror.
func (f *fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.create(name, c)
	if t, ok := file.(*fencedFile); ok {
		t.protect()
	}
	return file, err
}

func (f *fence) create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file("create", name, func() (vfs.File, error) {
		f.unprotect(name)
		file, err := f.FS.Create(name, c)
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

// ReuseForWrite is for logs: the mirror is a new one.
func (f *fence) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.file("reuse", to, func() (vfs.File, error) {
		f.unprotect(from)
		f.unprotect(to)
		return f.FS.ReuseForWrite(from, to, c)
	})
	if t, ok := file.(*fencedFile); ok {
		t.protect()
	}
	return file, err
}

func (f *fence) OpenDir(name string) (vfs.File, error) {
	d, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &fencedFile{File: d, fence: f, name: name}, nil
}

// Open finds what was written to the closed fence, too.
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
	return f.openTable(name, file)
}

// Stat is like Open.
func (f *fence) Stat(name string) (vfs.FileInfo, error) {
	if f.closed.Load() {
		if info, err := f.void.Stat(name); err == nil {
			return info, nil
		}
	}
	return f.FS.Stat(name)
}

// List leaves out what is hidden.
func (f *fence) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(f.hidden, name) }), err
}

// Link links the parity file of a table, too.
func (f *fence) Link(from, to string) error {
	_, err := f.change("link", to, func() error {
		f.unprotect(to)
		if err := f.FS.Link(from, to); err != nil {
			return err
		}
		if isTable(f.PathBase(to)) {
			_ = f.FS.Link(from+paritySuffix, to+paritySuffix) // without it the table is as good
		}
		return nil
	})
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

// Remove does not report its failure: what is left behind does no harm.
func (f *fence) Remove(name string) error {
	f.changing.RLock()
	defer f.changing.RUnlock()
	if f.closed.Load() {
		return nil
	}
	err := f.FS.Remove(name)
	if err == nil {
		f.unprotect(name)
	}
	return err
}

// RemoveAll is like Remove.
func (f *fence) RemoveAll(name string) error {
	f.changing.RLock()
	defer f.changing.RUnlock()
	if f.closed.Load() {
		return nil
	}
	return f.FS.RemoveAll(name)
}

// Lock has nothing to do: the Store holds the lock, from one database to the next.
func (f *fence) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (f *fence) Unwrap() vfs.FS { return f.FS }

// A fencedFile is an open file behind a fence.
type fencedFile struct {
	vfs.File
	fence  *fence
	name   string
	parity *parityWriter // of a table
	mirror vfs.File      // of a log
	copied []byte        // what is written to the mirror, its room used again
}

// protection is what the name of the file ends in from which a file can be restored; empty
// for one that has none.
func protection(base string) (suffix string) {
	if isTable(base) {
		return paritySuffix
	}
	if _, ok := isLog(base); ok {
		return mirrorSuffix
	}
	return ""
}

// unprotect removes what a file could be restored from. It comes before a file is made: the
// parity of another table that had the number would make that table of it.
func (f *fence) unprotect(name string) {
	if suffix := protection(f.PathBase(name)); suffix != "" {
		_ = f.FS.Remove(name + suffix) // perhaps there is none
	}
}

// protect begins what the file can be restored from.
func (f *fencedFile) protect() {
	switch protection(f.fence.PathBase(f.name)) {
	case paritySuffix:
		f.parity = &parityWriter{}
	case mirrorSuffix:
		// Without a mirror, on a disk that is full perhaps, the log is as good.
		f.mirror, _ = f.fence.FS.Create(f.name+mirrorSuffix, vfs.WriteCategoryUnspecified)
	}
}

func (f *fencedFile) Write(p []byte) (n int, err error) {
	if f.parity != nil {
		f.parity.write(p) // before a file system that may change p
	}
	done, err := f.fence.change("write", f.name, func() (err error) {
		if f.mirror != nil {
			f.copied = append(f.copied[:0], p...) // Write may change p
		}
		if n, err = f.File.Write(p); err == nil && f.mirror != nil {
			f.writeMirror(f.copied)
		}
		return err
	})
	if !done {
		n = len(p)
	}
	return n, err
}

// writeMirror gives the mirror up when it cannot be written: a part of it would be taken for
// the whole.
func (f *fencedFile) writeMirror(p []byte) {
	if _, err := f.mirror.Write(p); err != nil {
		_ = f.mirror.Close()
		_ = f.fence.FS.Remove(f.name + mirrorSuffix)
		f.mirror = nil
	}
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

// Preallocate is a hint that not every file system takes.
func (f *fencedFile) Preallocate(at, n int64) error {
	f.fence.changing.RLock()
	defer f.fence.changing.RUnlock()
	if f.fence.closed.Load() {
		return nil
	}
	return f.File.Preallocate(at, n)
}

func (f *fencedFile) Sync() error {
	_, err := f.fence.change("sync", f.name, f.File.Sync)
	return err
}

func (f *fencedFile) SyncData() error {
	_, err := f.fence.change("sync", f.name, f.File.SyncData)
	return err
}

func (f *fencedFile) SyncTo(n int64) (full bool, err error) {
	done, err := f.fence.change("sync", f.name, func() (err error) {
		full, err = f.File.SyncTo(n)
		return err
	})
	return full || !done, err
}

// Close of a file whose writing is over has nothing more to lose.
func (f *fencedFile) Close() error {
	err := f.File.Close()
	if f.parity != nil && err == nil {
		f.saveParity()
	}
	if f.mirror != nil {
		_ = f.mirror.Close()
	}
	if f.fence.closed.Load() {
		return nil
	}
	return err
}

// saveParity does its best: a table without parity is as good.
func (f *fencedFile) saveParity() {
	f.fence.changing.RLock()
	defer f.fence.changing.RUnlock()
	if !f.fence.closed.Load() && f.parity.save(f.fence.FS, f.name) != nil {
		_ = f.fence.FS.Remove(f.name + paritySuffix)
	}
}
