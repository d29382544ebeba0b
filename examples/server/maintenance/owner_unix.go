//go:build unix

package maintenance

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// An owning gives what root makes in a directory to the owner of the directory. Without it a server
// that is another user would not start again: secrets and stores are for the eyes of their owner.
//
// The owner may put a link to another directory in the place of this one at any time, as /etc. So the
// directory is opened once, or where it is not there yet the nearest parent, and nothing outside of it
// changes its owner.
type owning struct {
	in       *os.Root // the directory, or the nearest parent
	uid, gid int
	missing  []string       // the directory and its parents below that one, the lowest first
	before   map[inode]bool // what was root's then
}

// An inode is a file, whatever its names are.
type inode struct{ device, number uint64 }

// owned remembers whom a directory belongs to and what of it is root's already: that may be a link to
// a file elsewhere, made by an owner who wants to have it. Where it is not there yet, it will
// belong to the owner of the nearest parent. It is nil where there is nothing to keep: this user is
// not root, or root is the owner, or it is no directory, which the step refuses.
func owned(dir string) (*owning, error) {
	if os.Geteuid() != 0 || dir == "" {
		return nil, nil
	}
	at, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	o, rest := &owning{}, "."
	o.in, err = os.OpenRoot(at)
	for errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
		at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest)
		o.in, err = os.OpenRoot(at)
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for ; rest != "."; rest = filepath.Dir(rest) {
		o.missing = append(o.missing, rest)
	}
	if err = o.look(); err != nil || o.uid == 0 {
		o.close()
		return nil, err
	}
	return o, nil
}

// look finds out whose the directory is, and what of it is root's.
func (o *owning) look() error {
	fi, err := o.in.Stat(".")
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || st.Uid == 0 {
		return nil
	}
	o.uid, o.gid = int(st.Uid), int(st.Gid)
	if len(o.missing) == 0 {
		o.before, err = rootsIn(o.in)
	}
	return err
}

func (o *owning) close() {
	if o != nil {
		_ = o.in.Close()
	}
}

// keep gives the owner what was made since owned, except files that other names lead to: a backup
// has links to the files of its store.
func (o *owning) keep(except map[inode]bool) error {
	if o == nil {
		return nil
	}
	root := o.in
	for _, dir := range slices.Backward(o.missing) {
		r, err := o.in.OpenRoot(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was not made
		}
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		root = r
		if err := root.Lchown(".", o.uid, o.gid); err != nil {
			return err
		}
	}
	return walk(root, func(name string, st *syscall.Stat_t) error {
		if n := inodeOf(st); st.Uid != 0 || o.before[n] || except[n] {
			return nil
		}
		return root.Lchown(name, o.uid, o.gid)
	})
}

// ofRoot are the files in a directory that are root's.
func ofRoot(dir string) (map[inode]bool, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := rootsIn(root)
	return all, errors.Join(err, root.Close())
}

func rootsIn(dir *os.Root) (map[inode]bool, error) {
	all := map[inode]bool{}
	err := walk(dir, func(_ string, st *syscall.Stat_t) error {
		if st.Uid == 0 {
			all[inodeOf(st)] = true
		}
		return nil
	})
	return all, err
}

func inodeOf(st *syscall.Stat_t) inode {
	return inode{uint64(st.Dev), uint64(st.Ino)} //nolint:unconvert // their types differ between systems
}

// walk calls do for the files of a directory and of the store in it. The other directories are those
// of pods, which have files of anybody. It follows no link out of the directory. Files may go
// meanwhile: a server may use the store.
func walk(root *os.Root, do func(name string, st *syscall.Stat_t) error) error {
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if name == "." {
			return err
		}
		if err != nil {
			return unlessGone(err)
		}
		if d.IsDir() && path.Dir(name) == "." && !strings.HasPrefix(name, "store") {
			return fs.SkipDir
		}
		fi, err := d.Info()
		if err != nil {
			return unlessGone(err)
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			return unlessGone(do(name, st))
		}
		return nil
	})
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
