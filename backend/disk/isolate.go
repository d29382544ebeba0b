package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A part of a table may be unreadable. Every compaction that reads it would then fail. So the keys of that part are removed from the database: from this table,
// and from all others, because an older table may have outdated values. Newer values are
// written back. A gap record notes that something is lost there, and a loss record notes each
// record that an older table had. The file is kept in another directory until Repair.

// asideName is the directory for files with a part that was given up.
const asideName = "damaged"

// suspect notes that a table is damaged.
func (s *Store) suspect(path string) {
	s.suspectsMu.Lock()
	defer s.suspectsMu.Unlock()
	if s.suspects == nil {
		s.suspects = map[string]bool{}
	}
	if !s.suspects[path] {
		s.damages.Add(1)
	}
	s.suspects[path] = true
}

func (s *Store) suspected() map[string]bool {
	s.suspectsMu.Lock()
	defer s.suspectsMu.Unlock()
	return maps.Clone(s.suspects)
}

// isolate removes the unreadable parts of suspected tables from the database. It reports
// whether it changed anything.
func (s *Store) isolate(ctx context.Context) (changed bool, err error) {
	for known := 0; ; known = len(s.suspected()) {
		done, err := s.isolateOnce(ctx)
		changed = changed || done
		// Isolating also reads tables beside a gap, and may find damage in them.
		if err == nil || len(s.suspected()) == known {
			s.suspectsMu.Lock()
			clear(s.suspects)
			s.suspectsMu.Unlock()
			return changed, err
		}
	}
}

func (s *Store) isolateOnce(ctx context.Context) (changed bool, err error) {
	for _, filters := range []bool{true, false} {
		done, err := s.isolateBy(ctx, filters)
		if changed = changed || done; err != nil {
			return changed, fmt.Errorf("disk: isolate a part of %q: %w", s.dir, err)
		}
	}
	return changed, nil
}

// isolateBy removes the lost parts of tables. If filters is false, it instead rewrites tables
// of which only the filter is lost.
func (s *Store) isolateBy(ctx context.Context, filters bool) (changed bool, err error) {
	e, err := s.openDB(func(o *pebble.Options) {
		forMaintenance(o)
		o.EventListener.DataCorruption = func(info pebble.DataCorruptionInfo) { s.suspect(info.Path) }
		for i := range o.Levels {
			if !filters {
				o.Levels[i].FilterPolicy = pebble.NoFilterPolicy
			}
		}
		if !filters {
			o.Filters = nil
		}
	})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, e.closeDB()) }()
	i := isolation{e: e}
	defer i.close()
	if err := i.load(ctx); err != nil {
		return false, err
	}
	for _, g := range i.gaps(filters) {
		if err := i.takeOut(ctx, &g, filters); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// An isolation removes gaps from a database that is not in use.
type isolation struct {
	e      *engine
	tables []*liveTable
}

// gaps returns the gaps of all tables if lost is set. Otherwise it returns the whole ranges of
// the tables of which only the filter is lost.
func (i *isolation) gaps(lost bool) []gap {
	var gaps []gap
	for _, t := range i.tables {
		switch {
		case lost:
			gaps = append(gaps, t.gaps...)
		case t.filter:
			gaps = append(gaps, t.whole())
		}
	}
	return joined(gaps)
}

// joined merges gaps that overlap or touch.
func joined(gaps []gap) (list []gap) {
	slices.SortFunc(gaps, func(a, b gap) int { return bytes.Compare(a.From, b.From) })
	for _, g := range gaps {
		if n := len(list); n > 0 && bytes.Compare(g.From, list[n-1].To) <= 0 {
			if bytes.Compare(g.To, list[n-1].To) > 0 {
				list[n-1].To = g.To
			}
			continue
		}
		list = append(list, g)
	}
	return list
}

// load lists the current tables of the database and their damage.
func (i *isolation) load(ctx context.Context) error {
	i.close()
	levels, err := i.e.db.SSTables()
	if err != nil {
		return err
	}
	suspects := i.e.s.suspected()
	for _, infos := range levels {
		for _, info := range infos {
			t := &liveTable{SSTableInfo: info, path: i.e.fs.PathJoin(i.e.s.dir, fmt.Sprintf("%s.sst", info.BackingSSTNum))}
			if suspects[t.path] {
				t.findGaps(ctx, i.e)
			}
			i.tables = append(i.tables, t)
		}
	}
	return nil
}

func (i *isolation) close() {
	for _, t := range i.tables {
		t.close()
	}
	i.tables = nil
}

// takeOut removes a gap from the database in one step, and keeps newer values.
func (i *isolation) takeOut(ctx context.Context, g *gap, lost bool) error {
	e := i.e
	if lost {
		e.s.opts.Logger.Error("a part of a table cannot be read, and is given up; check the store", "dir", e.s.dir, "file", g.Table)
		if err := errors.Join(i.keepAside(g.Table), i.note(ctx, g)); err != nil {
			return err
		}
	}
	name := e.fs.PathJoin(e.s.dir, stagePrefix+"newer")
	n, err := i.writeNewer(ctx, g, name)
	if err != nil {
		return err
	}
	keys := pebble.KeyRange{Start: g.From, End: g.To}
	if n == 0 {
		err = errors.Join(e.fs.Remove(name), e.db.Excise(ctx, keys))
	} else {
		_, err = e.db.IngestAndExcise(ctx, []string{name}, nil, nil, keys)
	}
	return errors.Join(err, i.load(ctx))
}

// keepAside makes a second link to a table, so that the file is kept.
func (i *isolation) keepAside(table string) error {
	disk, dir := i.e.s.opts.fs, i.e.fs.PathJoin(i.e.s.dir, asideName)
	if err := disk.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	err := disk.Link(disk.PathJoin(i.e.s.dir, table), disk.PathJoin(dir, table))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return nil // it is already kept, or it is gone
	}
	return err
}

// note records the gap, and the losses in it that an older table shows.
func (i *isolation) note(ctx context.Context, g *gap) error {
	b := i.e.db.NewBatch()
	defer func() { _ = b.Close() }()
	putJSON(b, gapKey(g.From), g)
	err := i.each(ctx, g, func(key, value []byte, lost bool) error {
		if lost {
			putJSON(b, lossKey(key), i.e.lossOf(key, value))
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The records must be in a table before the tables are listed again.
	return errors.Join(i.e.db.Apply(b, pebble.Sync), i.e.db.Flush(), i.load(ctx))
}

// writeNewer writes a table of everything that stays in the range of the gap. n is the number
// of records.
func (i *isolation) writeNewer(ctx context.Context, g *gap, name string) (n int, err error) {
	f, err := i.e.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return 0, err
	}
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), i.e.opts.MakeWriterOptions(0, i.e.db.TableFormat()))
	defer func() { err = errors.Join(err, w.Close()) }() // syncs
	return n, i.each(ctx, g, func(key, value []byte, lost bool) error {
		if lost {
			return nil
		}
		n++
		return w.Set(key, value)
	})
}

// each calls fn with every existing key of a gap, in order, with the newest value. If that is
// lost, it passes an older value and sets lost.
func (i *isolation) each(ctx context.Context, g *gap, fn func(key, value []byte, lost bool) error) error {
	keys := map[string]*liveTable{}
	for _, t := range i.tables {
		if err := t.keys(ctx, i.e, g, keys); err != nil {
			return err
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		key := []byte(k)
		value, err := i.newest(key)
		lost := pebble.IsCorruptionError(err)
		if lost {
			if value, err = keys[k].value(ctx, i.e, key); err == nil {
				_, err := verify(key, value)
				// The older value of a record that is written only once is not outdated.
				lost = err != nil || !writtenOnce(key)
			}
		}
		if errors.Is(err, pebble.ErrNotFound) {
			continue
		}
		if err == nil {
			err = fn(key, value, lost)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (i *isolation) newest(key []byte) ([]byte, error) {
	v, closer, err := i.e.db.Get(key)
	if err != nil {
		return nil, err
	}
	v = bytes.Clone(v)
	return v, closer.Close()
}
