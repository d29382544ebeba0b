package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// bigPayload is the length in bytes above which a payload is written to a table of its own. In
// the log it would delay the commits of others.
const bigPayload = 64 << 10

const stagePrefix = "stage-"

// storeBig makes a payload durable before the commit that refers to it. That commit also
// removes the intent record. If the commit is never made, the intent stays, and the next
// opening removes the payload.
func (e *engine) storeBig(ctx context.Context, key []byte, value ...[]byte) (err error) {
	intent := append([]byte{keyIntent}, key...)
	err = e.commit(func(b *pebble.Batch) {
		e.jobs.numbers(b)
		put(b, intent)
	}, nil)
	if err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
		if err != nil {
			// The job would stay busy for ever, so end the engine.
			e.fail(unavailable("store a payload", err))
			err = e.err()
		}
	}()
	n := int64(0)
	for _, v := range value {
		n += int64(len(v))
	}
	name := e.fs.PathJoin(e.s.dir, fmt.Sprintf("%s%x", stagePrefix, key))
	if err := e.stage(name, key, value, n); err != nil {
		return err
	}
	e.s.space.spend(n)
	return e.db.Ingest(context.WithoutCancel(ctx), []string{name})
}

// bigStored removes the intent of a payload in the commit that refers to it.
func bigStored(b *pebble.Batch, key []byte) { drop(b, append([]byte{keyIntent}, key...)) }

// maxStaged is how many bytes of payloads are made into tables at once, or it is one: a payload is in
// memory three times more while its table is written.
const maxStaged = 16 << 20

// A staging counts the bytes of payloads that are made into tables.
type staging struct {
	mu    sync.Mutex
	less  sync.Cond // of mu
	bytes int64
}

// begin waits until there is room for n bytes.
func (s *staging) begin(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.bytes > 0 && s.bytes+n > maxStaged {
		s.less.Wait()
	}
	s.bytes += n
}

func (s *staging) end(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= n
	s.less.Broadcast()
}

// stage writes a table with one record of n bytes.
func (e *engine) stage(name string, key []byte, value [][]byte, n int64) error {
	e.staging.begin(n)
	defer e.staging.end(n)
	f, err := e.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	record := make([]byte, 0, n+checksumSize)
	crc := crc32.Checksum(key, castagnoli)
	for _, v := range value {
		record = append(record, v...)
		crc = crc32.Update(crc, castagnoli, v)
	}
	record = binary.LittleEndian.AppendUint32(record, crc)
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), e.opts.MakeWriterOptions(0, e.db.TableFormat()))
	if err := w.Set(key, record); err != nil {
		return errors.Join(err, w.Close())
	}
	return w.Close() // syncs
}

// sweepIntents removes payloads whose commits were never made.
func (e *engine) sweepIntents() error {
	b := e.db.NewBatch()
	err := each(e.db, []byte{keyIntent}, func(key, _ []byte) error {
		drop(b, key[1:])
		drop(b, key)
		return nil
	})
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return errors.Join(e.db.Apply(b, pebble.NoSync), b.Close())
}

// sweepFiles removes incomplete tables.
func (e *engine) sweepFiles() error {
	names, err := e.fs.List(e.s.dir)
	if err != nil {
		return err
	}
	return e.removeFiles(slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, stagePrefix) }))
}

// dropProtection removes the files from which earlier versions restored tables and logs.
func (e *engine) dropProtection() error {
	names, err := e.fs.List(e.s.dir)
	if err != nil {
		return err
	}
	return e.removeFiles(slices.DeleteFunc(names, func(name string) bool { return withoutProtection(name) == name }))
}

// withoutProtection returns the name of the file that an earlier version protected by this one.
func withoutProtection(name string) string {
	for _, suffix := range []string{".parity", ".mirror", ".end"} {
		if of, ok := strings.CutSuffix(name, suffix); ok && ofDatabase(of) {
			return of
		}
	}
	return name
}

func (e *engine) removeFiles(names []string) error {
	for _, name := range names {
		if err := e.s.opts.fs.Remove(e.fs.PathJoin(e.s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
