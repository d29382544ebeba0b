package disk

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless"
)

// What the tables in memory take must not be all of the cache.
func TestWhatWasReadFromATableIsInTheCache(t *testing.T) {
	s := opened(t, "store", inMemory(vfs.NewMem()))
	var refs []serverless.Ref
	for i := range 5 {
		jobs := make([]serverless.Job, 1000) // a table in memory is full after one and a half
		for k := range jobs {
			jobs[k] = newJob(fmt.Sprintf("%d-%d", i, k))
			jobs[k].Input = bytes.Repeat([]byte{byte(k)}, 600)
			refs = append(refs, jobs[k].Ref)
		}
		must(t, s.Jobs().Enqueue(t.Context(), jobs))
	}
	e, err := s.engine()
	must(t, err)
	must(t, e.db.Flush())
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
	// A compaction in between may have moved them into tables that nobody has read.
	if again := read(); again > 100 {
		t.Errorf("500 jobs were read again with %d reads of the disk, want a few at most", again)
	}
}
