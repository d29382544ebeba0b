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

// A log, of commits or of tables (a manifest), has a mirror beside it: every byte is written
// to both, and only the log is synced. At the opening of the store a part of the log that
// does not match its checksum is taken from the mirror.
//
// The database itself takes a damaged record at the end of a log for one that was never
// written whole, and leaves it out. So without a mirror the last record that was acknowledged
// can be lost in silence.
const mirrorSuffix = ".mirror"

// manifestPrefix is what the names of manifests begin with.
const manifestPrefix = "MANIFEST-"

// A log is blocks of 32 KiB, and a block is chunks: a checksum, a length, a kind, and what
// the kind has; then the data. A record is a full chunk, or a first one, others, and a last
// one. The rest of a block that has no room for a chunk is zero.
const (
	logBlock = 32 << 10

	fullChunk  = 1
	firstChunk = 2
	lastChunk  = 4
	chunkKinds = 4 // in each of the three formats

	plainHeader = 7               // of manifests
	numbered    = plainHeader + 4 // also has the number of the log
	syncHeader  = numbered + 8    // and how much of the log was synced when it was written
)

// isLog reports whether a file is a log, and which number its chunks have: 0 for a manifest,
// whose chunks have none.
func isLog(base string) (number uint32, ok bool) {
	if name, ok := strings.CutPrefix(base, manifestPrefix); ok {
		_, err := strconv.ParseUint(name, 10, 64)
		return 0, err == nil
	}
	name, ok := strings.CutSuffix(base, ".log")
	n, err := strconv.ParseUint(name, 10, 64)
	return uint32(n), ok && err == nil
}

// A chunk is one that matches its checksum.
type chunk struct {
	size   int
	begins bool  // a record
	synced int64 // bytes of the log that were synced when it was written
}

// chunkAt is the chunk that b begins with; ok is false when there is none.
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
		// The chunk that ends a log has the next number.
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

// headerSize is the size of the header of a chunk, by the byte that has its format and kind.
func headerSize(kind byte) int {
	return [...]int{plainHeader, numbered, syncHeader}[(kind-1)/chunkKinds]
}

// maskedSum is the checksum of a chunk, as LevelDB has it.
func maskedSum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// merged is a block of a log with what is damaged of it taken from the same block of its
// mirror.
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

// maxRuns is how many stretches of a chunk may differ between a log and its mirror.
const maxRuns = 10

// combined is the chunk that begins a log and its mirror where both are damaged, in different
// places: of each stretch in which they differ the one or the other is right. It is nil when
// no choice of them matches the checksum.
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

// differences are the stretches in which a and b, which are as long, differ; more than maxRuns
// if they have more.
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

// maskedSum is
// mendLogs restores every log of the directory from its mirror, and refuses one that is
// damaged all the same.
func (s *Store) mendLogs() error {
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

// mendLog restores a log and says in how many places. For a check or a repair it gives up what
// cannot be restored.
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

// mergeLog restores a log from its mirror, and says in how many places.
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

// compareLogs finds what of a log is to be replaced.
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

// inUse reports whether a log is what the database opens: manifests before the last one are
// not.
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
	return verifyLog(f, number)
}

// verifyLog refuses a log that has a damaged chunk where it was whole once: the log was synced
// beyond it, or, in a manifest, another record begins behind it, before which it was synced.
// What the damaged chunk had is not known, and neither is what would be lost with it.
func verifyLog(f io.ReaderAt, number uint32) error {
	v := verifier{number: number, damaged: -1}
	block := make([]byte, logBlock)
	for at := int64(0); ; at += logBlock {
		n, err := f.ReadAt(block, at)
		if n == 0 {
			return notEnd(err)
		}
		if v.block(at, block[:n]) {
			return fmt.Errorf("it is damaged at byte %d", v.damaged)
		}
	}
}

// A verifier goes through a log once.
type verifier struct {
	number  uint32
	damaged int64 // where the first chunk is that is none; -1: all are
}

// block reports whether a chunk of the block shows that what is damaged was whole once.
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
		// The next chunk may begin anywhere.
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
