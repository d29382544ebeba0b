package disk

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/block/blockkind"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
)

// A liveTable is a current table of the database, read without the database. Several tables
// can be parts of one file.
type liveTable struct {
	pebble.SSTableInfo
	path   string
	gaps   []gap // unreadable ranges of keys
	filter bool  // only the filter cannot be read
	r      *sstable.Reader
}

func (t *liveTable) close() {
	if t.r != nil {
		_ = t.r.Close() // it was only read
	}
}

func (t *liveTable) open(ctx context.Context, e *engine) (err error) {
	if t.r == nil {
		t.r, err = e.openTable(ctx, t.path)
	}
	return err
}

// following returns the next key in the order of keys.
func following(key []byte) []byte { return append(slices.Clone(key), 0) }

// whole returns a gap that contains all keys of the table.
func (t *liveTable) whole() gap {
	return gap{slices.Clone(t.Smallest.UserKey), following(t.Largest.UserKey), t.BackingSSTNum.String() + ".sst"}
}

// findGaps finds the unreadable ranges of the table: those of single blocks, or the whole
// table.
func (t *liveTable) findGaps(ctx context.Context, e *engine) {
	all := t.whole()
	t.gaps = []gap{all}
	if t.open(ctx, e) != nil {
		return
	}
	blocks, filter, err := damagedBlocks(ctx, t.r)
	if err != nil {
		return
	}
	t.gaps = nil
	for _, g := range blocks {
		if !g.overlaps(all.From, all.To) {
			continue // belongs to another table of the file
		}
		g.Table = all.Table
		if bytes.Compare(g.From, all.From) < 0 {
			g.From = all.From
		}
		if bytes.Compare(g.To, all.To) > 0 {
			g.To = all.To
		}
		t.gaps = append(t.gaps, g)
	}
	t.filter = filter && len(t.gaps) == 0
}

// keys adds the keys that the table has in a gap to keys, except keys that are already in it.
func (t *liveTable) keys(ctx context.Context, e *engine, g *gap, keys map[string]*liveTable) error {
	all := t.whole()
	from := all.From
	for _, part := range append(slices.Clone(t.gaps), gap{From: all.To}) { // the readable range before each gap, in order
		if err := t.keysOf(ctx, e, later(from, g.From), earlier(part.From, g.To), keys); err != nil {
			return err
		}
		from = part.To
	}
	return nil
}

func later(a, b []byte) []byte {
	if bytes.Compare(a, b) < 0 {
		return b
	}
	return a
}

func earlier(a, b []byte) []byte {
	if bytes.Compare(a, b) > 0 {
		return b
	}
	return a
}

func (t *liveTable) keysOf(ctx context.Context, e *engine, from, to []byte, keys map[string]*liveTable) error {
	if bytes.Compare(from, to) >= 0 {
		return nil
	}
	if err := t.open(ctx, e); err != nil {
		return t.found(e, err)
	}
	it, err := t.r.NewIter(sstable.NoTransforms, from, to, sstable.AssertNoBlobHandles)
	if err != nil {
		return t.found(e, err)
	}
	for kv := it.First(); kv != nil; kv = it.Next() {
		if keys[string(kv.K.UserKey)] == nil {
			keys[string(kv.K.UserKey)] = t
		}
	}
	return t.found(e, errors.Join(it.Error(), it.Close()))
}

// found suspects the table if err is about damage. The isolation then starts again.
func (t *liveTable) found(e *engine, err error) error {
	if pebble.IsCorruptionError(err) {
		e.s.suspect(t.path)
	}
	return err
}

// value returns the table's value of a key, or ErrNotFound if the table only has its deletion.
func (t *liveTable) value(ctx context.Context, e *engine, key []byte) (v []byte, err error) {
	if err := t.open(ctx, e); err != nil {
		return nil, err
	}
	it, err := t.r.NewIter(sstable.NoTransforms, key, following(key), sstable.AssertNoBlobHandles)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for kv := it.First(); kv != nil; kv = it.Next() {
		switch kv.Kind() {
		case pebble.InternalKeyKindSet, pebble.InternalKeyKindMerge:
			v, _, err := kv.Value(nil)
			return bytes.Clone(v), err
		}
	}
	return nil, errors.Join(it.Error(), pebble.ErrNotFound)
}

// damagedBlocks returns the ranges of keys of unreadable blocks, in order, and whether the
// filter is unreadable. After an error the ranges are unknown.
func damagedBlocks(ctx context.Context, r *sstable.Reader) (gaps []gap, filter bool, err error) {
	l, err := r.Layout()
	if err != nil {
		return nil, false, err
	}
	if !l.Format.BlockColumnar() {
		return nil, false, r.ValidateBlockChecksums()
	}
	for _, h := range append([]block.Handle{l.TopIndex, l.RangeDel, l.RangeKey, l.ValueIndex, l.Properties, l.MetaIndex}, l.ValueBlock...) {
		if err := readBlock(ctx, r, h, nil); err != nil {
			return nil, false, err
		}
	}
	for _, h := range l.Filter {
		filter = filter || readBlock(ctx, r, h.Handle, nil) != nil
	}
	var from []byte // the key after those of the previous block
	for _, h := range l.Index {
		err := readBlock(ctx, r, h, func(index []byte) error {
			return eachDataBlock(r, index, func(last []byte, data block.Handle) {
				to := following(last)
				if readBlock(ctx, r, data, nil) != nil {
					gaps = append(gaps, gap{From: from, To: to})
				}
				from = to
			})
		})
		if err != nil {
			return nil, false, err
		}
	}
	return gaps, filter, nil
}

// readBlock reads a block of a table and calls fn with it. It does nothing if the block is
// empty; fn may be nil.
func readBlock(ctx context.Context, r *sstable.Reader, h block.Handle, fn func(b []byte) error) error {
	if h.Length == 0 {
		return nil
	}
	b, err := r.BlockReader().Read(ctx, block.NoReadEnv, nil, h, blockkind.Metadata, func(*block.Metadata, []byte) error { return nil })
	if err != nil {
		return err
	}
	defer b.Release()
	if fn == nil {
		return nil
	}
	return fn(b.BlockData())
}

// eachDataBlock calls fn with each block of an index. last is a key between the last key of
// the block, included, and the first key of the next block, excluded.
func eachDataBlock(r *sstable.Reader, index []byte, fn func(last []byte, h block.Handle)) error {
	var it colblk.IndexIter
	if err := it.Init(r.Comparer, index, block.NoTransforms); err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		h, err := it.BlockHandleWithProperties()
		if err != nil {
			return err
		}
		fn(it.Separator(), h.Handle)
	}
	return nil
}
