package jobindex

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

// A DeadLetters has the dead letters of a queue by ref, by owner and by the instant at which they
// are deleted. T is what the queue keeps of each. It is not safe for concurrent use. The zero value
// is empty.
type DeadLetters[T any] struct {
	by     map[queue.Ref]*deadLetter[T]
	owners map[deadOwner][]*deadLetter[T] // oldest first
	heap   deadHeap[T]
	added  uint64
	// Count is called with 1 for a dead letter that is added, and with -1 for one that is
	// removed. Nil: nobody counts.
	Count func(owner string, n, bytes int64)
}

type deadOwner struct{ endpoint, owner string }

type deadLetter[T any] struct {
	value T
	ref   queue.Ref
	owner deadOwner
	until queue.Instant
	bytes int64
	order uint64 // of its addition
	pos   int    // in the heap
}

// Len returns the number of dead letters.
func (d *DeadLetters[T]) Len() int { return len(d.by) }

// Put adds a dead letter. It returns those that it took the place of: the one of the same job, and
// the oldest one of an owner with too many. bytes are those of its payloads.
func (d *DeadLetters[T]) Put(ref queue.Ref, owner string, until queue.Instant, bytes int64, v T) (replaced []T) {
	if d.by == nil {
		d.by, d.owners = map[queue.Ref]*deadLetter[T]{}, map[deadOwner][]*deadLetter[T]{}
	}
	if old, ok := d.Remove(ref); ok {
		replaced = append(replaced, old)
	}
	who := deadOwner{ref.Endpoint, owner}
	if list := d.owners[who]; len(list) >= queue.MaxDeadLetters {
		old, _ := d.Remove(list[0].ref)
		replaced = append(replaced, old)
	}
	d.added++
	l := &deadLetter[T]{value: v, ref: ref, owner: who, until: until, order: d.added, bytes: bytes}
	d.count(l, 1)
	d.by[ref] = l
	d.owners[who] = append(d.owners[who], l)
	heap.Push(&d.heap, l)
	return replaced
}

// Remove removes a dead letter and returns it.
func (d *DeadLetters[T]) Remove(ref queue.Ref) (v T, ok bool) {
	l := d.by[ref]
	if l == nil {
		return v, false
	}
	d.count(l, -1)
	delete(d.by, ref)
	heap.Remove(&d.heap, l.pos)
	list := d.owners[l.owner]
	if len(list) == 1 {
		delete(d.owners, l.owner)
		return l.value, true
	}
	i := slices.Index(list, l)
	d.owners[l.owner] = slices.Delete(list, i, i+1)
	return l.value, true
}

func (d *DeadLetters[T]) count(l *deadLetter[T], n int64) {
	if d.Count != nil {
		d.Count(l.owner.owner, n, l.bytes)
	}
}

// Get returns a dead letter that exists at now.
func (d *DeadLetters[T]) Get(now queue.Instant, ref queue.Ref) (v T, ok bool) {
	if l := d.by[ref]; l != nil && now < l.until {
		return l.value, true
	}
	return v, false
}

// List returns the dead letters of an endpoint that exist at now, newest first. An empty owner
// means any owner.
func (d *DeadLetters[T]) List(now queue.Instant, endpoint, owner string) (list []T) {
	var found []*deadLetter[T]
	for who, letters := range d.owners {
		if who.endpoint == endpoint && (owner == "" || owner == who.owner) {
			found = append(found, letters...)
		}
	}
	slices.SortFunc(found, func(a, b *deadLetter[T]) int { return cmp.Compare(b.order, a.order) })
	for _, l := range found {
		if now < l.until {
			list = append(list, l.value)
		}
	}
	return list
}

// Due returns at most limit dead letters whose time has passed at now.
func (d *DeadLetters[T]) Due(now queue.Instant, limit int) (refs []queue.Ref) {
	for i := 0; i < len(d.heap) && len(refs) < limit; i++ {
		// The heap is not sorted, but no one is due if the first one is not.
		if d.heap[0].until > now {
			break
		}
		if d.heap[i].until <= now {
			refs = append(refs, d.heap[i].ref)
		}
	}
	return refs
}

// NextDue returns the instant at which the first dead letter is due; 0: never.
func (d *DeadLetters[T]) NextDue() queue.Instant {
	if len(d.heap) == 0 {
		return 0
	}
	return d.heap[0].until
}

// deadHeap implements heap.Interface.
type deadHeap[T any] []*deadLetter[T]

func (h deadHeap[T]) Len() int           { return len(h) }
func (h deadHeap[T]) Less(i, j int) bool { return h[i].until < h[j].until }
func (h deadHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h *deadHeap[T]) Push(x any) {
	l := x.(*deadLetter[T])
	l.pos = len(*h)
	*h = append(*h, l)
}

func (h *deadHeap[T]) Pop() any {
	n := len(*h) - 1
	l := (*h)[n]
	(*h)[n] = nil
	*h = (*h)[:n]
	return l
}
