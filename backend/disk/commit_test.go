package disk

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"
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

// Each group costs a wake of the committer and of the log. So the changes that come while one is being
// synced share the next, unless there are many.
func TestChangesThatComeDuringASyncShareTheNextOne(t *testing.T) {
	for _, n := range []int{gatherLength / 2, 2 * gatherLength} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var mu sync.Mutex
			var groups []int
			syncing, goOn := make(chan struct{}), make(chan struct{})
			opts := inMemory(vfs.NewMem())
			opts.wait = func(g *group) error {
				mu.Lock()
				groups = append(groups, len(g.commits))
				first := len(groups) == 1
				mu.Unlock()
				if first {
					close(syncing)
					<-goOn
				}
				return g.wait()
			}
			e, err := openForTest(t, "data", opts).engine()
			must(t, err)
			change := func() *commit {
				return &commit{sync: true, done: make(chan struct{}), write: func(b *pebble.Batch) { put(b, []byte{keyMeta, 'z'}, []byte("x")) }}
			}
			cs := []*commit{change()}
			must(t, e.submit(cs[0]))
			<-syncing
			for range n {
				cs = append(cs, change())
				must(t, e.submit(cs[len(cs)-1]))
			}
			if n >= gatherLength { // they are written while the first one is being synced
				for e.syncing.Load() < 2 {
					runtime.Gosched()
				}
			}
			close(goOn)
			for _, c := range cs {
				<-c.done
			}
			mu.Lock()
			defer mu.Unlock()
			if n < gatherLength && !slices.Equal(groups, []int{1, n}) {
				t.Errorf("groups of %v changes, want 1 and %d", groups, n)
			}
		})
	}
}
