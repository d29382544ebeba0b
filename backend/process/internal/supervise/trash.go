package supervise

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/podhost"
)

// A Trash removes directories in the background, also those of an earlier server. What a pod has
// made may take any time: millions of files, or directories in each other that are deeper than
// any path. So a directory that is found in another one is first moved to the top of the trash,
// where its turn comes later: no more than one directory is open at a time, and nothing needs to
// be remembered.
type Trash struct {
	dir  string
	wake chan struct{} // has a value when there is something new
}

// NewTrash returns the trash in dir.
func NewTrash(dir string) Trash { return Trash{dir: dir, wake: make(chan struct{}, 1)} }

// Put moves path into the trash at once. A path that does not exist is
// no error.
func (t *Trash) Put(path string) error {
	name := filepath.Join(t.dir, rand.Text())
	err := podhost.Rename(path, name)
	if errors.Is(err, fs.ErrPermission) { // a pod has taken its own rights, and what is moved is written
		err = errors.Join(os.Chmod(path, 0o700), podhost.Rename(path, name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
	return err
}

// RemoveAll removes a directory that nobody uses, and ends with ctx at the latest. It is then left
// beside its old name.
func RemoveAll(ctx context.Context, path string) error {
	const mark = ".removed"
	t := NewTrash(strings.TrimSuffix(path, mark) + mark)
	err := os.MkdirAll(t.dir, 0o700)
	if err == nil && t.dir != path {
		err = t.Put(path)
	}
	if err == nil {
		err = t.emptyOnce(ctx.Done())
	}
	if err == nil && ctx.Err() == nil {
		err = os.Remove(t.dir)
	}
	return err
}

// trashRetry is when what could not be removed is tried again.
const trashRetry = time.Hour

// Empty removes what is in the trash until stop is closed.
func (t *Trash) Empty(stop <-chan struct{}, log *slog.Logger) {
	for {
		if err := t.emptyOnce(stop); err != nil {
			log.Error("process: what is left of removed pods cannot be removed", "err", err)
		}
		retry := time.NewTimer(trashRetry)
		select {
		case <-t.wake:
		case <-retry.C:
		case <-stop:
			retry.Stop()
			return
		}
		retry.Stop()
	}
}

// emptyOnce goes on as long as something can be removed.
func (t *Trash) emptyOnce(stop <-chan struct{}) error {
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	for more := true; more; {
		var names []fs.DirEntry
		if names, err = some(root, "."); err != nil {
			return err
		}
		more = false
		var errs []error
		for _, e := range names {
			gone, err := removeEntry(root, e, stop)
			more = more || gone
			errs = append(errs, err)
			select {
			case <-stop:
				return nil
			default:
			}
		}
		err = errors.Join(errs...)
	}
	return err
}

// trashBatch is how many names of a directory are read at a time.
const trashBatch = 1000

// some returns some of what is in a directory.
func some(root *os.Root, name string) ([]fs.DirEntry, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	entries, _ := f.ReadDir(trashBatch) // the end, or an error that the next read has again
	return entries, f.Close()
}

// removeEntry removes an entry of the trash, after it has moved the directories in it to the top. It
// reports whether it has removed anything.
func removeEntry(root *os.Root, e fs.DirEntry, stop <-chan struct{}) (gone bool, err error) {
	name := e.Name()
	for e.IsDir() {
		_ = root.Chmod(name, 0o700) // the pod may have taken its own rights
		entries, err := some(root, name)
		if err != nil {
			return gone, err
		}
		if len(entries) == 0 {
			break
		}
		var errs []error
		before := gone
		gone = false
		for _, inner := range entries {
			path := filepath.Join(name, inner.Name())
			if inner.IsDir() {
				_ = root.Chmod(path, 0o700) // it is written when it is moved
				err = root.Rename(path, rand.Text())
			} else {
				err = root.Remove(path)
			}
			gone = gone || err == nil
			errs = append(errs, err)
		}
		if !gone {
			return before, errors.Join(errs...)
		}
		select {
		case <-stop:
			return true, nil
		default:
		}
	}
	if err := root.Remove(name); err != nil {
		return gone, err
	}
	return true, nil
}
