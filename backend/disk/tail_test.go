package disk

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

func addChunk(t *testing.T, s *Store, j *queue.Job, payload []byte) {
	t.Helper()
	must(t, applyOne(t, s.Jobs(), queue.Op{Ref: j.Ref, Kind: queue.OpChunk, Worker: "w", Token: j.Token, Payload: payload}).Err)
}

// readStream reads the stream of a job to its present end.
func readStream(t *testing.T, s *Store, j *queue.Job) (chunks [][]byte) {
	t.Helper()
	for {
		part, st, err := s.Jobs().Chunks(t.Context(), at, j.Ref, 1<<20)
		must(t, err)
		if len(part) == 0 {
			return chunks
		}
		op := queue.Op{Ref: j.Ref, Kind: queue.OpDrain, Token: j.Token, From: st.Drained, N: uint32(len(part))}
		for _, c := range part {
			op.Bytes += int64(len(c))
		}
		must(t, applyOne(t, s.Jobs(), op).Err)
		chunks = append(chunks, part...)
	}
}

// Chunks that are in memory and chunks that are only on disk are one stream, also after the store
// was closed in the middle of it.
func TestAStreamIsWholeWhereverItsChunksAre(t *testing.T) {
	fs := vfs.NewMem()
	s := openForTest(t, "store", inMemory(fs))
	j := newJob("j")
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	j = claimOne(t, s.Jobs(), "w")
	var want [][]byte
	add := func(n, size int) {
		for range n {
			c := bytes.Repeat([]byte{byte('a' + len(want)%26)}, size)
			addChunk(t, s, &j, c)
			want = append(want, c)
		}
	}
	same := func(got [][]byte) {
		t.Helper()
		if len(got) != len(want) || !bytes.Equal(bytes.Join(got, nil), bytes.Join(want, nil)) {
			t.Fatalf("the stream has %d chunks, want %d, or others than were added", len(got), len(want))
		}
		want = nil
	}
	add(3, 10)
	add(2, bigPayload+1) // these are stored in tables of their own
	add(3, 10)
	add(maxTails/bigPayload+10, bigPayload) // more than is kept in memory
	add(3, 10)
	same(readStream(t, s, &j))
	if n := s.current.Load().jobs.tails.bytes; n != 0 {
		t.Errorf("%d bytes of chunks are kept of a stream that was read", n)
	}
	add(5, 10)
	must(t, s.Close())
	s = openForTest(t, "store", inMemory(fs))
	same(readStream(t, s, &j))
	add(5, 10)
	finish(t, s.Jobs(), &j, `"done"`)
	if n := len(s.current.Load().jobs.tails.by); n != 0 {
		t.Errorf("%d tails are kept of a job that has ended", n)
	}
	same(readStream(t, s, &j))
}
