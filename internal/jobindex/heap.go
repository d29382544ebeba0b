package jobindex

// A minHeap is a heap of values by their turns. Each node has up to four children: with many lines
// the way from the root to a leaf is short, and what is compared lies together. Each value has a
// position, so that it can be moved or removed. The zero value is empty.
type minHeap[T any] struct {
	list []element[T]
}

type element[T any] struct {
	turn  turn
	value T
	pos   *int32 // of the value: the index plus 1; 0: not in the heap
}

const children = 4

func (h *minHeap[T]) top() T { return h.list[0].value }

// set makes v an element at its place, or no element. pos is the position of v in this heap.
func (h *minHeap[T]) set(v T, pos *int32, at turn, in bool) {
	switch i := int(*pos) - 1; {
	case !in && i < 0:
	case !in:
		h.remove(i)
	case i < 0:
		h.list = append(h.list, element[T]{})
		h.up(len(h.list)-1, element[T]{at, v, pos})
	default:
		h.move(i, element[T]{at, v, pos})
	}
}

func (h *minHeap[T]) remove(i int) {
	last := len(h.list) - 1
	*h.list[i].pos = 0
	moved := h.list[last]
	h.list[last] = element[T]{}
	h.list = h.list[:last]
	if i < last {
		h.move(i, moved)
	}
	if c := cap(h.list); c > 64 && last < c/4 {
		h.list = append(make([]element[T], 0, c/2), h.list...)
	}
}

// move puts e to its place. The element at i is free.
func (h *minHeap[T]) move(i int, e element[T]) {
	if i > 0 && e.turn.before(h.list[(i-1)/children].turn) {
		h.up(i, e)
		return
	}
	h.down(i, e)
}

func (h *minHeap[T]) put(i int, e element[T]) {
	h.list[i] = e
	*e.pos = int32(i + 1)
}

func (h *minHeap[T]) up(i int, e element[T]) {
	for i > 0 {
		parent := (i - 1) / children
		if !e.turn.before(h.list[parent].turn) {
			break
		}
		h.put(i, h.list[parent])
		i = parent
	}
	h.put(i, e)
}

func (h *minHeap[T]) down(i int, e element[T]) {
	for {
		first := children*i + 1
		if first >= len(h.list) {
			break
		}
		least := first
		for c := first + 1; c < min(first+children, len(h.list)); c++ {
			if h.list[c].turn.before(h.list[least].turn) {
				least = c
			}
		}
		if !h.list[least].turn.before(e.turn) {
			break
		}
		h.put(i, h.list[least])
		i = least
	}
	h.put(i, e)
}
