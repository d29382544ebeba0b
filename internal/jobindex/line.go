package jobindex

import (
	"slices"
	"sort"

	"github.com/podyard/podyard/serverless"
)

// A ref names a record at the time it had a Seq. A record that has another one by now
// (deleted, reused, retried) is not the one that was meant.
type ref struct {
	seq uint64
	rec uint32
}

// lineSize is how many refs a piece of a line has.
const lineSize = 512

// sparseLive is how few living refs make a piece one to be joined with another.
const sparseLive = lineSize / 8

// A piece is a run of refs in the order of Seq.
type piece struct {
	n    int // refs that were added
	live int // of them, those whose record is still there
	refs [lineSize]ref
}

// A line is all jobs of an endpoint in the order of Seq: at once the queue, of which the
// cursor has passed what was claimed, and the list of what there is. Jobs that a lost
// worker puts back are in front, a heap by Seq.
type line struct {
	firsts []uint64 // Seq of the first ref of each piece
	pieces []*piece
	ready  cursor // nothing before it is queued, but for what is in front
	oldest cursor // nothing before it is queued with normal priority, likewise
	front  []ref
	stats  serverless.Stats
}

// A cursor is a place in a line. Without a piece it is at its beginning.
type cursor struct {
	p *piece
	i int
}

func (l *line) append(seq uint64, rec uint32) {
	k := len(l.pieces)
	if k == 0 || l.pieces[k-1].n == lineSize {
		l.pieces = append(l.pieces, &piece{})
		l.firsts = append(l.firsts, seq)
		k++
	}
	p := l.pieces[k-1]
	p.refs[p.n] = ref{seq, rec}
	p.n++
	p.live++
}

// where is the piece that has seq, or would have.
func (l *line) where(seq uint64) int {
	return max(sort.Search(len(l.firsts), func(i int) bool { return l.firsts[i] > seq })-1, 0)
}

// forget notes that the record with this Seq is gone. It reports whether to call thin when
// it is: now and then, and at the latest when few are left. A line without jobs has no piece:
// lines outlive their endpoints.
func (l *line) forget(seq uint64) (sparse bool) {
	k := l.where(seq)
	p := l.pieces[k]
	p.live--
	if p.live > 0 || p.n < lineSize && len(l.pieces) > 1 {
		return p.live <= sparseLive && p.live&(p.live-1) == 0
	}
	l.ready.skip(l, k)
	l.oldest.skip(l, k)
	l.pieces = slices.Delete(l.pieces, k, k+1)
	l.firsts = slices.Delete(l.firsts, k, k+1)
	return false
}

// thin joins the piece of seq with its neighbours when they have as little left: a few
// long-lived jobs must not keep the room of many.
func (l *line) thin(seq uint64, alive func(ref) bool) {
	k := l.where(seq)
	l.join(k+1, alive)
	l.join(k, alive)
}

// join makes one of piece k and the one before it, if both have little left and no cursor
// stands in them.
func (l *line) join(k int, alive func(ref) bool) {
	if k == 0 || k >= len(l.pieces) {
		return
	}
	a, b := l.pieces[k-1], l.pieces[k]
	if a.live+b.live > 2*sparseLive || b.n < lineSize {
		return
	}
	for _, c := range [...]*piece{l.ready.p, l.oldest.p} {
		if c == a || c == b {
			return
		}
	}
	joined := &piece{}
	for _, p := range [...]*piece{a, b} {
		for _, r := range p.refs[:p.n] {
			if alive(r) {
				joined.refs[joined.n] = r
				joined.n++
			}
		}
	}
	joined.live = joined.n
	if joined.n < lineSize {
		// A piece in the middle takes no more refs: fill it up with refs to nothing.
		last := joined.refs[max(joined.n-1, 0)].seq
		for i := joined.n; i < lineSize; i++ {
			joined.refs[i] = ref{seq: last}
		}
		joined.n = lineSize
	}
	l.pieces[k-1] = joined
	l.pieces = slices.Delete(l.pieces, k, k+1)
	l.firsts = slices.Delete(l.firsts, k, k+1)
}

// skip moves a cursor off piece k, which goes.
func (c *cursor) skip(l *line, k int) {
	if c.p != l.pieces[k] {
		return
	}
	*c = cursor{}
	if k+1 < len(l.pieces) {
		*c = cursor{p: l.pieces[k+1]}
	} else if k > 0 {
		*c = cursor{p: l.pieces[k-1], i: l.pieces[k-1].n}
	}
}

// after is a cursor at the first ref above seq.
func (l *line) after(seq uint64) cursor {
	if len(l.pieces) == 0 {
		return cursor{}
	}
	p := l.pieces[l.where(seq)]
	return cursor{p, sort.Search(p.n, func(i int) bool { return p.refs[i].seq > seq })}
}

// peek is the ref at c; ok is false at the end of the line.
func (l *line) peek(c *cursor) (r ref, ok bool) {
	if c.p == nil {
		if len(l.pieces) == 0 {
			return ref{}, false
		}
		c.p = l.pieces[0]
	}
	for c.i == c.p.n {
		if c.p.n < lineSize {
			return ref{}, false
		}
		k := l.where(c.p.refs[0].seq)
		if k+1 >= len(l.pieces) {
			return ref{}, false
		}
		*c = cursor{p: l.pieces[k+1]}
	}
	return c.p.refs[c.i], true
}

// putBack puts a job in front.
func (l *line) putBack(r ref) {
	l.front = append(l.front, r)
	for i := len(l.front) - 1; i > 0; {
		p := (i - 1) / 2
		if l.front[p].seq <= l.front[i].seq {
			break
		}
		l.front[p], l.front[i] = l.front[i], l.front[p]
		i = p
	}
}

// popFront takes the oldest job of those in front.
func (l *line) popFront() ref {
	r := l.front[0]
	n := len(l.front) - 1
	l.front[0] = l.front[n]
	l.front = l.front[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && l.front[c+1].seq < l.front[c].seq {
			c++
		}
		if l.front[i].seq <= l.front[c].seq {
			break
		}
		l.front[i], l.front[c] = l.front[c], l.front[i]
		i = c
	}
	return r
}
