package jobindex

import (
	"slices"
	"sort"

	"github.com/podyard/podyard/serverless/queue"
)

// A ref is a record at the time when it had this Seq. If the record has another Seq now
// (deleted, reused, retried), the ref refers to nothing.
type ref struct {
	seq uint64
	rec uint32
}

// chunkSize is the number of refs in a chunk.
const chunkSize = 512

// sparseLimit is the number of live refs below which a chunk is merged with a neighbour.
const sparseLimit = chunkSize / 8

// A chunk is a run of refs in the order of Seq.
type chunk struct {
	n    int // refs that were added
	live int // refs whose record still exists
	refs [chunkSize]ref
}

// A jobList has all jobs of an endpoint in the order of Seq, for listings, and those that are
// ready in the order in which they are claimed.
type jobList struct {
	order order

	firstSeqs []uint64 // Seq of the first ref of each chunk
	chunks    []*chunk
	oldest    cursor // no job before it is ready with normal priority, except those in requeued
	requeued  seqHeap
	stats     queue.Stats
	// queued counts the queued jobs by priority; the last number is that of low priority.
	queued [queue.MaxPriority + 2]int64
}

// A cursor is a position in a jobList. Without a chunk it is the beginning.
type cursor struct {
	p *chunk
	i int
}

func (l *jobList) append(seq uint64, rec uint32) {
	k := len(l.chunks)
	if k == 0 || l.chunks[k-1].n == chunkSize {
		l.chunks = append(l.chunks, &chunk{})
		l.firstSeqs = append(l.firstSeqs, seq)
		k++
	}
	p := l.chunks[k-1]
	p.refs[p.n] = ref{seq, rec}
	p.n++
	p.live++
}

// chunkOf returns the index of the chunk that has seq, or would have it.
func (l *jobList) chunkOf(seq uint64) int {
	return max(sort.Search(len(l.firstSeqs), func(i int) bool { return l.firstSeqs[i] > seq })-1, 0)
}

// remove records that the record with this Seq is gone. It reports whether the caller should
// call compact afterwards, which happens from time to time when few refs are left. The last
// chunk of an empty list is removed too, because lists are never deleted.
func (l *jobList) remove(seq uint64) (sparse bool) {
	k := l.chunkOf(seq)
	p := l.chunks[k]
	p.live--
	if p.live > 0 || p.n < chunkSize && len(l.chunks) > 1 {
		return p.live <= sparseLimit && p.live&(p.live-1) == 0
	}
	l.oldest.skipChunk(l, k)
	l.chunks = slices.Delete(l.chunks, k, k+1)
	l.firstSeqs = slices.Delete(l.firstSeqs, k, k+1)
	return false
}

// compact merges the chunk of seq with its neighbours if they are sparse too, so that a few
// long-lived jobs do not keep the memory of many.
func (l *jobList) compact(seq uint64, alive func(ref) bool) {
	k := l.chunkOf(seq)
	l.mergeChunks(k+1, alive)
	l.mergeChunks(k, alive)
}

// mergeChunks merges chunk k and the one before it, if both are sparse and the cursor is not
// in them.
func (l *jobList) mergeChunks(k int, alive func(ref) bool) {
	if k == 0 || k >= len(l.chunks) {
		return
	}
	a, b := l.chunks[k-1], l.chunks[k]
	if a.live+b.live > 2*sparseLimit || b.n < chunkSize {
		return
	}
	if c := l.oldest.p; c == a || c == b {
		return
	}
	joined := &chunk{}
	for _, p := range [...]*chunk{a, b} {
		for _, r := range p.refs[:p.n] {
			if alive(r) {
				joined.refs[joined.n] = r
				joined.n++
			}
		}
	}
	joined.live = joined.n
	if joined.n < chunkSize {
		// A chunk in the middle must be full: fill it with refs to nothing.
		last := joined.refs[max(joined.n-1, 0)].seq
		for i := joined.n; i < chunkSize; i++ {
			joined.refs[i] = ref{seq: last}
		}
		joined.n = chunkSize
	}
	l.chunks[k-1] = joined
	l.chunks = slices.Delete(l.chunks, k, k+1)
	l.firstSeqs = slices.Delete(l.firstSeqs, k, k+1)
}

// skipChunk moves a cursor off chunk k, which is about to be removed.
func (c *cursor) skipChunk(l *jobList, k int) {
	if c.p != l.chunks[k] {
		return
	}
	*c = cursor{}
	if k+1 < len(l.chunks) {
		*c = cursor{p: l.chunks[k+1]}
	} else if k > 0 {
		*c = cursor{p: l.chunks[k-1], i: l.chunks[k-1].n}
	}
}

// after returns a cursor at the first ref above seq.
func (l *jobList) after(seq uint64) cursor {
	if len(l.chunks) == 0 {
		return cursor{}
	}
	p := l.chunks[l.chunkOf(seq)]
	return cursor{p, sort.Search(p.n, func(i int) bool { return p.refs[i].seq > seq })}
}

// peek returns the ref at c. ok is false at the end of the list.
func (l *jobList) peek(c *cursor) (r ref, ok bool) {
	if c.p == nil {
		if len(l.chunks) == 0 {
			return ref{}, false
		}
		c.p = l.chunks[0]
	}
	for c.i == c.p.n {
		if c.p.n < chunkSize {
			return ref{}, false
		}
		k := l.chunkOf(c.p.refs[0].seq)
		if k+1 >= len(l.chunks) {
			return ref{}, false
		}
		*c = cursor{p: l.chunks[k+1]}
	}
	return c.p.refs[c.i], true
}

// A seqHeap is a heap of refs by Seq. Some of them may refer to nothing.
type seqHeap []ref

func (h *seqHeap) push(r ref) {
	l := append(*h, r)
	for i := len(l) - 1; i > 0; {
		p := (i - 1) / 2
		if l[p].seq <= l[i].seq {
			break
		}
		l[p], l[i] = l[i], l[p]
		i = p
	}
	*h = l
}

// pop removes the oldest ref and returns it.
func (h *seqHeap) pop() ref {
	l := *h
	r := l[0]
	n := len(l) - 1
	l[0] = l[n]
	l = l[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && l[c+1].seq < l[c].seq {
			c++
		}
		if l[i].seq <= l[c].seq {
			break
		}
		l[i], l[c] = l[c], l[i]
		i = c
	}
	*h = l
	return r
}
