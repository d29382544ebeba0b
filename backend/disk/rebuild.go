package disk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem"
)

// Without a manifest it is unknown which tables belong to the database, and which of them are
// newer. Repair then builds a new database from all tables and logs of the directory. For each
// key it takes the entry with the largest sequence number. Entries with sequence number 0 are
// entries with nothing older below them, and entries of ingested tables. Of two such entries
// it takes the one in the table with the larger number. Then it applies the changes of all
// logs in order. An obsolete log does no harm, because all later logs follow.

// The directory in which the new database is built, and its files that record the progress.
const (
	rebuiltName = "rebuilt"
	wholeName   = "whole"  // the new database is complete and must replace the old one
	movingName  = "moving" // the files of the old database have been moved away
)

// errManifest: the manifest is lost.
var errManifest = problem.Newf(problem.Unavailable, "%w: the manifest cannot be read", ErrDamaged)

// A rebuilding builds a new database.
type rebuilding struct {
	s      *Store
	old    *engine // only for its options
	db     *pebble.DB
	tables []oldTable
	newest map[string]version   // of each key
	counts map[string][]counted // all entries of each counter
	spans  []deletedSpan
}

// An oldTable is a table that can be read.
type oldTable struct {
	r    *sstable.Reader
	gaps []gap // unreadable ranges of keys
}

// A version is the newest entry of a key so far.
type version struct {
	seq   pebble.SeqNum
	table int
	set   bool // not a deletion
}

// A counted is one entry of a counter.
type counted struct {
	version
	base  bool // older entries do not count
	value []byte
}

// A deletedSpan is a range deletion.
type deletedSpan struct {
	start, end []byte
	seq        pebble.SeqNum
}

// rebuild builds a new database from the tables and logs.
func (s *Store) rebuild(ctx context.Context) (err error) {
	fs := s.opts.fs
	dir := fs.PathJoin(s.dir, rebuiltName)
	r := &rebuilding{s: s, old: s.newEngine(), newest: map[string]version{}, counts: map[string][]counted{}}
	defer r.old.fs.close()
	if err := errors.Join(fs.RemoveAll(dir), fs.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	names, err := fs.List(s.dir)
	if err != nil {
		return err
	}
	slices.SortFunc(names, compareNames)
	if err := r.fill(ctx, dir, names); err != nil {
		return err
	}
	s.logs.renumber = true
	f, err := fs.Create(fs.PathJoin(dir, wholeName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close(), syncDir(fs, dir), syncDir(fs, s.dir)); err != nil {
		return err
	}
	return s.finishRebuild()
}

// compareNames orders files by the numbers at the start of their names.
func compareNames(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// fill fills the new database.
func (r *rebuilding) fill(ctx context.Context, dir string, names []string) (err error) {
	e := r.s.newEngine()
	e.fs = newFence(r.s.opts.fs, dir, func(what, name string, err error) {
		e.fail(problem.Newf(problem.Unavailable, "the store cannot be made anew: %s %s: %w", what, name, err))
	})
	defer e.fs.close()
	if r.db, err = pebble.Open(dir, r.s.pebbleOptions(e)); err != nil {
		return err
	}
	err = r.takeTables(ctx, names)
	for _, step := range []func() error{func() error { return r.takeLogs(names) }, r.db.Flush} {
		if err == nil {
			err = step()
		}
	}
	// The fence hides a failure from the database, so check the engine, too.
	return errors.Join(err, r.db.Close(), e.err())
}

// finishRebuild replaces the old database by the new one. It continues an interrupted
// replacement, and removes an incomplete new database.
func (s *Store) finishRebuild() error {
	fs, dir := s.opts.fs, s.opts.fs.PathJoin(s.dir, rebuiltName)
	names, err := fs.List(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case slices.Contains(names, wholeName):
		if err := s.moveAside(); err != nil {
			return err
		}
		if err := fs.Rename(fs.PathJoin(dir, wholeName), fs.PathJoin(dir, movingName)); err != nil {
			return err
		}
		if err := syncDir(fs, dir); err != nil {
			return err
		}
	case !slices.Contains(names, movingName):
		return fs.RemoveAll(dir)
	}
	for _, name := range names {
		if name == wholeName || name == movingName || name == lockName {
			continue
		}
		if err := fs.Rename(fs.PathJoin(dir, name), fs.PathJoin(s.dir, name)); err != nil {
			return err
		}
	}
	return errors.Join(syncDir(fs, s.dir), fs.RemoveAll(dir))
}

// moveAside moves the files of the old database away.
func (s *Store) moveAside() error {
	fs, aside := s.opts.fs, s.opts.fs.PathJoin(s.dir, asideName)
	names, err := fs.List(s.dir)
	if err != nil {
		return err
	}
	if err := fs.MkdirAll(aside, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		if !ofDatabase(withoutProtection(name)) {
			continue
		}
		if err := fs.Rename(fs.PathJoin(s.dir, name), fs.PathJoin(aside, name)); err != nil {
			return err
		}
	}
	return errors.Join(syncDir(fs, aside), syncDir(fs, s.dir))
}

// ofDatabase reports whether a file belongs to the database.
func ofDatabase(name string) bool {
	_, log := isLog(name)
	return log || strings.HasSuffix(name, ".sst") || strings.HasPrefix(name, "OPTIONS-") || strings.HasPrefix(name, "marker.") || strings.HasPrefix(name, stagePrefix)
}

// takeTables copies the entries of the tables.
func (r *rebuilding) takeTables(ctx context.Context, names []string) (err error) {
	defer func() {
		for _, t := range r.tables {
			err = errors.Join(err, t.r.Close())
		}
	}()
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		if err := r.addTable(ctx, name); err != nil {
			return err
		}
	}
	r.deleteSpans()
	r.s.lost(Fault{Key: "MANIFEST", What: fmt.Sprintf("it cannot be read; the store is made anew from %d tables and the logs, and what was changed or deleted last may be there as it was before", len(r.tables))})
	for k := range r.tables {
		if err := errors.Join(ctx.Err(), r.copyTable(k)); err != nil {
			return err
		}
	}
	return r.writeCounts()
}

// addTable records the readable entries of a table.
func (r *rebuilding) addTable(ctx context.Context, name string) error {
	path := r.s.opts.fs.PathJoin(r.s.dir, name)
	t := oldTable{}
	var err error
	if t.r, err = r.old.openTable(ctx, path); err == nil {
		t.gaps, _, err = damagedBlocks(ctx, t.r)
	}
	if err != nil {
		r.s.lost(Fault{Key: name, What: "it cannot be read"})
		if t.r != nil {
			_ = t.r.Close() // it was only read
		}
		return nil
	}
	for _, g := range t.gaps {
		r.s.lost(Fault{Key: name, What: fmt.Sprintf("what it had of the keys from %x to %x could not be read", g.From, g.To)})
	}
	r.tables = append(r.tables, t)
	k := len(r.tables) - 1
	return errors.Join(r.addSpans(ctx, t.r), t.each(func(t *tableEntry) error { return r.note(k, t) }))
}

// each calls fn with the readable entries of the table.
func (t *oldTable) each(fn func(t *tableEntry) error) error {
	var from []byte
	for _, g := range append(slices.Clone(t.gaps), gap{}) {
		if err := eachEntry(t.r, from, g.From, fn); err != nil {
			return err
		}
		from = g.To
	}
	return nil
}

// A tableEntry is an entry of a table. It is valid until the next one is read.
type tableEntry struct {
	key   []byte
	seq   pebble.SeqNum
	kind  pebble.InternalKeyKind
	value func() ([]byte, error)
}

func eachEntry(r *sstable.Reader, from, to []byte, fn func(t *tableEntry) error) error {
	it, err := r.NewIter(sstable.NoTransforms, from, to, sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	for kv := it.First(); kv != nil; kv = it.Next() {
		value := func() ([]byte, error) {
			v, _, err := kv.Value(nil)
			return v, err
		}
		if err := fn(&tableEntry{kv.K.UserKey, kv.SeqNum(), kv.Kind(), value}); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// note records an entry if it is the newest of its key.
func (r *rebuilding) note(table int, t *tableEntry) error {
	key, v := t.key, version{seq: t.seq, table: table}
	switch t.kind {
	case pebble.InternalKeyKindSet, pebble.InternalKeyKindSetWithDelete, pebble.InternalKeyKindMerge:
		v.set = true
	}
	if len(key) > 0 && key[0] == keyCount {
		value, err := t.value()
		c := counted{version: v, base: t.kind != pebble.InternalKeyKindMerge, value: bytes.Clone(value)}
		r.counts[string(key)] = append(r.counts[string(key)], c)
		return err
	}
	if old, ok := r.newest[string(key)]; !ok || old.compare(v) < 0 {
		r.newest[string(key)] = v
	}
	return nil
}

func (v version) compare(w version) int {
	return cmp.Or(cmp.Compare(v.seq, w.seq), cmp.Compare(v.table, w.table))
}

// addSpans records the range deletions of a table.
func (r *rebuilding) addSpans(ctx context.Context, t *sstable.Reader) error {
	it, err := t.NewRawRangeDelIter(ctx, sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil || it == nil {
		return err
	}
	defer it.Close()
	span, err := it.First()
	for ; span != nil; span, err = it.Next() {
		r.spans = append(r.spans, deletedSpan{bytes.Clone(span.Start), bytes.Clone(span.End), span.LargestSeqNum()})
	}
	return err
}

// deleteSpans removes the entries that range deletions delete.
func (r *rebuilding) deleteSpans() {
	if len(r.spans) == 0 {
		return
	}
	keys := slices.Sorted(maps.Keys(r.newest))
	for _, d := range r.spans {
		at, _ := slices.BinarySearch(keys, string(d.start))
		for ; at < len(keys) && keys[at] < string(d.end); at++ {
			if v := r.newest[keys[at]]; v.seq < d.seq {
				v.set = false
				r.newest[keys[at]] = v
			}
		}
	}
}

// copyTable copies the entries of a table that are the newest of their keys.
func (r *rebuilding) copyTable(k int) error {
	b := r.db.NewBatch()
	err := r.tables[k].each(func(t *tableEntry) error {
		if v := r.newest[string(t.key)]; !v.set || v.table != k || v.seq != t.seq {
			return nil
		}
		value, err := t.value()
		if err != nil {
			return err
		}
		if err := b.Set(t.key, value, nil); err != nil || b.Len() < groupBytes {
			return err
		}
		err = errors.Join(r.db.Apply(b, pebble.NoSync), b.Close())
		b = r.db.NewBatch()
		return err
	})
	return errors.Join(err, r.db.Apply(b, pebble.NoSync), b.Close())
}

// writeCounts writes the sums of the counters.
func (r *rebuilding) writeCounts() error {
	for key, all := range r.counts {
		slices.SortFunc(all, func(a, b counted) int { return b.compare(a.version) }) // newest first
		var sum endpointCounters
		for _, c := range all {
			if c.set {
				_ = sum.add(c.value) // skip a damaged one
			}
			if c.base {
				break
			}
		}
		if err := r.db.Set([]byte(key), sum.bytes(), pebble.NoSync); err != nil {
			return err
		}
	}
	return nil
}

// takeLogs applies the logs. Their additions to counters may already be in the tables. So only
// the additions of the last log are applied, which are most likely not in a table yet.
func (r *rebuilding) takeLogs(names []string) error {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		number, ok := isLog(name)
		return !ok || number == 0
	})
	for k, name := range names {
		number, _ := isLog(name)
		_, err := scanLog(r.s.opts.fs, r.s.opts.fs.PathJoin(r.s.dir, name), number, func(_ int64, batch []byte) error {
			return r.takeBatch(batch, k == len(names)-1)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rebuilding) takeBatch(batch []byte, last bool) error {
	b := r.db.NewBatch()
	for entries := batchrepr.Read(batch); ; {
		kind, key, value, ok, err := entries.Next()
		if err != nil || !ok {
			break
		}
		switch kind {
		case pebble.InternalKeyKindSet:
			err = b.Set(key, value, nil)
		case pebble.InternalKeyKindDelete:
			err = b.Delete(key, nil)
		case pebble.InternalKeyKindRangeDelete:
			err = b.DeleteRange(key, value, nil)
		case pebble.InternalKeyKindMerge:
			if last {
				err = b.Merge(key, value, nil)
			}
		}
		if err != nil {
			return errors.Join(err, b.Close())
		}
	}
	return errors.Join(r.db.Apply(b, pebble.NoSync), b.Close())
}
