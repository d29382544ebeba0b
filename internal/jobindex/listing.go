package jobindex

import (
	"math"
	"math/bits"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

// A Listing reads the jobs of a queue.ListQuery without IDs, newest first, some at a time. It costs
// what it returns: what is skipped is only counted, 512 jobs at once.
type Listing struct {
	q      *queue.ListQuery
	status StatusSet
	before uint64
	skip   int // of q.Offset, if the index can count what is skipped
	left   int // of q.Limit; math.MaxInt: no limit
}

// NewListing begins a listing. It sets q.Offset to 0 if the listing takes care of it. q must stay as it is.
func NewListing(q *queue.ListQuery) *Listing {
	l := &Listing{q: q, status: SetOf(q.Status), before: q.Before, left: math.MaxInt}
	if l.before == 0 {
		l.before = math.MaxUint64
	}
	if q.Prefix != "" {
		return l
	}
	l.skip, q.Offset = q.Offset, 0
	if q.Limit > 0 {
		l.left = q.Limit
	}
	return l
}

// Next calls fn with the next jobs of a listing, at most step. Some of them may be Gone. It returns
// false when there are no more.
func (x *Index) Next(l *Listing, now queue.Instant, step int, fn func(i uint32)) (more bool) {
	if l.skip > 0 {
		l.before, l.skip = x.skip(now, l.q.Endpoint, l.q.Owner, l.status, l.before, l.skip), 0
	}
	if l.before > 0 {
		l.before = x.newest(l.q.Endpoint, l.q.Owner, l.status, l.before, min(step, l.left), func(i uint32) {
			s := x.State(i)
			if l.left < math.MaxInt && !s.Gone(now) {
				l.left--
			}
			fn(i)
		})
	}
	return l.before > 0 && l.left > 0
}

// Count returns how many jobs a query without Prefix and IDs selects.
func (x *Index) Count(now queue.Instant, q *queue.ListQuery) (n int) {
	l, set := x.listed(q.Endpoint, q.Owner), SetOf(q.Status)
	if l == nil {
		return 0
	}
	for s := range statuses {
		if set&(1<<s) != 0 {
			n += l.counts[s]
		}
	}
	return n - len(x.gone(now, q.Endpoint, q.Owner, set))
}

// listed returns the list of an owner on an endpoint, or that of all; nil: there is none.
func (x *Index) listed(endpoint, owner string) *seqList {
	l := x.listOf(endpoint)
	who, ok := x.names.find(owner)
	if l == nil || !ok {
		return nil
	}
	if owner == "" {
		return &l.all
	}
	switch o := l.order.owners[who]; {
	case o == nil:
		return nil
	case l.split:
		return &o.list
	case l.order.first == o:
		return &l.all
	}
	return nil
}

// newest calls fn with the jobs below a Seq that have one of the statuses, newest first, at most
// limit. It returns the Seq to continue before; 0: done.
func (x *Index) newest(endpoint, owner string, set StatusSet, before uint64, limit int, fn func(i uint32)) (next uint64) {
	l := x.listed(endpoint, owner)
	if l == nil {
		return 0
	}
	for k := l.chunkOf(before); k >= 0 && k < len(l.chunks); k-- {
		p := l.chunks[k]
		x.reads++
		b := p.with(set, p.below(before))
		for w := len(b) - 1; w >= 0; w-- {
			for b[w] != 0 {
				if limit == 0 {
					return before
				}
				limit--
				i := bits.Len64(b[w]) - 1
				b[w] &^= 1 << i
				before = p.refs[64*w+i].seq
				x.reads++
				fn(p.refs[64*w+i].rec)
			}
		}
	}
	return 0
}

// skip returns the Seq before which a listing continues that leaves out the first n jobs below a
// Seq; 0: there are no more.
func (x *Index) skip(now queue.Instant, endpoint, owner string, set StatusSet, before uint64, n int) (next uint64) {
	l := x.listed(endpoint, owner)
	if l == nil {
		return 0
	}
	gone := x.gone(now, endpoint, owner, set)
	for k := l.chunkOf(before); k >= 0 && k < len(l.chunks); k-- {
		p := l.chunks[k]
		x.reads++
		b := p.with(set, p.below(before))
		for _, seq := range within(gone, p.first, before) {
			i := p.place(seq)
			b[i/64] &^= 1 << (i % 64)
		}
		if c := b.count(); c < n {
			n, before = n-c, p.first
			continue
		}
		for w := len(b) - 1; w >= 0; w-- {
			if c := bits.OnesCount64(b[w]); c < n {
				n -= c
				continue
			}
			for ; n > 1; n-- {
				b[w] &^= 1 << (bits.Len64(b[w]) - 1)
			}
			return p.refs[64*w+bits.Len64(b[w])-1].seq
		}
	}
	return 0
}

// within returns the part of a sorted list from first on and below before.
func within(seqs []uint64, first, before uint64) []uint64 {
	from, _ := slices.BinarySearch(seqs, first)
	to, _ := slices.BinarySearch(seqs, before)
	return seqs[from:max(from, to)]
}

// gone returns the Seq of each job that is listed no more, although no sweep has deleted it yet, in
// order. Such a job is due, and there are few of them.
func (x *Index) gone(now queue.Instant, endpoint, owner string, set StatusSet) (seqs []uint64) {
	ep, _ := x.names.find(endpoint)
	who, _ := x.names.find(owner)
	x.wheel.each(now, func(i uint32) {
		x.reads++
		r := x.t.at(i)
		if r.endpoint != ep || owner != "" && x.ownerOf(i) != who || set&(1<<r.status) == 0 {
			return
		}
		if s := x.State(i); s.Gone(now) {
			seqs = append(seqs, s.Seq)
		}
	})
	slices.Sort(seqs)
	return seqs
}

// Queued calls fn, in order, with the queued jobs of an endpoint whose Seq is above after and
// at most upTo. An empty owner means any owner. It looks at limit jobs at most, and returns
// the Seq to continue after; 0: done. fn must not move jobs; it returns whether to continue.
func (x *Index) Queued(endpoint, owner string, after, upTo uint64, limit int, fn func(i uint32) bool) (next uint64) {
	l := x.listed(endpoint, owner)
	if l == nil {
		return 0
	}
	next = after
	for k := l.chunkOf(after); k < len(l.chunks); k++ {
		p := l.chunks[k]
		b := p.with(1<<queue.InQueue, len(p.refs))
		for w := range b {
			for ; b[w] != 0; b[w] &= b[w] - 1 {
				r := p.refs[64*w+bits.TrailingZeros64(b[w])]
				switch {
				case r.seq <= after:
					continue
				case r.seq > upTo:
					return 0
				case limit == 0 || !fn(r.rec):
					return next
				}
				limit--
				next = r.seq
			}
		}
	}
	return 0
}
