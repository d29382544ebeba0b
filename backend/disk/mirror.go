package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem"
)

// A log, of commits or of tables (a manifest), has a mirror file beside it. Every byte is
// written to both, and only the log is synced. When the store is opened, a part of the log
// that does not match its checksum is restored from the mirror.
//
// The database itself takes a damaged record at the end of a log for an incomplete write, and
// drops it. So without a mirror the last acknowledged record could be lost silently.
const mirrorSuffix = ".mirror"

// manifestPrefix is the prefix of the names of manifests.
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

// A chunk is the header of a chunk that matches its checksum.
type chunk struct {
	size   int
	begins bool  // the first of a record
	synced int64 // bytes of the log that were synced when the chunk was written
}

// chunkAt reads the chunk at the start of b. ok is false if there is no valid chunk.
func chunkAt(b []byte, number uint32) (c chunk, ok bool) {
	if len(b) < plainHeader || b[6] == 0 || b[6] > 3*chunkKinds {
		return c, false
	}
	header, kind := headerSize(b[6]), (b[6]-1)%chunkKinds+1
	c.size = header + int(binary.LittleEndian.Uint16(b[4:]))
	if c.size > len(b) || binary.LittleEndian.Uint32(b) != maskedSum(b[6:c.size]) {
		return c, false
	}
	if header > plainHeader {
		// The chunk that marks the end of a log has the next number.
		n := binary.LittleEndian.Uint32(b[plainHeader:])
		if n != number && (n != number+1 || c.size > header) {
			return c, false
		}
	}
	if header == syncHeader {
		c.synced = int64(binary.LittleEndian.Uint64(b[numbered:]))
	}
	c.begins = kind == fullChunk || kind == firstChunk
	return c, true
}

// headerSize returns the size of the header of a chunk. kind is the byte with its format and
// kind.
func headerSize(kind byte) int {
	return [...]int{plainHeader, numbered, syncHeader}[(kind-1)/chunkKinds]
}

// maskedSum returns the checksum of a chunk, in the masked form of LevelDB.
func maskedSum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// merged returns a block of a log, with damaged chunks replaced by those of its mirror.
func merged(block, mirror []byte, number uint32) []byte {
	out := append([]byte{}, block...)
	for at := 0; at < len(mirror); {
		if c, ok := chunkAt(out[min(at, len(out)):], number); ok {
			at += c.size
			continue
		}
		from := mirror[at:]
		c, ok := chunkAt(from, number)
		if !ok {
			if from = combined(out[min(at, len(out)):], from, number); from == nil {
				break
			}
			c.size = len(from)
		}
		if short := at + c.size - len(out); short > 0 {
			out = append(out, make([]byte, short)...)
		}
		at += copy(out[at:], from[:c.size])
	}
	return out
}

// maxRuns is in how many ranges a chunk of a log may differ from its mirror.
const maxRuns = 10

// combined restores the chunk at the start of a log and of its mirror if they are damaged in
// different places. In each range in which they differ, one of the two is right. combined
// tries all choices, and returns nil if none matches the checksum.
func combined(a, b []byte, number uint32) []byte {
	for _, header := range [][]byte{a, b} {
		if len(header) < plainHeader || header[6] == 0 || header[6] > 3*chunkKinds {
			continue
		}
		n := headerSize(header[6]) + int(binary.LittleEndian.Uint16(header[4:]))
		if n > min(len(a), len(b)) {
			continue
		}
		runs := differences(a[:n], b[:n])
		if len(runs) > maxRuns {
			continue
		}
		for choice := range 1 << len(runs) {
			c := bytes.Clone(a[:n])
			for k, r := range runs {
				if choice>>k&1 == 1 {
					copy(c[r[0]:r[1]], b[r[0]:r[1]])
				}
			}
			if got, ok := chunkAt(c, number); ok && got.size == n {
				return c
			}
		}
	}
	return nil
}

// differences returns the ranges in which a and b differ. They have the same length. It stops
// after more than maxRuns ranges.
func differences(a, b []byte) (runs [][2]int) {
	for k := 0; k < len(a) && len(runs) <= maxRuns; k++ {
		if a[k] == b[k] {
			continue
		}
		from := k
		for k < len(a) && a[k] != b[k] {
			k++
		}
		runs = append(runs, [2]int{from, k})
	}
	return runs
}

// repairLogs restores every log of the directory from its mirror. It returns an error for a log
// that is still damaged.
func (s *Store) repairLogs() error {
	fs := s.opts.fs
	names, err := fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		number, ok := isLog(name)
		if !ok {
			continue
		}
		path := fs.PathJoin(s.dir, name)
		n, err := s.mendLog(path, number, inUse(fs, s.dir, name))
		if err != nil {
			what := ErrDamaged
			if number == 0 {
				what = errManifest
			}
			return problem.Newf(problem.Unavailable, "%w: %s: %v", what, path, err)
		}
		if n > 0 {
			s.wasRestored(name, n)
		}
	}
	return nil
}

// mendLog restores a log and returns the number of restored places. A check or a repair drops
// what cannot be restored.
func (s *Store) mendLog(path string, number uint32, inUse bool) (restored int, err error) {
	fs := s.opts.fs
	restored, err = mergeLog(fs, path, number)
	if err != nil || !inUse || verifyLogFile(fs, path, number) == nil {
		return restored, err
	}
	n, err := unflipLog(fs, path, number)
	if err == nil {
		err = verifyLogFile(fs, path, number)
	}
	if err != nil && s.report != nil && number > 0 {
		err = s.rewriteLog(path, number)
	}
	return restored + n, err
}

// mergeLog restores a log from its mirror and returns the number of restored blocks.
func mergeLog(fs vfs.FS, name string, number uint32) (restored int, err error) {
	f, err := fs.Open(name, vfs.SequentialReadsOption)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	m, err := fs.Open(name+mirrorSuffix, vfs.SequentialReadsOption)
	if errors.Is(err, iofs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	fixes, err := compareLogs(f, m, number)
	if err != nil || len(fixes) == 0 {
		return 0, err
	}
	return len(fixes), writeFixes(fs, name, fixes)
}

// compareLogs returns the blocks of a log that must be replaced.
func compareLogs(log, mirror io.ReaderAt, number uint32) (fixes []fix, err error) {
	a, b := make([]byte, logBlock), make([]byte, logBlock)
	for at := int64(0); ; at += logBlock {
		nb, err := mirror.ReadAt(b, at)
		if nb == 0 {
			return fixes, notEnd(err)
		}
		na, err := log.ReadAt(a, at)
		if err := notEnd(err); err != nil {
			return nil, err
		}
		if bytes.HasPrefix(a[:na], b[:nb]) {
			continue
		}
		if m := merged(a[:na], b[:nb], number); !bytes.Equal(m, a[:na]) {
			fixes = append(fixes, fix{at, m})
		}
	}
}

func notEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
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

func verifyLogFile(fs vfs.FS, name string, number uint32) (err error) {
	f, err := fs.Open(name, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return verifyLog(f, number, readEnd(fs, name))
}

// verifyLog returns an error if a log has a damaged chunk that was once complete. That is
// certain if the log was synced beyond the chunk, or, in a manifest, if another record
// follows, because each record is synced before the next one. It is unknown what the chunk
// contained. closed is the size of a log that was closed, or 0.
func verifyLog(f io.ReaderAt, number uint32, closed int64) error {
	v := verifier{number: number, damaged: -1}
	block := make([]byte, logBlock)
	size := int64(0)
	for at := int64(0); ; at += logBlock {
		n, err := f.ReadAt(block, at)
		size += int64(n)
		if n == 0 {
			return errors.Join(notEnd(err), v.end(size, closed))
		}
		if v.block(at, block[:n]) {
			return fmt.Errorf("it is damaged at byte %d", v.damaged)
		}
	}
}

// end returns an error if a log with this size has not all that it had when it was closed.
func (v *verifier) end(size, closed int64) error {
	if v.damaged >= 0 && v.damaged < closed {
		return fmt.Errorf("it is damaged at byte %d", v.damaged)
	}
	if size < closed {
		return fmt.Errorf("it is cut off at byte %d of %d", size, closed)
	}
	return nil
}

type verifier struct {
	number  uint32
	damaged int64 // offset of the first invalid chunk; -1: none
}

// block reports whether a chunk of the block shows that the damaged chunk was once complete.
func (v *verifier) block(at int64, b []byte) bool {
	for k := 0; k < len(b); {
		c, ok := chunkAt(b[k:], v.number)
		if ok {
			if v.damaged >= 0 && (c.synced > v.damaged || v.number == 0 && c.begins) {
				return true
			}
			k += c.size
			continue
		}
		rest := b[k:]
		if len(rest) < syncHeader && isZero(rest) {
			return false
		}
		if v.damaged < 0 {
			v.damaged = at + int64(k)
		}
		// The next chunk can begin at any offset.
		if k++; isZero(rest) {
			return false
		}
	}
	return false
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
