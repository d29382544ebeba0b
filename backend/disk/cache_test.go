package disk

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

// The tables in memory must not use up the cache.
func TestWhatWasReadFromATableIsInTheCache(t *testing.T) {
	s := openForTest(t, "store", inMemory(vfs.NewMem()))
	var refs []queue.Ref
	for i := range 5 {
		jobs := make([]queue.Job, 1000) // 1500 of them fill a table in memory
		for k := range jobs {
			jobs[k] = newJob(fmt.Sprintf("%d-%d", i, k))
			jobs[k].Input = bytes.Repeat([]byte{byte(k)}, 600)
			refs = append(refs, jobs[k].Ref)
		}
		must(t, s.Jobs().Enqueue(t.Context(), jobs))
	}
	e, err := s.engine()
	must(t, err)
	compacted(t, s) // so that no later compaction moves them into tables that are not cached
	read := func() (misses int64) {
		before := e.db.Metrics().BlockCache.Misses
		for _, ref := range refs[:500] {
			_, err := s.Jobs().Get(t.Context(), at, ref)
			must(t, err)
		}
		return e.db.Metrics().BlockCache.Misses - before
	}
	if first := read(); first == 0 {
		t.Error("500 jobs were read and nothing came from a table")
	}
	if again := read(); again > 20 {
		t.Errorf("500 jobs were read again with %d reads of the disk, want a few at most", again)
	}
}
