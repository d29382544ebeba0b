package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem"
)

// A tableFile is a table that is open for reading. It checks the blocks that are read. The database
// checks them, too, but it then searches for a flipped bit, which takes minutes for a payload of some
// megabytes.
type tableFile struct {
	vfs.File
	name string
	size int64
}

func openTable(name string, file vfs.File) (vfs.File, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &tableFile{file, name, info.Size()}, nil
}

// ReadAt reads one block with its checksum, or the footer.
func (f *tableFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return n, err
	case n < len(p):
		return 0, fmt.Errorf("%w: %s ends too early", pebble.ErrCorruption, f.name)
	case at+int64(n) < f.size && !isBlock(p):
		return 0, fmt.Errorf("%w: %s: what is at byte %d does not match its checksum", pebble.ErrCorruption, f.name, at)
	}
	return n, nil
}

// isBlock reports whether b is a block with its checksum.
func isBlock(b []byte) bool {
	n := len(b) - 4
	return n > 0 && binary.LittleEndian.Uint32(b[n:]) == masked(crc32.Checksum(b[:n], castagnoli))
}

// damagedTable is called by the database when a reader found damage. It ends the engine. The table is isolated when the store is opened again.
func (e *engine) damagedTable(info pebble.DataCorruptionInfo) {
	e.s.suspect(info.Path)
	e.fail(problem.Newf(problem.Unavailable, "%w: %v", ErrDamaged, info.Details))
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
