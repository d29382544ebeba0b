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

// A liveTable is a table of the database as it is now, read apart from the database. Several
// can be parts of one file.
type liveTable struct {
	pebble.SSTableInfo
	path   string
	gaps   []gap // what cannot be read of it
	filter bool  // only its filter cannot be read
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

// following is the key that comes right after another.
func following(key []byte) []byte { return append(slices.Clone(key), 0) }

// whole is a gap of all keys of the table.
func (t *liveTable) whole() gap {
	return gap{slices.Clone(t.Smallest.UserKey), following(t.Largest.UserKey), t.BackingSSTNum.String() + ".sst"}
}

// findGaps finds what cannot be read of the table: blocks of it, or all.
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
			continue // a part of the file that is not of this table
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

// keys notes the keys of a gap that the table has, if no table before has them.
func (t *liveTable) keys(ctx context.Context, e *engine, g *gap, keys map[string]*liveTable) error {
	all := t.whole()
	from := all.From
	for _, part := range append(slices.Clone(t.gaps), gap{From: all.To}) { // up to each, in order
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

// found notes a table that is found to be damaged: what is done begins anew then.
func (t *liveTable) found(e *engine, err error) error {
	if pebble.IsCorruptionError(err) {
		e.s.suspect(t.path)
	}
	return err
}

// value is what the table has of a key, ErrNotFound if it only says that the key is gone.
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

// damagedBlocks are the stretches of keys of the blocks that cannot be read, in order; an
// error says that this cannot be told. filter says that the filter cannot be read.
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
	var from []byte // right after the keys of the block before
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

// readBlock calls fn, if there is one, with a block of a table, if there is one.
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

// eachDataBlock calls fn with each block that an index has, and a key that is not before its
// last one and before the first one of the next block.
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
