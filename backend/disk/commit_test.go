package disk

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A thousand small changes may wait for the committer. Each of them with the memory of a group would
// be a gigabyte.
func TestTheMemoryOfAGroupIsNotGivenToASmallChange(t *testing.T) {
	s := openForTest(t, "data", &Options{fs: vfs.NewMem(), Key: testKey, Ballast: -1})
	e, err := s.engine()
	if err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("x"), groupBytes/8)
	for range 2 * spareBatches {
		err := e.commit(func(b *pebble.Batch) { put(b, []byte{keyMeta, 'z'}, large) }, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * spareBatches {
		if n := cap(e.db.NewBatch().Repr()); n > 64<<10 {
			t.Fatalf("a small change has a batch of %d bytes", n)
		}
	}
}
