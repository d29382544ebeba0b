package disk

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem"
)

// partial marks a directory that is not whole yet.
const partial = ".partial"

// Backup copies the store to dir, which must not be there, while it goes on working: the
// copy has everything that was acknowledged before the call. On the same file system files
// are linked and take no room of their own until they change.
//
// The copy is a store: Restore makes one of it that may go on beside this one.
func (s *Store) Backup(_ context.Context, dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.engine()
	if err != nil {
		return err
	}
	fs := s.opts.fs
	if _, err := fs.Stat(dir); err == nil {
		return problem.Newf(problem.Conflict, "back up to %s: it exists", dir)
	}
	if err := fs.RemoveAll(dir + partial); err != nil {
		return fmt.Errorf("disk: back up to %q: %w", dir, err)
	}
	if err := fs.MkdirAll(fs.PathDir(dir), 0o700); err != nil {
		return fmt.Errorf("disk: back up to %q: %w", dir, err)
	}
	if err := e.db.Checkpoint(dir+partial, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("disk: back up to %q: %w", dir, errors.Join(err, fs.RemoveAll(dir+partial)))
	}
	return finishDir(fs, dir)
}

// finishDir gives a whole directory its name.
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

// restoreEpochs is how far a restored store is ahead of its backup: the store that was
// backed up has gone on, and no token of it may be issued again.
const restoreEpochs = 1 << 16

// Restore makes a store in dir, which must not be there, of a backup, and verifies it. opts
// may be nil; its Key is the store's.
func Restore(ctx context.Context, backup, dir string, opts *Options) (err error) {
	o, err := opts.settle()
	if err != nil {
		return err
	}
	fs := o.fs
	if _, err := fs.Stat(dir); err == nil {
		return problem.Newf(problem.Conflict, "restore to %s: it exists", dir)
	}
	if err := fs.RemoveAll(dir + partial); err != nil {
		return fmt.Errorf("disk: restore to %q: %w", dir, err)
	}
	if err := copyDir(ctx, fs, backup, dir+partial); err != nil {
		return fmt.Errorf("disk: restore %q to %q: %w", backup, dir, err)
	}
	o.Ballast, o.Gone = -1, nil
	s, err := Open(ctx, dir+partial, &o)
	if err != nil {
		return fmt.Errorf("disk: restore %q: %w", backup, err)
	}
	err = s.raiseEpoch()
	if err == nil {
		var r Report
		if r, err = s.Check(ctx); err == nil {
			err = r.Err()
		}
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("disk: restore %q: %w", backup, err)
	}
	return finishDir(fs, dir)
}

func (s *Store) raiseEpoch() error {
	e, err := s.engine()
	if err != nil {
		return err
	}
	return e.commit(true, func(b *pebble.Batch) {
		putNumber(b, metaEpoch, uint64(e.meta.epoch)+restoreEpochs)
	}, nil)
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
		if name == lockName || name == ballastName {
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
