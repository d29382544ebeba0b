//go:build unix

package maintenance

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// An owning gives what root makes in a directory to the owner of the directory. Without it a server
// that is another user would not start again: secrets and stores are for the eyes of their owner.
type owning struct {
	dir      string
	uid, gid int
	missing  []string       // the directory and its parents that are not there yet, the lowest first
	before   map[inode]bool // what was root's then
}

// An inode is a file, whatever its names are.
type inode struct{ device, number uint64 }

// owned remembers whom a directory belongs to and what of it is root's already: that may be a link to
// a file elsewhere, made by an owner who wants to have it. Where it is not there yet, it will
// belong to the owner of the nearest parent. It is nil where there is nothing to keep: this user is
// not root, or root is the owner.
func owned(dir string) (*owning, error) {
	if os.Geteuid() != 0 || dir == "" {
		return nil, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	o := &owning{dir: dir}
	for at := dir; ; at = filepath.Dir(at) {
		fi, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			o.missing = append(o.missing, at)
			continue
		}
		if err != nil {
			return nil, err
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok || st.Uid == 0 {
			return nil, nil
		}
		o.uid, o.gid = int(st.Uid), int(st.Gid)
		break
	}
	o.before, err = ofRoot(dir)
	return o, err
}

// keep gives the owner what was made since owned, except files that other names lead to: a backup
// has links to the files of its store.
func (o *owning) keep(except map[inode]bool) (err error) {
	if o == nil {
		return nil
	}
	for _, dir := range o.missing {
		if e := os.Lchown(dir, o.uid, o.gid); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, walk(o.dir, func(root *os.Root, name string, st *syscall.Stat_t) error {
		if n := inodeOf(st); st.Uid != 0 || o.before[n] || except[n] {
			return nil
		}
		return root.Lchown(name, o.uid, o.gid)
	}))
}

// ofRoot are the files in a directory that are root's.
func ofRoot(dir string) (map[inode]bool, error) {
	all := map[inode]bool{}
	err := walk(dir, func(_ *os.Root, _ string, st *syscall.Stat_t) error {
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
// of pods, which have files of anybody. It follows no link out of the directory, which another user
// may write to.
func walk(dir string, do func(root *os.Root, name string, st *syscall.Stat_t) error) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() && path.Dir(name) == "." && !strings.HasPrefix(name, "store") {
			return fs.SkipDir
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			return do(root, name, st)
		}
		return nil
	})
	return errors.Join(err, root.Close())
}
