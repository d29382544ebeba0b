package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem"
)

// partial is the suffix of a directory that is not complete yet.
const partial = ".partial"

// Backup copies the store to dir. The store stays in use meanwhile. The copy has everything
// that was acknowledged before the call. On the same file system the tables are hard links.
// They need no space until the store removes its own. If dir exists, the error is of kind
// problem.Conflict.
//
// The copy is a store, which Open opens with the same Key. Both stores may be in use at the
// same time; they never issue the same token. Restore does not change the copy.
func (s *Store) Backup(_ context.Context, dir string) error {
	s.copying.Lock()
	defer s.copying.Unlock()
	e, err := s.engine()
	if err != nil {
		return err
	}
	e.copying.Lock()
	defer e.copying.Unlock()
	fs := s.opts.fs
	dir = clean(fs, dir)
	if _, err := fs.Stat(dir); err == nil {
		return problem.Newf(problem.Conflict, "back up to %s: it exists", dir)
	}
	if err := fs.RemoveAll(dir + partial); err != nil {
		return fmt.Errorf("disk: back up to %q: %w", dir, err)
	}
	if err := fs.MkdirAll(fs.PathDir(dir), 0o700); err != nil {
		return fmt.Errorf("disk: back up to %q: %w", dir, err)
	}
	if err := e.commit(func(*pebble.Batch) {}, nil); err != nil { // so that all before it is written
		return err
	}
	if err := e.db.Checkpoint(dir+partial, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("disk: back up to %q: %w", dir, errors.Join(err, fs.RemoveAll(dir+partial)))
	}
	if err := e.err(); err != nil { // then something of the copy may be missing
		return fmt.Errorf("disk: back up to %q: %w", dir, errors.Join(err, fs.RemoveAll(dir+partial)))
	}
	if err := markCopied(fs, dir+partial); err != nil {
		return fmt.Errorf("disk: back up to %q: %w", dir, errors.Join(err, fs.RemoveAll(dir+partial)))
	}
	return finishDir(fs, dir)
}

// copiedName is a file that marks a directory as a copy that has not been opened yet.
const copiedName = "copied"

// copiedEpochs is added to the epoch of a copy. The original store has issued more tokens
// since, and the copy must not issue them again.
const copiedEpochs = 1 << 16

func markCopied(fs vfs.FS, dir string) error {
	f, err := fs.Create(fs.PathJoin(dir, copiedName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// copied reports whether the directory is a copy that is being opened for the first time.
func (e *engine) copied() (bool, error) {
	_, err := e.fs.Stat(e.fs.PathJoin(e.s.dir, copiedName))
	if errors.Is(err, iofs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// finishDir gives a complete directory its final name.
func finishDir(fs vfs.FS, dir string) error {
	if err := fs.Rename(dir+partial, dir); err != nil {
		return fmt.Errorf("disk: name %q: %w", dir, err)
	}
	return syncDir(fs, fs.PathDir(dir))
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("disk: open %q: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// Restore creates a store in dir from a backup, and verifies it. If dir exists, the error is
// of kind problem.Conflict. opts may be nil; its Key must be the store's.
func Restore(ctx context.Context, backup, dir string, opts *Options) (err error) {
	o, err := opts.settle()
	if err != nil {
		return err
	}
	fs := o.fs
	backup, dir = clean(fs, backup), clean(fs, dir)
	if _, err := fs.Stat(dir); err == nil {
		return problem.Newf(problem.Conflict, "restore to %s: it exists", dir)
	}
	if err := fs.RemoveAll(dir + partial); err != nil {
		return fmt.Errorf("disk: restore to %q: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, fs.RemoveAll(dir+partial))
		}
	}()
	if err := errors.Join(copyDir(ctx, fs, backup, dir+partial), markCopied(fs, dir+partial)); err != nil {
		return fmt.Errorf("disk: restore %q to %q: %w", backup, dir, err)
	}
	o.Ballast, o.WorkerGone = -1, nil
	s, err := Open(ctx, dir+partial, &o)
	if err != nil {
		return fmt.Errorf("disk: restore %q: %w", backup, err)
	}
	r, err := s.Check(ctx)
	if err == nil {
		err = r.Err()
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("disk: restore %q: %w", backup, err)
	}
	return finishDir(fs, dir)
}

func copyDir(ctx context.Context, fs vfs.FS, from, to string) error {
	names, err := fs.List(from)
	if err != nil {
		return err
	}
	if err := fs.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if name == lockName {
			continue
		}
		if err := copyFile(fs, fs.PathJoin(from, name), fs.PathJoin(to, name)); err != nil {
			return err
		}
	}
	return syncDir(fs, to)
}

func copyFile(fs vfs.FS, from, to string) (err error) {
	if info, err := fs.Stat(from); err != nil || info.IsDir() {
		return err
	}
	in, err := fs.Open(from, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := fs.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Sync()
}

func readAll(fs vfs.FS, name string) (b []byte, err error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(f)
}
