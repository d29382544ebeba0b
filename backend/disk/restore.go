package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem"
)

// A tableFile is a table that is open for reading. It restores a block that does not match its
// checksum, and reads it again; the reader sees no error. The database also checks blocks, but
// it first searches for a flipped bit, which takes minutes for a payload of some megabytes.
type tableFile struct {
	vfs.File
	fence *fence
	name  string
	size  int64
}

func (f *fence) openTable(name string, file vfs.File) (vfs.File, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &tableFile{file, f, name, info.Size()}, nil
}

// ReadAt reads one block with its checksum, or the footer.
func (f *tableFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.readAt(p, at)
	if pebble.IsCorruptionError(err) {
		f.fence.restore(f.name)
		n, err = f.readAt(p, at)
	}
	return n, err
}

func (f *tableFile) readAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return n, err
	case n < len(p):
		return 0, fmt.Errorf("%w: %s ends too early", pebble.ErrCorruption, f.fence.PathBase(f.name))
	case at+int64(n) >= f.size && f.footer(), at+int64(n) < f.size && isBlock(p):
		return n, nil
	}
	return 0, fmt.Errorf("%w: %s: what is at byte %d does not match its checksum", pebble.ErrCorruption, f.fence.PathBase(f.name), at)
}

// isBlock reports whether b is a block with its checksum.
func isBlock(b []byte) bool {
	n := len(b) - 4
	return n > 0 && binary.LittleEndian.Uint32(b[n:]) == maskedSum(b[:n])
}

// footer reports whether the end of the table matches its parity file, if there is one.
func (f *tableFile) footer() bool {
	row := (f.size - 1) / rowSize
	at := row * rowSize
	b, sum := make([]byte, f.size-at), make([]byte, 4)
	if _, err := f.File.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
		return true // the reader of the footer checks it
	}
	p, err := f.fence.FS.Open(f.name + paritySuffix)
	if err != nil {
		return true
	}
	_, err = p.ReadAt(sum, int64(len(parityMagic))+8+4*row)
	if errors.Join(err, p.Close()) != nil || checksum(nil, b) == binary.LittleEndian.Uint32(sum) {
		return true
	}
	_, err = readParity(f.fence.FS, f.name) // the parity file may be damaged instead
	return err != nil
}

// restoreTable restores a damaged table from its parity file, unless that has already failed.
func (s *Store) restoreTable(path string) {
	s.restoring.Lock()
	defer s.restoring.Unlock()
	if s.suspected()[path] {
		return
	}
	// The caller reads the table again and sees whether it is right now.
	if n, _, _ := restore(s.opts.fs, path); n > 0 {
		s.wasRestored(s.opts.fs.PathBase(path), n)
	}
}

// damagedTable is called by the database when a reader found damage that could not be
// restored. It ends the engine. The table is isolated when the store is opened again.
func (e *engine) damagedTable(info pebble.DataCorruptionInfo) {
	e.s.suspect(info.Path)
	e.fail(problem.Newf(problem.Unavailable, "%w: %v", ErrDamaged, info.Details))
}

// wasRestored reports a damaged file that was restored completely.
func (s *Store) wasRestored(file string, parts int) {
	s.opts.Logger.Warn("a damaged file was restored", "dir", s.dir, "file", file, "parts", parts)
	if s.report != nil && !slices.Contains(s.report.Restored, file) {
		s.report.Restored = append(s.report.Restored, file)
	}
}

// verifyTable reads every block of a table.
func (e *engine) verifyTable(ctx context.Context, path string) (err error) {
	r, err := e.openTable(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return r.ValidateBlockChecksums()
}

// openTable opens a table without the database and its caches.
func (e *engine) openTable(ctx context.Context, path string) (*sstable.Reader, error) {
	f, err := e.fs.Open(path)
	if err != nil {
		return nil, err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(ctx, readable, e.opts.MakeReaderOptions())
	if err != nil {
		return nil, errors.Join(err, readable.Close())
	}
	return r, nil
}

// hideOptions hides damaged options files of earlier openings. The database does not need
// them, but would refuse to open.
func (e *engine) hideOptions() error {
	names, err := e.fs.List(e.s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "OPTIONS-") {
			continue
		}
		text, err := readAll(e.fs, e.fs.PathJoin(e.s.dir, name))
		if err != nil || e.opts.CheckCompatibility(e.s.dir, string(text)) != nil {
			e.fs.hidden = append(e.fs.hidden, name)
		}
	}
	return nil
}
