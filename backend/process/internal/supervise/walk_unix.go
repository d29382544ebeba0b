//go:build unix

package supervise

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Walk visits everything below some directories, in steps. It has two descriptors at most and
// never uses a path, so that no tree is too deep for it, and it follows no links. What it
// remembers is bounded by the inodes that a pod may have.
type Walk struct {
	Roots []string
	// Visit is called with the descriptor of a directory and the name in it. An error ends the
	// walk.
	Visit func(dir int, name string, st *unix.Stat_t) error

	open  *os.File // the directory that is read; nil: the next of roots is opened
	read  bool     // all its names are read
	stack []level  // of the directories above, and of open
}

// A level is a directory on the way from a root.
type level struct {
	dev, ino uint64
	below    []string // directories in it that are still to be visited
}

// Step goes on until a deadline, and reports whether everything was visited.
func (w *Walk) Step(deadline time.Time) (done bool, err error) {
	for time.Now().Before(deadline) {
		switch {
		case w.open == nil && len(w.Roots) == 0:
			return true, nil
		case w.open == nil:
			if err = w.enter(unix.AT_FDCWD, w.Roots[0]); errors.Is(err, syscall.ENOENT) {
				err = nil
			}
			w.Roots = w.Roots[1:]
		case !w.read:
			err = w.list()
		default:
			err = w.move()
		}
		if err != nil {
			w.Close()
			return false, err
		}
	}
	return false, nil
}

// Close ends a walk that has not come to its end.
func (w *Walk) Close() {
	if w.open != nil {
		_ = w.open.Close() // it was only read
	}
	w.open, w.stack = nil, nil
}

// enter opens a directory.
func (w *Walk) enter(dir int, name string) error {
	fd, st, err := openDir(dir, name)
	if err != nil {
		return err
	}
	if len(w.stack) > 0 && uint64(st.Dev) != w.stack[0].dev { //nolint:unconvert // narrower elsewhere
		return unix.Close(fd) // another file system, which is not the pod's
	}
	w.replace(fd)
	w.read = false
	w.stack = append(w.stack, level{dev: uint64(st.Dev), ino: uint64(st.Ino)}) //nolint:unconvert // see above
	return nil
}

func (w *Walk) replace(fd int) {
	if w.open != nil {
		_ = w.open.Close() // it was only read
	}
	w.open = os.NewFile(uintptr(fd), "directory")
}

func openDir(dir int, name string) (fd int, st unix.Stat_t, err error) {
	for {
		fd, err = unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		if err = unix.Fstat(fd, &st); err != nil {
			_ = unix.Close(fd) // it was only opened
		}
	}
	return fd, st, err
}

// list visits some more of what is in the open directory.
func (w *Walk) list() error {
	names, err := w.open.Readdirnames(256)
	w.read = errors.Is(err, io.EOF)
	if err != nil && !w.read {
		return err
	}
	dir := int(w.open.Fd())
	top := &w.stack[len(w.stack)-1]
	for _, name := range names {
		var st unix.Stat_t
		err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, syscall.ENOENT) {
			continue // it was removed meanwhile
		}
		if err == nil {
			err = w.Visit(dir, name, &st)
		}
		if err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			top.below = append(top.below, name)
		}
	}
	return nil
}

// move goes to the next directory: one in the open one, or else the one above.
func (w *Walk) move() error {
	top := &w.stack[len(w.stack)-1]
	if n := len(top.below) - 1; n >= 0 {
		name := top.below[n]
		top.below = top.below[:n]
		err := w.enter(int(w.open.Fd()), name)
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
			return nil // it was replaced meanwhile
		}
		return err
	}
	if w.stack = w.stack[:len(w.stack)-1]; len(w.stack) == 0 {
		w.Close()
		return nil
	}
	fd, st, err := openDir(int(w.open.Fd()), "..")
	if err != nil {
		return err
	}
	w.replace(fd)
	top = &w.stack[len(w.stack)-1]
	if uint64(st.Dev) != top.dev || uint64(st.Ino) != top.ino { //nolint:unconvert // see enter
		return ErrMoved
	}
	return nil
}
