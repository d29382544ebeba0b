package disk

import (
	"math"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

// maxTails is how many bytes of chunks are kept in memory until they are read. A chunk for which
// there is no room is written before it is visible, and read from the database.
const maxTails = 16 << 20

// A tail has the last chunks of a running job that were not read. The first ones may not be
// written yet, so a tail stays until its chunks are read or gone, or the job has ended.
type tail struct {
	first  uint32   // number of the first chunk
	chunks [][]byte // nil: only in the database
}

// tails are those of the jobs of a queue, by number. The queue's mutex guards them.
type tails struct {
	by    map[uint32]*tail
	bytes int64
}

// fits reports whether there is room for a chunk.
func (t *tails) fits(chunk []byte) bool { return t.bytes+int64(len(chunk)) <= maxTails }

// update changes the tail of a job by a move.
func (t *tails) update(m *move) {
	if m.eff&(queue.Delete|queue.DropOutput) != 0 || m.after.Status.Terminal() {
		t.drop(m.i, math.MaxUint32) // what an ended job has is written
		return
	}
	if m.eff&queue.DropChunks != 0 {
		t.drop(m.i, m.after.Drained)
	}
	if m.eff&queue.AddChunk == 0 {
		return
	}
	u := t.by[m.i]
	if u == nil {
		if m.keeps == nil {
			return
		}
		u = &tail{first: m.after.Chunks - 1}
		t.by[m.i] = u
	}
	u.chunks = append(u.chunks, m.keeps)
	t.bytes += int64(len(m.keeps))
}

// drop removes the chunks of a job below a number.
func (t *tails) drop(i, below uint32) {
	u := t.by[i]
	if u == nil {
		return
	}
	n := min(uint32(len(u.chunks)), max(below, u.first)-u.first)
	for _, chunk := range u.chunks[:n] {
		t.bytes -= int64(len(chunk))
	}
	u.first += n
	u.chunks = slices.Clone(u.chunks[n:]) // or the array would keep the others; readers may have it, so they are not cleared
	if len(u.chunks) == 0 {
		delete(t.by, i)
	}
}

// view returns the tail of a job as it is now.
func (t *tails) view(i uint32) tail {
	if u := t.by[i]; u != nil {
		return *u
	}
	return tail{}
}

// at returns a chunk, or nil if it is only in the database.
func (t *tail) at(n uint32) []byte {
	if n < t.first || n-t.first >= uint32(len(t.chunks)) {
		return nil
	}
	return t.chunks[n-t.first]
}
