package disk

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	iofs "io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem"
)

// A log of commits has an end file beside it as long as it exists. The file is empty while the
// log is written. When the log is closed, the file gets the size of the log. So two kinds of
// damage are noticed that a log and its mirror cannot show: both are missing, or both are
// damaged in the same way at the end of a log that was closed.
//
// A power failure must not leave an end file without its log. So the entry of the log is synced
// before the end file is created, and the removal of the end file is synced before the log is
// removed. Each costs a sync of the directory for 64 MiB of commits.
const endSuffix = ".end"

func hasEnd(base string) bool {
	number, ok := isLog(base)
	return ok && number > 0
}

// beginEnd creates the end file of a new log. The log is usable without it.
func beginEnd(fs vfs.FS, log string) {
	if syncDir(fs, fs.PathDir(log)) != nil {
		return
	}
	if f, err := fs.Create(log+endSuffix, vfs.WriteCategoryUnspecified); err == nil {
		_ = f.Close() // the database syncs the directory next
	}
}

// writeEnd stores the size of a log that was synced and closed. An end file that cannot be
// written counts as empty.
func writeEnd(fs vfs.FS, log string, size int64) {
	if _, err := fs.Stat(log + endSuffix); err != nil {
		return
	}
	f, err := fs.Create(log+endSuffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	_, _ = f.Write(endText(size))
	_ = f.Close()
}

func endText(size int64) []byte {
	text := fmt.Sprintf("%d", size)
	return fmt.Appendf(nil, "%s %08x\n", text, crc32.Checksum([]byte(text), castagnoli))
}

// readEnd returns the size of a log that was closed, or 0 if it is not known.
func readEnd(fs vfs.FS, log string) (size int64) {
	b, err := readAll(fs, log+endSuffix)
	if err != nil {
		return 0
	}
	if n, err := fmt.Sscanf(string(b), "%d", &size); err != nil || n != 1 || !bytes.Equal(b, endText(size)) {
		return 0
	}
	return size
}

// dropEnd removes the end file before its log is removed or replaced.
func dropEnd(fs vfs.FS, log string) error {
	err := fs.Remove(log + endSuffix)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncDir(fs, fs.PathDir(log)))
}

// findMissingLogs returns an error for a log that is missing with its mirror. A check or a
// repair reports it.
func (s *Store) findMissingLogs() error {
	fs := s.opts.fs
	names, err := fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, end := range names {
		log := strings.TrimSuffix(end, endSuffix)
		if log == end || !hasEnd(log) || slices.Contains(names, log) {
			continue
		}
		if s.report == nil {
			return problem.Newf(problem.Unavailable, "%w: %s: it is missing", ErrDamaged, fs.PathJoin(s.dir, log))
		}
		s.lost(Fault{Key: log, What: "it is missing; what was changed there is as it was before"})
		s.renumber = true
		if err := dropEnd(fs, fs.PathJoin(s.dir, log)); err != nil {
			return err
		}
	}
	return nil
}
