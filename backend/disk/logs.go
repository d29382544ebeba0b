package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem"
)

// The database takes what it cannot read in a log for its end, unless a later block shows that it is
// not. So every log is read before the database is opened, and one that is damaged before its end is
// an error. What a power failure has interrupted looks the same as damage to the last commits of the
// log that was in use: these are lost, and nothing says so.

// manifestPrefix is the prefix of the names of manifests: logs of tables.
const manifestPrefix = "MANIFEST-"

// A log consists of blocks of 32 KiB, and a block of chunks. A chunk has a checksum, a length,
// a kind, further header fields that depend on the kind, and data. A record is one full chunk,
// or a first chunk, middle chunks and a last chunk. If the rest of a block is too short for a
// chunk, it is zero.
const (
	logBlock = 32 << 10

	fullChunk  = 1
	firstChunk = 2
	lastChunk  = 4
	chunkKinds = 4 // in each of the three formats

	plainHeader = 7               // of manifests
	numbered    = plainHeader + 4 // with the number of the log
	syncHeader  = numbered + 8    // with how much of the log was synced when the chunk was written
)

// isLog reports whether a file is a log, and returns the number in its chunks. The chunks of a
// manifest have no number, so number is 0.
func isLog(base string) (number uint32, ok bool) {
	if name, ok := strings.CutPrefix(base, manifestPrefix); ok {
		_, err := strconv.ParseUint(name, 10, 64)
		return 0, err == nil
	}
	name, ok := strings.CutSuffix(base, ".log")
	n, err := strconv.ParseUint(name, 10, 64)
	return uint32(n), ok && err == nil
}

// A chunk is the header of a chunk that matches its checksum, or of the mark at the end of a log.
type chunk struct {
	size, header int
	begins, ends bool  // the first, and the last, of a record
	synced       int64 // bytes of the log that were synced when the chunk was written
	mark         bool  // the log was closed behind it
}

// chunkAt reads the chunk at the start of b. ok is false if there is no valid chunk.
func chunkAt(b []byte, number uint32) (c chunk, ok bool) {
	if len(b) < plainHeader || b[6] == 0 || b[6] > 3*chunkKinds {
		return c, false
	}
	c.header = [...]int{plainHeader, numbered, syncHeader}[(b[6]-1)/chunkKinds]
	c.size = c.header + int(binary.LittleEndian.Uint16(b[4:]))
	if c.size > len(b) {
		return c, false
	}
	if c.header > plainHeader {
		n := binary.LittleEndian.Uint32(b[plainHeader:])
		c.mark = n == number+1 && c.size == c.header && binary.LittleEndian.Uint32(b) == 0
		if c.mark || n != number {
			return c, c.mark
		}
	}
	if sum := crc32.Checksum(b[6:c.size], castagnoli); binary.LittleEndian.Uint32(b) != masked(sum) {
		return c, false
	}
	if c.header == syncHeader {
		c.synced = int64(binary.LittleEndian.Uint64(b[numbered:]))
	}
	kind := (b[6]-1)%chunkKinds + 1
	c.begins, c.ends = kind == fullChunk || kind == firstChunk, kind == fullChunk || kind == lastChunk
	return c, true
}

// masked returns a checksum in the form of LevelDB.
func masked(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }

// A logScan reads a log with unreadable parts.
type logScan struct {
	number uint32
	each   func(at int64, record []byte) error // called with each record that can be read; may be nil

	holes  [][2]int64 // unreadable ranges with a chunk behind them
	hole   int64      // start of the range that is unreadable so far; -1: none
	proved int64      // everything before it was once complete
	end    int64      // of the last chunk
	closed bool       // by the mark

	begin  int64 // of the record that is not complete; -1: none
	record []byte
}

// A logDamage says what is known of damaged logs.
type logDamage struct {
	strict   bool // the database has found damage at the end of a log that was closed
	renumber bool // stored numbers may already be in use, because a part of a log is lost
}

// scanLog reads a log. The error is only the reason why the file cannot be read, or that of each.
func scanLog(fs vfs.FS, path string, number uint32, each func(at int64, record []byte) error) (*logScan, error) {
	s := &logScan{number: number, each: each, hole: -1, begin: -1}
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return s, err
	}
	defer func() { _ = f.Close() }() // it was only read
	block := make([]byte, logBlock)
	for at := int64(0); !s.closed; at += logBlock {
		n, err := f.ReadAt(block, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return s, err
		}
		if n == 0 {
			break
		}
		if err := s.block(at, block[:n]); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *logScan) block(at int64, b []byte) error {
	for k := 0; k < len(b) && !s.closed; {
		c, ok := chunkAt(b[k:], s.number)
		if ok {
			if err := s.add(at+int64(k), c, b[k+c.header:k+c.size]); err != nil {
				return err
			}
			k += c.size
			continue
		}
		zero := isZero(b[k:])
		if s.hole < 0 && (!zero || len(b)-k >= syncHeader) {
			s.hole = at + int64(k)
		}
		if zero {
			return nil
		}
		k++ // the next chunk can begin at any offset
	}
	return nil
}

// isZero is asked at each byte behind damage.
func isZero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[:len(b)-1], b[1:])
}

// add adds a chunk. What is before it was once complete if the log was closed, or synced beyond that
// when the chunk was written. Each record of a manifest is synced before the next one.
func (s *logScan) add(at int64, c chunk, data []byte) error {
	s.proved = max(s.proved, c.synced)
	if c.mark || s.number == 0 && c.begins {
		s.proved = max(s.proved, at)
	}
	if s.hole >= 0 {
		if s.begin >= 0 {
			s.hole = s.begin
		}
		s.holes, s.hole, s.begin = append(s.holes, [2]int64{s.hole, at}), -1, -1
	}
	if s.end, s.closed = at+int64(c.size), c.mark; c.mark {
		return nil
	}
	if c.begins {
		s.begin, s.record = at, s.record[:0]
	}
	if s.begin < 0 { // its beginning is unreadable
		return nil
	}
	s.record = append(s.record, data...)
	if !c.ends {
		return nil
	}
	begin := s.begin
	if s.begin = -1; s.each == nil {
		return nil
	}
	return s.each(begin, s.record)
}

// lost returns the ranges that were once complete, and to where the log can be read. whole: it is known
// that all of the log was once complete.
func (s *logScan) lost(whole bool) (lost [][2]int64, to int64) {
	for _, h := range s.holes {
		if h[0] >= s.proved && !whole {
			return lost, h[0]
		}
		lost = append(lost, h)
	}
	if whole && s.hole >= 0 {
		lost = append(lost, [2]int64{s.hole, -1})
	}
	return lost, s.end
}

// verifyLogs returns an error for a log that is damaged before its end. A check or a repair reports
// what is lost of it, and rewrites it without that.
func (s *Store) verifyLogs() error {
	fs := s.opts.fs
	names, err := fs.List(s.dir)
	if err != nil {
		return err
	}
	newest := uint32(0)
	for _, name := range names {
		number, _ := isLog(name)
		newest = max(newest, number)
	}
	for _, name := range names {
		number, ok := isLog(name)
		if !ok || !inUse(fs, s.dir, name) {
			continue
		}
		path := fs.PathJoin(s.dir, name)
		scan, err := scanLog(fs, path, number, nil)
		if err != nil {
			return err
		}
		lost, to := scan.lost(s.logs.strict && number > 0 && number < newest)
		switch {
		case len(lost) == 0:
		case number == 0:
			return problem.Newf(problem.Unavailable, "%w: %s: it is damaged at byte %d", errManifest, path, lost[0][0])
		case s.report == nil:
			return problem.Newf(problem.Unavailable, "%w: %s: it is damaged at byte %d", ErrDamaged, path, lost[0][0])
		default:
			if err := s.rewriteLog(path, number, lost, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// inUse reports whether the database reads a log. It does not read manifests other than the
// current one.
func inUse(fs vfs.FS, dir, name string) bool {
	if !strings.HasPrefix(name, manifestPrefix) {
		return true
	}
	current, err := currentManifest(fs, dir)
	return err != nil || current == "" || current == name
}

// rewriteLog replaces a damaged log by one with the commits that can be read, up to a byte, and
// reports what is lost.
func (s *Store) rewriteLog(path string, number uint32, lost [][2]int64, to int64) error {
	fs := s.opts.fs
	for _, h := range lost {
		what := fmt.Sprintf("the bytes from %d to %d cannot be read; what was changed there is as it was before", h[0], h[1])
		if h[1] < 0 {
			what = fmt.Sprintf("it cannot be read from byte %d on; what was changed there is as it was before", h[0])
		}
		s.lost(Fault{Key: fs.PathBase(path), What: what})
	}
	s.logs.renumber = true
	f, err := fs.Create(path+partial, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	w := record.NewWriter(f)
	_, err = scanLog(fs, path, number, func(at int64, record []byte) error {
		if at >= to {
			return nil
		}
		_, err := w.WriteRecord(record)
		return err
	})
	if err := errors.Join(err, w.Close(), f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(fs.Rename(path+partial, path), syncDir(fs, s.dir))
}

// lost adds a fault to the report of a check or a repair.
func (s *Store) lost(f Fault) {
	if s.report != nil {
		s.report.Faults = append(s.report.Faults, f)
	}
}
