package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Repair rewrites a log that is damaged in the same place as its mirror, without the
// unreadable part. A record of a log is a commit: a batch of changes. Each change has its own
// checksum, except deletions. So Repair keeps the changes of a damaged commit that match their
// checksums.

// A logRecord is one commit of a damaged log.
type logRecord struct {
	at      int64
	batch   []byte
	damaged bool
}

// A logScan reads a log with damaged parts.
type logScan struct {
	number  uint32
	records []logRecord
	holes   [][2]int64 // unreadable ranges with readable data after them
	fixes   []fix      // chunks with one flipped bit

	hole  int64 // start of the unreadable range; -1: there is none
	open  bool  // a record has begun
	part  logRecord
	end   int64 // of the last chunk
	ended bool
}

// block scans a block of the log.
func (s *logScan) block(at int64, b []byte) {
	for k := 0; k < len(b) && !s.ended; {
		rest := b[k:]
		size, damaged := s.chunk(at+int64(k), rest)
		if size == 0 {
			if s.hole < 0 && !isZero(rest) {
				s.hole = at + int64(k)
			}
			if isZero(rest) {
				return
			}
			k++ // the next chunk can begin at any offset
			continue
		}
		s.add(at+int64(k), rest[:size], damaged)
		k += size
	}
}

// chunk returns the size of the chunk at the start of b, or 0 if there is none. It repairs a
// single flipped bit. Other damaged bytes count as a chunk only if a chunk follows them.
func (s *logScan) chunk(at int64, b []byte) (size int, damaged bool) {
	if c, ok := chunkAt(b, s.number); ok {
		return c.size, false
	}
	if s.hole >= 0 { // it can begin at any offset
		return 0, false
	}
	if size := unflip(b, s.number); size > 0 {
		s.fixes = append(s.fixes, fix{at, bytes.Clone(b[:size])})
		return size, false
	}
	if len(b) < plainHeader || b[6] == 0 || b[6] > 3*chunkKinds {
		return 0, false
	}
	size = headerSize(b[6]) + int(binary.LittleEndian.Uint16(b[4:]))
	if size >= len(b) {
		return 0, false
	}
	_, follows := chunkAt(b[size:], s.number)
	if !follows {
		size = 0
	}
	return size, true
}

// unflip repairs a single flipped bit in the chunk at the start of b, and returns the size of
// the chunk, or 0 if that is not possible.
func unflip(b []byte, number uint32) (size int) {
	if len(b) < plainHeader {
		return 0
	}
	try := func(at, bit int) bool {
		b[at] ^= 1 << bit
		c, ok := chunkAt(b, number)
		if size = c.size; !ok {
			b[at] ^= 1 << bit
		}
		return ok
	}
	for bit := range 8 { // first the bits of the length and the kind
		if try(4, bit) || try(5, bit) || try(6, bit) {
			return size
		}
	}
	if b[6] == 0 || b[6] > 3*chunkKinds {
		return 0
	}
	end := headerSize(b[6]) + int(binary.LittleEndian.Uint16(b[4:]))
	for at := range min(end, len(b)) {
		for bit := range 8 {
			if try(at, bit) {
				return size
			}
		}
	}
	return 0
}

// add adds a chunk, which is a record or a part of one.
func (s *logScan) add(at int64, c []byte, damaged bool) {
	kind, data := (c[6]-1)%chunkKinds+1, c[headerSize(c[6]):]
	s.end = at + int64(len(c))
	if s.hole >= 0 {
		s.holes, s.hole, s.open = append(s.holes, [2]int64{s.hole, at}), -1, false
	}
	if len(data) == 0 { // the mark at the end of a log
		s.ended = true
		return
	}
	if kind == fullChunk || kind == firstChunk {
		s.part, s.open = logRecord{at: at}, true
	}
	if !s.open {
		return // its beginning is in an unreadable range
	}
	s.part.batch = append(s.part.batch, data...)
	s.part.damaged = s.part.damaged || damaged
	if kind == fullChunk || kind == lastChunk {
		s.records, s.open = append(s.records, s.part), false
	}
}

func scanLog(fs vfs.FS, path string, number uint32) (*logScan, error) {
	b, err := readAll(fs, path)
	s := &logScan{number: number, hole: -1}
	for at := 0; at < len(b); at += logBlock {
		s.block(int64(at), b[at:min(at+logBlock, len(b))])
	}
	return s, err
}

// unflipLog repairs single flipped bits of a log, and returns the number of repaired chunks.
func unflipLog(fs vfs.FS, path string, number uint32) (int, error) {
	scan, err := scanLog(fs, path, number)
	if err != nil || len(scan.fixes) == 0 {
		return 0, err
	}
	return len(scan.fixes), writeFixes(fs, path, scan.fixes)
}

// rewriteLog rewrites a damaged log and reports what is lost.
func (s *Store) rewriteLog(path string, number uint32) error {
	scan, err := scanLog(s.opts.fs, path, number)
	if err != nil {
		return err
	}
	name := s.opts.fs.PathBase(path)
	if closed := readEnd(s.opts.fs, path); scan.end < closed {
		scan.holes = append(scan.holes, [2]int64{scan.end, closed})
	}
	for _, h := range scan.holes {
		s.lost(Fault{Key: name, What: fmt.Sprintf("the bytes from %d to %d cannot be read; what was changed there is as it was before", h[0], h[1])})
	}
	s.renumber = true
	return s.writeLog(path, scan.records)
}

// lost adds a fault to the report of a check or a repair.
func (s *Store) lost(f Fault) {
	if s.report != nil {
		s.report.Faults = append(s.report.Faults, f)
	}
}

// writeLog replaces a log by one with these records.
func (s *Store) writeLog(path string, records []logRecord) error {
	fs := s.opts.fs
	f, err := fs.Create(path+partial, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	w := record.NewWriter(f)
	next := uint64(0) // the first sequence number after the previous record
	for k := range records {
		batch := records[k].batch
		if records[k].damaged {
			batch = s.salvage(fs.PathBase(path), &records[k])
			setSequence(batch, next, sequenceOf(records[k+1:]))
		}
		if len(batch) < batchrepr.HeaderLen {
			continue
		}
		h, _ := batchrepr.ReadHeader(batch)
		next = uint64(h.SeqNum) + uint64(h.Count)
		if _, err := w.WriteRecord(batch); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := errors.Join(w.Close(), f.Sync(), f.Close()); err != nil {
		return err
	}
	_ = fs.Remove(path + mirrorSuffix) // it belongs to the old log
	if err := dropEnd(fs, path); err != nil {
		return err
	}
	return errors.Join(fs.Rename(path+partial, path), syncDir(fs, s.dir))
}

// sequenceOf returns the sequence number of the first undamaged record, or 0 if there is none.
func sequenceOf(records []logRecord) uint64 {
	for k := range records {
		if h, ok := batchrepr.ReadHeader(records[k].batch); ok && !records[k].damaged {
			return uint64(h.SeqNum)
		}
	}
	return 0
}

// setSequence gives a batch a sequence number between those of its neighbours, if its own is
// outside. from is the first free number. before is the number of the following record, 0 if
// unknown.
func setSequence(batch []byte, from, before uint64) {
	h, ok := batchrepr.ReadHeader(batch)
	if !ok {
		return
	}
	own, n := uint64(h.SeqNum), uint64(h.Count)
	switch {
	case own >= from && before > 0 && own+n <= before && own+n > own:
	case from > 0:
		binary.LittleEndian.PutUint64(batch, from)
	case before > n:
		binary.LittleEndian.PutUint64(batch, before-n)
	}
}

// salvage builds a batch from the changes of a damaged one that match their checksums. It
// replaces a damaged change by a deletion, because an older value may be outdated. It drops
// deletions, which have no checksum: a damaged one could delete the wrong record. Only the
// deletions of intents are kept.
func (s *Store) salvage(log string, damaged *logRecord) []byte {
	var b pebble.Batch
	r := batchrepr.Read(damaged.batch)
	for {
		kind, key, value, ok, err := r.Next()
		if err != nil || !ok || len(key) == 0 {
			break
		}
		if kindNames[key[0]] == "" {
			continue
		}
		switch kind {
		case pebble.InternalKeyKindSet:
			if _, err := verify(key, value); err == nil {
				_ = b.Set(key, value, nil)
				continue
			}
			s.lost(Fault{Key: name(key), What: "its last change is lost, in " + log})
			if !writtenOnce(key) {
				_ = b.Delete(key, nil)
			}
		case pebble.InternalKeyKindMerge:
			if (&endpointCounters{}).add(value) == nil {
				_ = b.Merge(key, value, nil)
			}
		case pebble.InternalKeyKindDelete:
			if key[0] == keyIntent { // otherwise its payload would be removed
				_ = b.Delete(key, nil)
			}
		}
	}
	h, _ := batchrepr.ReadHeader(damaged.batch)
	s.lost(Fault{Key: log, What: fmt.Sprintf("a commit at byte %d is damaged: %d of %d changes are left", damaged.at, b.Count(), h.Count)})
	if b.Empty() {
		return nil
	}
	repr := append([]byte{}, b.Repr()...)
	binary.LittleEndian.PutUint64(repr, binary.LittleEndian.Uint64(damaged.batch))
	return repr
}
