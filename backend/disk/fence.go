package disk

import (
	"errors"
	"io"
	"os"
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
	void     *vfs.MemFS // what is written to a closed fence
}

func newFence(fs vfs.FS, dir string, failed func(what, name string, err error)) *fence {
	return &fence{FS: fs, dir: dir, failed: failed, void: vfs.NewMem()}
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
	return &fencedFile{file, f, name}, nil
}

// Create makes the name of a manifest durable at once: the database moves its marker to a
// manifest without that, and a file system may keep the marker and lose the manifest.
func (f *fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file("create", name, func() (vfs.File, error) {
		file, err := f.FS.Create(name, c)
		if err != nil || !strings.HasPrefix(f.PathBase(name), "MANIFEST-") {
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

func (f *fence) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file("reuse", to, func() (vfs.File, error) { return f.FS.ReuseForWrite(from, to, c) })
}

func (f *fence) OpenDir(name string) (vfs.File, error) {
	d, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &fencedFile{d, f, name}, nil
}

// Open finds what was written to the closed fence, too.
func (f *fence) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if f.closed.Load() {
		if file, err := f.void.Open(name); err == nil {
			return file, nil
		}
	}
	return f.FS.Open(name, opts...)
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

// Remove does not report its failure: what is left behind does no harm.
func (f *fence) Remove(name string) error {
	f.changing.RLock()
	defer f.changing.RUnlock()
	if f.closed.Load() {
		return nil
	}
	return f.FS.Remove(name)
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
	fence *fence
	name  string
}

func (f *fencedFile) Write(p []byte) (n int, err error) {
	done, err := f.fence.change("write", f.name, func() (err error) {
		n, err = f.File.Write(p)
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
	if f.fence.closed.Load() {
		return nil
	}
	return err
}
