package jobindex

import "github.com/podyard/podyard/serverless/queue"

// A minHeap is a heap of values by their turns. Each node has up to four children: with many lines
// the way from the root to a leaf is short, and what is compared lies together. Each value has a
// position, so that it can be moved or removed. The zero value is empty.
type minHeap[T any] struct {
	list []element[T]
	idle bool // the only element is out: it keeps its position, because it may soon be in again
}

type element[T any] struct {
	turn  queue.Turn
	value T
	pos   *int32 // of the value: the index plus 1; 0: no element
}

const children = 4

func (h *minHeap[T]) empty() bool { return h.idle || len(h.list) == 0 }

// top returns the first value of a heap that is not empty.
func (h *minHeap[T]) top() T { return h.list[0].value }

// set puts v to its place, or takes it out. pos is the position of v in this heap. forget must be
// called before v is gone.
func (h *minHeap[T]) set(v T, pos *int32, at queue.Turn, in bool) {
	i := int(*pos) - 1
	switch {
	case in:
		h.add(i, element[T]{at, v, pos})
	case i >= 0 && len(h.list) == 1:
		h.idle = true
	case i >= 0:
		h.remove(i)
	}
}

// add puts e to its place. i is its index, or -1.
func (h *minHeap[T]) add(i int, e element[T]) {
	if h.idle && i < 0 {
		h.remove(0)
	}
	h.idle = false
	switch {
	case i < 0:
		h.list = append(h.list, element[T]{})
		h.up(len(h.list)-1, e)
	case len(h.list) == 1:
		h.list[0].turn = e.turn
	default:
		h.move(i, e)
	}
}

// forget removes the value with this position, whether it is in or out.
func (h *minHeap[T]) forget(pos *int32) {
	if *pos > 0 {
		h.remove(int(*pos) - 1)
		h.idle = false
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
	if i > 0 && e.turn.Before(h.list[(i-1)/children].turn) {
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
		if !e.turn.Before(h.list[parent].turn) {
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
			if h.list[c].turn.Before(h.list[least].turn) {
				least = c
			}
		}
		if !h.list[least].turn.Before(e.turn) {
			break
		}
		h.put(i, h.list[least])
		i = least
	}
	h.put(i, e)
}
