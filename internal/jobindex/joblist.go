package jobindex

import (
	"math/bits"
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

// A chunk is a run of refs in the order of Seq. It knows which of the jobs have which status, so a
// listing finds its page, and what is before it, without a look at other jobs.
type chunk struct {
	first  uint64 // Seq of the first ref
	number uint32 // in Index.chunks
	dense  bool   // no Seq is left out between two refs
	shared bool   // it is in the list of the endpoint and in that of its first owner
	live   int32  // refs whose record still exists: those with a bit in in
	counts [statuses]uint16
	in     [statuses]bitmap
	refs   []ref
}

const statuses = int(queue.TimedOut) + 1

// A bitmap has a bit for each ref of a chunk.
type bitmap [chunkSize / 64]uint64

// place returns the place of the ref with this Seq, which is there.
func (p *chunk) place(seq uint64) int {
	if p.dense {
		return int(seq - p.first)
	}
	return p.below(seq)
}

// below returns how many refs have a Seq below before.
func (p *chunk) below(before uint64) int {
	return sort.Search(len(p.refs), func(k int) bool { return p.refs[k].seq >= before })
}

func (p *chunk) set(i int, s queue.Status) {
	p.in[s][i/64] |= 1 << (i % 64)
	p.counts[s]++
}

func (p *chunk) clear(i int, s queue.Status) {
	p.in[s][i/64] &^= 1 << (i % 64)
	p.counts[s]--
}

// with returns the places below end of the jobs that have one of the statuses.
func (p *chunk) with(set StatusSet, end int) (b bitmap) {
	for s := range statuses {
		if set&(1<<s) == 0 || p.counts[s] == 0 {
			continue
		}
		for w := range b {
			b[w] |= p.in[s][w]
		}
	}
	for w := end / 64; w < len(b); w++ {
		b[w] &= 1<<max(end-64*w, 0) - 1
	}
	return b
}

func (b *bitmap) count() (n int) {
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// A StatusSet is a set of statuses: bit s stands for queue.Status(s).
type StatusSet uint8

// AllStatuses has every status.
const AllStatuses StatusSet = 1<<statuses - 1

// SetOf returns the set of some statuses; none stand for all.
func SetOf(list []queue.Status) (set StatusSet) {
	for _, s := range list {
		if int(s) < statuses {
			set |= 1 << s
		}
	}
	if len(list) == 0 {
		return AllStatuses
	}
	return set
}

// A seqList has jobs in the order of Seq.
type seqList struct {
	firstSeqs []uint64 // Seq of the first ref of each chunk, also if that is gone
	chunks    []*chunk
	counts    [statuses]int
}

// A jobList has all jobs of an endpoint in the order of Seq, for listings, and those that are
// ready in the order in which they are claimed.
//
// As long as all jobs are of one owner, the list of the endpoint is also that of this first owner. With
// the first job of another one, each owner has a list of its own, so that the cost of a listing
// does not depend on the jobs of others. That of the first owner then has the chunks that are
// there: they are shared by both lists, at the same places, because nothing is older.
type jobList struct {
	order  order
	all    seqList
	split  bool   // owners have lists of their own
	oldest cursor // no job before it is ready with normal priority, except those in requeued

	requeued seqHeap
	stats    queue.Stats
	// queued counts the queued jobs by priority; the last number is that of low priority.
	queued [queue.MaxPriority + 2]int64
}

// A cursor is a position in a jobList. Without a chunk it is the beginning.
type cursor struct {
	p *chunk
	i int
}

// chunkOf returns the index of the chunk that has seq, or would have it.
func (l *seqList) chunkOf(seq uint64) int {
	return max(sort.Search(len(l.firstSeqs), func(i int) bool { return l.firstSeqs[i] > seq })-1, 0)
}

// open returns the chunk to which refs are added, or nil.
func (l *seqList) open() *chunk {
	if k := len(l.chunks); k > 0 && len(l.chunks[k-1].refs) < chunkSize && !l.chunks[k-1].shared {
		return l.chunks[k-1]
	}
	return nil
}

// enlist adds a job with a Seq that is greater than all others.
func (x *Index) enlist(l *jobList, i uint32, r *record, seq uint64, s queue.Status) {
	o := x.lines[r.line].key.owner
	switch {
	case len(l.all.chunks) == 0:
		l.order.first, l.split = o, false
	case !l.split && l.order.first != o:
		x.split(l)
	}
	r.all, r.own = x.append(&l.all, ref{seq, i}, s), 0
	if l.split {
		r.own = x.append(&o.list, ref{seq, i}, s)
	}
}

// split gives owners lists of their own.
func (x *Index) split(l *jobList) {
	l.split = true
	if p := l.all.open(); p != nil && p.live == 0 {
		x.dropChunk(l, &l.all, p)
	}
	for _, p := range l.all.chunks {
		p.shared = true
	}
	l.order.first.list = seqList{slices.Clone(l.all.firstSeqs), slices.Clone(l.all.chunks), l.all.counts}
}

func (x *Index) append(l *seqList, r ref, s queue.Status) uint32 {
	p := l.open()
	if p == nil {
		room := chunkSize
		if len(l.chunks) == 0 {
			room = 8 // most lists of owners are short
		}
		p = x.newChunk(room)
		l.chunks = append(l.chunks, p)
		l.firstSeqs = append(l.firstSeqs, r.seq)
	}
	p.add(r, s)
	l.counts[s]++
	return p.number
}

func (p *chunk) add(r ref, s queue.Status) {
	n := len(p.refs)
	if n == 0 {
		p.first, p.dense = r.seq, true
	}
	p.dense = p.dense && r.seq == p.first+uint64(n)
	p.refs = append(p.refs, r)
	p.live++
	p.set(n, s)
}

func (x *Index) newChunk(room int) *chunk {
	p := &chunk{refs: make([]ref, 0, room)}
	if n := len(x.freeChunks); n > 0 {
		p.number = x.freeChunks[n-1]
		x.freeChunks = x.freeChunks[:n-1]
		x.chunks[p.number] = p
		return p
	}
	p.number = uint32(len(x.chunks))
	x.chunks = append(x.chunks, p)
	return p
}

// relist notes the new status of a job.
func (x *Index) relist(l *jobList, r *record, was, is queue.Status) {
	if was == is {
		return
	}
	x.restate(&l.all, x.chunks[r.all], r.seq, was, is)
	if !l.split {
		return
	}
	own := &x.lines[r.line].key.owner.list
	if r.own != 0 {
		x.restate(own, x.chunks[r.own], r.seq, was, is)
		return
	}
	own.counts[was]-- // the chunk is shared
	own.counts[is]++
}

func (x *Index) restate(l *seqList, p *chunk, seq uint64, was, is queue.Status) {
	i := p.place(seq)
	p.clear(i, was)
	p.set(i, is)
	l.counts[was]--
	l.counts[is]++
}

// unlist removes a job with its status from the lists.
func (x *Index) unlist(l *jobList, r *record, s queue.Status) {
	x.remove(l, &l.all, x.chunks[r.all], r.seq, s)
	if !l.split {
		return
	}
	own := &x.lines[r.line].key.owner.list
	if r.own != 0 {
		x.remove(l, own, x.chunks[r.own], r.seq, s)
		return
	}
	own.counts[s]-- // the chunk is shared
}

// remove removes a ref. When few refs of a chunk are left, it is merged from time to time, so that a
// few long-lived jobs do not keep the memory of many.
func (x *Index) remove(l *jobList, of *seqList, p *chunk, seq uint64, s queue.Status) {
	p.clear(p.place(seq), s)
	p.live--
	of.counts[s]--
	switch {
	case p.live == 0 && (p != of.open() || len(of.chunks) == 1):
		x.dropChunk(l, of, p)
	case p.live <= sparseLimit && p.live&(p.live-1) == 0:
		k := of.chunkOf(seq)
		x.mergeChunks(l, of, k+1)
		x.mergeChunks(l, of, k)
	}
}

// dropChunk removes an empty chunk, and then the last one if that is empty too.
func (x *Index) dropChunk(l *jobList, of *seqList, p *chunk) {
	lists := l.listsWith(p, of)
	for _, list := range lists {
		k := list.chunkOf(p.first)
		if list == &l.all {
			l.oldest.skipChunk(list, k)
		}
		list.chunks = slices.Delete(list.chunks, k, k+1)
		list.firstSeqs = slices.Delete(list.firstSeqs, k, k+1)
	}
	x.freeChunk(p)
	for _, list := range lists {
		if last := list.open(); last != nil && last.live == 0 && len(list.chunks) == 1 {
			x.dropChunk(l, list, last)
		}
	}
}

// listsWith returns the lists that have a chunk, one of which is of.
func (l *jobList) listsWith(p *chunk, of *seqList) []*seqList {
	if p.shared {
		return []*seqList{&l.all, &l.order.first.list}
	}
	return []*seqList{of}
}

func (x *Index) freeChunk(p *chunk) {
	x.chunks[p.number] = nil
	x.freeChunks = append(x.freeChunks, p.number)
}

// mergeChunks merges chunk k and the one before it, if both are sparse and the cursor is not
// in them.
func (x *Index) mergeChunks(l *jobList, of *seqList, k int) {
	if k == 0 || k >= len(of.chunks) {
		return
	}
	a, b := of.chunks[k-1], of.chunks[k]
	if a.live+b.live > 2*sparseLimit || a.shared != b.shared || b == of.open() {
		return
	}
	if c := l.oldest.p; c == a || c == b {
		return
	}
	joined := x.newChunk(int(a.live + b.live))
	joined.shared = a.shared
	for _, p := range [...]*chunk{a, b} {
		x.moveRefs(p, joined, of != &l.all)
	}
	for _, list := range l.listsWith(a, of) {
		k := list.chunkOf(b.first)
		list.chunks[k-1] = joined
		list.chunks = slices.Delete(list.chunks, k, k+1)
		list.firstSeqs = slices.Delete(list.firstSeqs, k, k+1)
	}
	x.freeChunk(a)
	x.freeChunk(b)
}

// moveRefs adds what lives of a chunk to another one; own is set if they are of the list of an owner.
func (x *Index) moveRefs(from, to *chunk, own bool) {
	for i, r := range from.refs {
		for s := range statuses {
			if from.in[s][i/64]&(1<<(i%64)) == 0 {
				continue
			}
			to.add(r, queue.Status(s))
			if rec := x.t.at(r.rec); own {
				rec.own = to.number
			} else {
				rec.all = to.number
			}
		}
	}
}

// skipChunk moves a cursor off chunk k, which is about to be removed.
func (c *cursor) skipChunk(l *seqList, k int) {
	if c.p != l.chunks[k] {
		return
	}
	*c = cursor{}
	if k+1 < len(l.chunks) {
		*c = cursor{p: l.chunks[k+1]}
	} else if k > 0 {
		*c = cursor{p: l.chunks[k-1], i: len(l.chunks[k-1].refs)}
	}
}

// peek returns the ref at c. ok is false at the end of the list.
func (l *seqList) peek(c *cursor) (r ref, ok bool) {
	if c.p == nil {
		if len(l.chunks) == 0 {
			return ref{}, false
		}
		c.p = l.chunks[0]
	}
	for c.i == len(c.p.refs) {
		if c.p == l.chunks[len(l.chunks)-1] {
			return ref{}, false
		}
		*c = cursor{p: l.chunks[l.chunkOf(c.p.first)+1]}
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
