package disk

import (
	"errors"
	"io"
	iofs "io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// An ownerOnly is the file system of this machine in which files and directories are made for their
// owner alone. The database leaves that to the umask, which a container or a shell may have
// cleared. A file has its mode before there is anything in it.
type ownerOnly struct{ vfs.FS }

const (
	fileMode = 0o600
	dirMode  = 0o700
)

// make creates an empty file, or returns an error of kind fs.ErrExist.
func (ownerOnly) make(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	return f.Close()
}

// Create replaces a file that is there by a new one, as the file system below does.
func (o ownerOnly) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	err := o.make(name)
	for errors.Is(err, iofs.ErrExist) {
		if err := os.Remove(name); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return nil, err
		}
		err = o.make(name)
	}
	if err != nil {
		return nil, err
	}
	return o.FS.OpenReadWrite(name, c)
}

func (o ownerOnly) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := o.make(name); err != nil && !errors.Is(err, iofs.ErrExist) {
		return nil, err
	}
	return o.FS.OpenReadWrite(name, c, opts...)
}

func (o ownerOnly) Lock(name string) (io.Closer, error) {
	if err := o.make(name); err != nil && !errors.Is(err, iofs.ErrExist) {
		return nil, err
	}
	return o.FS.Lock(name)
}

func (o ownerOnly) MkdirAll(name string, _ os.FileMode) error { return o.FS.MkdirAll(name, dirMode) }

func (o ownerOnly) Unwrap() vfs.FS { return o.FS }

// tighten changes the modes of files that an earlier version has made.
func tighten(fs vfs.FS, dir string) error {
	if _, ok := fs.(ownerOnly); !ok {
		return nil
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range list {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0 {
			continue // or it is gone
		}
		if err := os.Chmod(fs.PathJoin(dir, f.Name()), fileMode); err != nil {
			return err
		}
	}
	return nil
}
