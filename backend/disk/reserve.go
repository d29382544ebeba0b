package disk

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// spares are the reserve of the disk: a directory of files that are given up when the file system has no room: bytes, or
// inodes. So the store can be opened and things can be deleted when nobody else can write. Only
// then is there room again, because usually what fills the disk must be deleted through the store.
//
// They are many files because somebody else may fill the disk without a pause, for example a pod. Room
// that becomes free belongs to whoever is fastest. So the files of bytes are removed one at a
// time, and what failed is tried again after each. Of the files for inodes the store loses none:
// a file that cannot be created is one of the reserve with another name.
type spares struct {
	s  *Store
	mu sync.Mutex
	// given has one element when something was given up, and restoreLoop has to make it again.
	given chan struct{}
}

const (
	reserveName = "reserve"
	byteFiles   = 16
	inodeFiles  = 200
	bytePrefix  = "bytes-"
	inodePrefix = "inode-"
	// oldBallast is the file that earlier versions had as their reserve.
	oldBallast = "ballast"
)

func (r *spares) init(s *Store) { r.s, r.given = s, make(chan struct{}, 1) }

func (r *spares) dir() string { return r.s.opts.fs.PathJoin(r.s.dir, reserveName) }

// files returns the paths of the files that are left with a prefix.
func (r *spares) files(prefix string) (paths []string) {
	fs := r.s.opts.fs
	names, _ := fs.List(r.dir()) // it may not exist
	slices.Sort(names)
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			paths = append(paths, fs.PathJoin(r.dir(), name))
		}
	}
	return paths
}

// give removes a file that has bytes. It returns false if there is none. A store of an earlier version
// may be opened for the first time on a full disk, and has only its ballast.
func (r *spares) give() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	fs := r.s.opts.fs
	paths := r.files(bytePrefix)
	if old := fs.PathJoin(r.s.dir, oldBallast); exists(fs, old) {
		paths = append(paths, old)
	}
	for _, path := range paths {
		if fs.Remove(path) == nil {
			r.tell("a part of the reserve of disk space was given up")
			return true
		}
	}
	return false
}

func exists(fs vfs.FS, path string) bool {
	_, err := fs.Stat(path)
	return err == nil
}

// take creates a file where no inode is free. It is empty.
func (r *spares) take(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range r.files(inodePrefix) {
		if r.s.opts.fs.Rename(path, name) == nil {
			r.tell("a part of the reserve of inodes was given up")
			return nil
		}
	}
	return iofs.ErrNotExist
}

// tell logs the first part that is given up, and has restoreLoop make it again.
func (r *spares) tell(what string) {
	select {
	case r.given <- struct{}{}:
		r.s.opts.Logger.Warn(what, "dir", r.s.dir)
	default:
	}
}

// spare removes so much that other parts of the program, which do not use the reserve, can start.
// For example, a socket needs an inode.
func (r *spares) spare() {
	const bytes, files = 4 << 20, 16
	if free, known := r.s.space.measure(); known && free < bytes {
		r.give()
	}
	if x := r.s.space.inodes(); x.total > 0 && x.free < files {
		r.mu.Lock()
		defer r.mu.Unlock()
		list := r.files(inodePrefix)
		for _, path := range list[:min(files, len(list))] {
			_ = r.s.opts.fs.Remove(path)
			r.tell("a part of the reserve of inodes was given up")
		}
	}
}

// restore makes what is missing of the reserve if there is plenty of room. It returns true if the
// reserve is complete. A failure is only logged, because the store works without a reserve.
func (r *spares) restore() (whole bool) {
	size := r.s.opts.Ballast
	if size == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fs := r.s.opts.fs
	_ = fs.Remove(fs.PathJoin(r.s.dir, oldBallast))
	free, known := r.s.space.measure()
	i := r.s.space.inodes()
	wanted := map[string]int64{}
	if known {
		for k := range int64(byteFiles) {
			wanted[fmt.Sprintf("%s%02d", bytePrefix, k)] = size*(k+1)/byteFiles - size*k/byteFiles
		}
	}
	if i.total > 0 {
		for k := range min(inodeFiles, i.total/20) {
			wanted[fmt.Sprintf("%s%03d", inodePrefix, k)] = 0
		}
	}
	if len(wanted) == 0 || r.present(wanted) {
		return true
	}
	if known && free < r.s.opts.KeepFree+2*size || i.total > 0 && i.free < i.keep+2*inodeFiles {
		return false
	}
	if err := r.write(wanted); err != nil {
		r.s.opts.Logger.Warn("no reserve of disk space", "dir", r.s.dir, "err", err)
		return false
	}
	return true
}

// present removes from wanted what is there, and reports whether nothing is left.
func (r *spares) present(wanted map[string]int64) bool {
	fs := r.s.opts.fs
	for name, size := range wanted {
		if info, err := fs.Stat(fs.PathJoin(r.dir(), name)); err == nil && info.Size() == size {
			delete(wanted, name)
		}
	}
	return len(wanted) == 0
}

func (r *spares) write(wanted map[string]int64) error {
	fs := r.s.opts.fs
	if err := fs.MkdirAll(r.dir(), 0o700); err != nil {
		return fmt.Errorf("disk: make the reserve: %w", err)
	}
	block := make([]byte, 1<<20)
	for name, size := range wanted {
		if err := writeZeros(fs, fs.PathJoin(r.dir(), name), size, block); err != nil {
			_ = fs.Remove(fs.PathJoin(r.dir(), name)) // a part of it is of no use
			return fmt.Errorf("disk: write the reserve: %w", err)
		}
	}
	return nil
}

// writeZeros writes a file of zeros: a sparse file would reserve no space. It need not be synced,
// because a file that a power failure cuts off is written again.
func writeZeros(fs vfs.FS, path string, size int64, block []byte) (err error) {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for ; size > 0; size -= int64(len(block)) {
		clear(block) // Write may change it
		if _, err := f.Write(block[:min(size, int64(len(block)))]); err != nil {
			return err
		}
	}
	return nil
}
