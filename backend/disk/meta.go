package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/problem"
)

// formatVersion is what this program writes. It grows when a program that knows only the
// last one could misread what it finds. Since version 2 a job can be in a run above 255.
const (
	formatVersion = 2
	oldestFormat  = 1
)

// A meta is what the directory says of itself.
type meta struct {
	epoch uint32 // of tokens: one for each opening
	uid   uint64 // uids from here on were never used
	seq   uint64 // likewise
}

// The settings and their keys.
const (
	metaFormat = "format"
	metaEpoch  = "epoch"
	metaKey    = "key" // a known text, sealed
	metaUID    = "uid"
	metaSeq    = "seq"
)

const knownText = "podyard"

func putNumber(b *pebble.Batch, name string, n uint64) {
	put(b, textKey(keyMeta, name), binary.LittleEndian.AppendUint64(nil, n))
}

// number reads a setting, 0 when it is not there.
func (e *engine) number(name string) (uint64, error) {
	v, ok, err := e.get(textKey(keyMeta, name))
	if err != nil || !ok {
		return 0, err
	}
	if len(v) != 8 {
		return 0, damaged(textKey(keyMeta, name))
	}
	return binary.LittleEndian.Uint64(v), nil
}

// loadMeta checks that the directory is one that this program can read, and makes a new
// epoch durable: from here on no token of an earlier one is issued.
func (e *engine) loadMeta() error {
	version, err := e.number(metaFormat)
	if err != nil {
		return err
	}
	b := e.db.NewBatch()
	defer func() { _ = b.Close() }()
	switch {
	case version > formatVersion:
		return problem.Newf(problem.Unavailable, "%w: %s has version %d, this program knows %d", ErrFormat, e.s.dir, version, formatVersion)
	case version < oldestFormat:
		if err := e.mustBeEmpty(); err != nil {
			return err
		}
	}
	if version != formatVersion {
		putNumber(b, metaFormat, formatVersion)
	}
	if err := e.checkKey(b); err != nil {
		return err
	}
	epoch, err := e.number(metaEpoch)
	if err != nil {
		return err
	}
	copied, err := e.copied()
	if err != nil {
		return err
	}
	if copied {
		epoch += copiedEpochs
	}
	if epoch >= math.MaxUint32 {
		return problem.Newf(problem.Unavailable, "%s was opened too often: there is no epoch left", e.s.dir)
	}
	if !e.s.opts.mutants.sameEpoch || epoch == 0 {
		epoch++
	}
	putNumber(b, metaEpoch, epoch)
	e.meta.epoch = uint32(epoch)
	if e.meta.uid, err = e.number(metaUID); err != nil {
		return err
	}
	if e.meta.seq, err = e.number(metaSeq); err != nil {
		return err
	}
	if err := e.db.Apply(b, pebble.Sync); err != nil {
		return fmt.Errorf("disk: write the epoch: %w", err)
	}
	if copied { // if it should be there again the epoch is raised once more
		if err := e.fs.Remove(e.fs.PathJoin(e.s.dir, copiedName)); err != nil {
			return fmt.Errorf("disk: note that the copy is in use: %w", err)
		}
	}
	return e.err()
}

// mustBeEmpty refuses a database that somebody else made.
func (e *engine) mustBeEmpty() error {
	it, err := e.db.NewIter(nil)
	if err != nil {
		return err
	}
	found := it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return err
	}
	if found {
		return problem.Newf(problem.Unavailable, "%w: %s holds a database of something else", ErrFormat, e.s.dir)
	}
	return nil
}

// checkKey refuses another key than the first one: half of the secrets would be lost.
func (e *engine) checkKey(b *pebble.Batch) error {
	key := textKey(keyMeta, metaKey)
	sealed, ok, err := e.get(key)
	switch {
	case err != nil:
		return err
	case ok:
		text, err := e.seals.open(key, sealed)
		if err != nil || !slices.Equal(text, []byte(knownText)) {
			return problem.Newf(problem.Unavailable, "%w: %s", ErrKey, e.s.dir)
		}
	case e.seals.key != nil:
		sealed, err := e.seals.seal(key, []byte(knownText))
		if err != nil {
			return err
		}
		put(b, key, sealed)
	}
	return nil
}

// counterMerger adds up what deleted jobs have counted for: three numbers. Sums commute,
// so that commits need not know of each other.
func counterMerger() *pebble.Merger {
	return &pebble.Merger{
		Name: "podyard.sums.1",
		Merge: func(_, value []byte) (pebble.ValueMerger, error) {
			s := &sums{}
			return s, s.add(value)
		},
	}
}

// sums are counters of an endpoint: completed, failed, retried.
type sums [3]int64

func (s *sums) add(value []byte) error {
	if len(value) != len(s)*8+sumSize {
		return errors.New("disk: a counter of unknown size")
	}
	n := len(value) - sumSize
	if sum(nil, value[:n]) != binary.LittleEndian.Uint32(value[n:]) {
		return ErrDamaged
	}
	for i := range s {
		s[i] += int64(binary.LittleEndian.Uint64(value[i*8:]))
	}
	return nil
}

func (s *sums) bytes() []byte {
	b := make([]byte, 0, len(s)*8+sumSize)
	for _, n := range s {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return binary.LittleEndian.AppendUint32(b, sum(nil, b))
}

// MergeNewer implements pebble.ValueMerger.
func (s *sums) MergeNewer(value []byte) error { return s.add(value) }

// MergeOlder implements pebble.ValueMerger.
func (s *sums) MergeOlder(value []byte) error { return s.add(value) }

// Finish implements pebble.ValueMerger.
func (s *sums) Finish(bool) ([]byte, io.Closer, error) { return s.bytes(), nil, nil }
