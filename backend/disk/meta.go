package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/problem"
)

// A meta contains the settings of the directory.
type meta struct {
	epoch uint32 // of tokens; every opening starts a new one
	uid   uint64 // uids from here on are unused
	seq   uint64 // sequence numbers from here on are unused
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

// number reads a setting, or 0 if there is none. known is false if the setting may be lost.
func (e *engine) number(name string) (n uint64, known bool, err error) {
	v, ok, err := e.get(textKey(keyMeta, name))
	switch {
	case errors.Is(err, ErrDamaged), ok && len(v) != 8:
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case !ok:
		return 0, !e.lost[keyMeta], nil
	}
	return binary.LittleEndian.Uint64(v), true, nil
}

// loadMeta checks that this program can read the directory, and makes a new epoch durable.
// From then on no token of an earlier epoch is issued.
func (e *engine) loadMeta() error {
	b := e.db.NewBatch()
	defer func() { _ = b.Close() }()
	if err := errors.Join(e.checkFormat(b), e.checkKey(b)); err != nil {
		return err
	}
	epoch, err := e.loadNumbers()
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
	epoch++
	putNumber(b, metaEpoch, epoch)
	e.meta.epoch = uint32(epoch)
	if err := e.db.Apply(b, pebble.Sync); err != nil {
		return fmt.Errorf("disk: write the epoch: %w", err)
	}
	if copied { // if a crash undoes the removal, the epoch grows once more
		if err := e.fs.Remove(e.fs.PathJoin(e.s.dir, copiedName)); err != nil {
			return fmt.Errorf("disk: note that the copy is in use: %w", err)
		}
	}
	return e.err()
}

// checkFormat refuses a directory with an unknown format.
func (e *engine) checkFormat(b *pebble.Batch) error {
	version, known, err := e.number(metaFormat)
	if err != nil {
		return err
	}
	switch {
	case version > formatVersion:
		return problem.Newf(problem.Unavailable, "%w: %s has version %d, this program knows %d", ErrFormat, e.s.dir, version, formatVersion)
	case version < oldestFormat && known:
		if err := e.mustBeEmpty(); err != nil {
			return err
		}
	}
	if version != formatVersion {
		putNumber(b, metaFormat, formatVersion)
	}
	return nil
}

// loadNumbers reads the epoch and the other numbers. A lost number is replaced by one that is
// larger than all in use.
func (e *engine) loadNumbers() (epoch uint64, err error) {
	epoch, haveEpoch, err1 := e.number(metaEpoch)
	uid, haveUID, err2 := e.number(metaUID)
	seq, haveSeq, err3 := e.number(metaSeq)
	if err := errors.Join(err1, err2, err3); err != nil {
		return 0, err
	}
	if !haveEpoch || !haveUID || !haveSeq || e.s.logs.renumber {
		used, err := e.numbersInUse()
		if err != nil {
			return 0, err
		}
		e.s.logs.renumber = false
		e.s.opts.Logger.Error("settings of the store cannot be read, and are made anew", "dir", e.s.dir)
		epoch = max(epoch, uint64(used.epoch)+copiedEpochs)
		uid, seq = max(uid, used.uid+reserve), max(seq, used.seq+reserve)
	}
	e.meta.uid, e.meta.seq = uid, seq
	return epoch, nil
}

// numbersInUse returns the largest numbers in readable records.
func (e *engine) numbersInUse() (m meta, err error) {
	for _, kind := range []byte{keyJob, keyBody, keyEntry, keyAttempt, keyDead} {
		uid, err := e.lastUID(kind)
		if err != nil {
			return m, err
		}
		m.uid = max(m.uid, uid)
	}
	for _, kind := range []byte{keyJob, keyEntry, keyDead} {
		err := e.loadEach(kind, func(key, value []byte) error {
			var s stored
			err := s.decode(key, value)
			m.epoch = max(m.epoch, uint32(s.state.Token>>32))
			m.seq = max(m.seq, s.state.Seq)
			return err
		})
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

func (e *engine) lastUID(kind byte) (uint64, error) {
	from, to := prefixRange([]byte{kind})
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return 0, err
	}
	uid := uint64(0)
	if it.Last() {
		uid, _ = uidOfKey(it.Key())
	}
	return uid, errors.Join(it.Error(), it.Close())
}

// mustBeEmpty refuses a database that another program created.
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

// checkKey refuses a wrong key, because half of the secrets would be lost with it. If an old
// key is right, it encrypts all secrets with the new key.
func (e *engine) checkKey(b *pebble.Batch) error {
	key := textKey(keyMeta, metaKey)
	sealed, ok, err := e.get(key)
	if errors.Is(err, ErrDamaged) || err == nil && !ok && e.lost[keyMeta] {
		ok, err = false, e.checkSecrets()
	}
	switch {
	case err != nil:
		return err
	case ok && e.isKnown(sealer{key: e.seals.key}, sealed):
		return nil
	case ok && e.isKnown(e.seals, sealed), !ok && e.seals.key != nil && len(e.seals.old) > 0: // or the known text is missing, and it is unknown whether there are secrets
		if err := e.reseal(); err != nil {
			return err
		}
	case ok && (e.s.report == nil || e.seals.key == nil):
		return problem.Newf(problem.Unavailable, "%w: %s", ErrKey, e.s.dir)
	case ok:
		e.s.lost(Fault{Key: "the secret key", What: "it is not the one that the store was made with: what is sealed is lost"})
	case e.seals.key == nil:
		return nil
	}
	return e.putKnown(b)
}

// isKnown reports whether seals can decrypt the known text.
func (e *engine) isKnown(seals sealer, sealed []byte) bool {
	text, err := seals.open(textKey(keyMeta, metaKey), sealed)
	return err == nil && string(text) == knownText
}

// putKnown stores the encrypted known text.
func (e *engine) putKnown(b *pebble.Batch) error {
	key := textKey(keyMeta, metaKey)
	sealed, err := e.seals.seal(key, []byte(knownText))
	if err == nil {
		put(b, key, sealed)
	}
	return err
}

// checkSecrets refuses a key that decrypts none of the registry credentials.
func (e *engine) checkSecrets() error {
	sealed, opened := 0, 0
	err := e.loadEach(keyRegistry, func(key, value []byte) error {
		sealed++
		if _, err := decodeCredential(e.seals, key, value); err == nil {
			opened++
		}
		return nil
	})
	if err == nil && sealed > 0 && opened == 0 && e.s.report == nil {
		err = problem.Newf(problem.Unavailable, "%w: %s", ErrKey, e.s.dir)
	}
	return err
}

// counterMerger adds up the three counters of deleted and retried jobs. Addition is
// commutative, so commits do not need to be ordered.
func counterMerger() *pebble.Merger {
	return &pebble.Merger{
		Name: "podyard.sums.1",
		Merge: func(_, value []byte) (pebble.ValueMerger, error) {
			m := &counterMerge{}
			return m, m.MergeNewer(value)
		},
	}
}

// counterMerge is a partial sum. A damaged operand makes the sum damaged. It is not an error,
// because an error would stop the compaction.
type counterMerge struct {
	sums    endpointCounters
	damaged bool
}

// MergeNewer implements pebble.ValueMerger.
func (m *counterMerge) MergeNewer(value []byte) error {
	m.damaged = m.damaged || m.sums.add(value) != nil
	return nil
}

// MergeOlder implements pebble.ValueMerger.
func (m *counterMerge) MergeOlder(value []byte) error { return m.MergeNewer(value) }

// Finish implements pebble.ValueMerger.
func (m *counterMerge) Finish(bool) ([]byte, io.Closer, error) {
	b := m.sums.bytes()
	if m.damaged {
		b[len(b)-1] ^= 0xff
	}
	return b, nil, nil
}

// endpointCounters are counters of an endpoint: completed, failed, retried.
type endpointCounters [3]int64

func (s *endpointCounters) add(value []byte) error {
	if len(value) != len(s)*8+checksumSize {
		return errors.New("disk: a counter of unknown size")
	}
	n := len(value) - checksumSize
	if checksum(nil, value[:n]) != binary.LittleEndian.Uint32(value[n:]) {
		return ErrDamaged
	}
	for i := range s {
		s[i] += int64(binary.LittleEndian.Uint64(value[i*8:]))
	}
	return nil
}

func (s *endpointCounters) bytes() []byte {
	b := make([]byte, 0, len(s)*8+checksumSize)
	for _, n := range s {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return binary.LittleEndian.AppendUint32(b, checksum(nil, b))
}
