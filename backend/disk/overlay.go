package disk

import (
	"errors"
	"io"
	iofs "io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// An overlay is a file system that does not change the files below it. Writes go to memory.
type overlay struct {
	vfs.FS            // the files below; only read
	top    *vfs.MemFS // what was written
	mu     sync.Mutex
	gone   map[string]bool   // names below that were removed
	links  map[string]string // new names for files below
}

// slashed is a name as the file system in memory needs it: it knows no separator but /, and names
// of Windows come with the other one.
func slashed(name string) string { return filepath.ToSlash(name) }

func newOverlay(fs vfs.FS) *overlay {
	return &overlay{FS: fs, top: vfs.NewMem(), gone: map[string]bool{}, links: map[string]string{}}
}

// below returns the name of a file below. ok is false if there is none.
func (o *overlay) below(name string) (below string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if to, ok := o.links[name]; ok {
		return to, true
	}
	return name, !o.gone[name]
}

func (o *overlay) written(name string) bool {
	_, err := o.top.Stat(slashed(name))
	return err == nil
}

// hide removes a name of a file below.
func (o *overlay) hide(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.links, name)
	o.gone[name] = true
}

func (o *overlay) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := o.top.MkdirAll(slashed(o.PathDir(name)), 0o700); err != nil {
		return nil, err
	}
	o.hide(name)
	return o.top.Create(slashed(name), c)
}

func (o *overlay) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if o.written(name) {
		return o.top.Open(slashed(name), opts...)
	}
	if below, ok := o.below(name); ok {
		return o.FS.Open(below, opts...)
	}
	return nil, notThere("open", name)
}

func notThere(op, name string) error {
	return &os.PathError{Op: op, Path: name, Err: os.ErrNotExist}
}

// OpenReadWrite copies the file to memory first.
func (o *overlay) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if !o.written(name) {
		b, err := readAll(o, name)
		if err != nil {
			return nil, err
		}
		f, err := o.Create(name, c)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(b); err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return o.top.OpenReadWrite(slashed(name), c, opts...)
}

func (o *overlay) OpenDir(name string) (vfs.File, error) {
	if d, err := o.FS.OpenDir(name); err == nil {
		return d, nil
	}
	return o.top.OpenDir(slashed(name))
}

func (o *overlay) Link(from, to string) error {
	if _, err := o.Stat(to); err == nil {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: os.ErrExist}
	}
	if o.written(from) {
		return errors.Join(o.top.MkdirAll(slashed(o.PathDir(to)), 0o700), o.top.Link(slashed(from), slashed(to)))
	}
	below, ok := o.below(from)
	if !ok {
		return notThere("link", from)
	}
	if _, err := o.FS.Stat(below); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.links[to] = below
	return nil
}

func (o *overlay) Rename(from, to string) error {
	_ = o.Remove(to)
	if err := o.Link(from, to); err != nil {
		return err
	}
	return o.Remove(from)
}

func (o *overlay) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := o.Remove(from); err != nil {
		return nil, err
	}
	return o.Create(to, c)
}

func (o *overlay) Remove(name string) error {
	if _, err := o.Stat(name); err != nil {
		return err
	}
	o.hide(name)
	if o.written(name) {
		return o.top.Remove(slashed(name))
	}
	return nil
}

func (o *overlay) RemoveAll(name string) error {
	o.hide(name)
	return o.top.RemoveAll(slashed(name))
}

func (o *overlay) MkdirAll(name string, perm os.FileMode) error {
	return o.top.MkdirAll(slashed(name), perm)
}

// Lock does nothing: the user of an overlay has already locked the directory below.
func (o *overlay) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (o *overlay) List(dir string) ([]string, error) {
	names := map[string]bool{}
	below, err := o.FS.List(dir)
	for _, name := range below {
		if _, ok := o.below(o.PathJoin(dir, name)); ok {
			names[name] = true
		}
	}
	top, terr := o.top.List(slashed(dir))
	for _, name := range top {
		names[name] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for name := range o.links {
		if o.PathDir(name) == dir {
			names[o.PathBase(name)] = true
		}
	}
	if err != nil && (terr != nil || !errors.Is(err, iofs.ErrNotExist)) {
		return nil, err
	}
	return slices.Sorted(maps.Keys(names)), nil
}

func (o *overlay) Stat(name string) (vfs.FileInfo, error) {
	if o.written(name) {
		return o.top.Stat(slashed(name))
	}
	if below, ok := o.below(name); ok {
		return o.FS.Stat(below)
	}
	return nil, notThere("stat", name)
}

func (o *overlay) Unwrap() vfs.FS { return o.FS }
