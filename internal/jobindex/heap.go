package jobindex

// A minHeap is a binary heap of pointers. Each element knows its position, so that it can be moved
// or removed. Create one with newMinHeap.
type minHeap[T any] struct {
	list   []T
	before func(a, b T) bool
	pos    func(T) *int32 // the position plus 1; 0: not in the heap
}

func newMinHeap[T any](before func(a, b T) bool, pos func(T) *int32) minHeap[T] {
	return minHeap[T]{before: before, pos: pos}
}

// set makes v an element at its place, or no element.
func (h *minHeap[T]) set(v T, in bool) {
	at := h.pos(v)
	switch {
	case !in && *at == 0:
	case in && *at > 0 && len(h.list) == 1:
	case !in:
		h.remove(int(*at - 1))
	case *at == 0:
		h.list = append(h.list, v)
		*at = int32(len(h.list))
		h.up(len(h.list) - 1)
	default:
		i := int(*at - 1)
		if !h.up(i) {
			h.down(i)
		}
	}
}

func (h *minHeap[T]) remove(i int) {
	last := len(h.list) - 1
	h.swap(i, last)
	*h.pos(h.list[last]) = 0
	clear(h.list[last:])
	h.list = h.list[:last]
	if i < last && !h.up(i) {
		h.down(i)
	}
	if c := cap(h.list); c > 64 && last < c/4 {
		h.list = append(make([]T, 0, c/2), h.list...)
	}
}

func (h *minHeap[T]) swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	*h.pos(h.list[i]), *h.pos(h.list[j]) = int32(i+1), int32(j+1)
}

// up reports whether it has moved the element.
func (h *minHeap[T]) up(i int) bool {
	start := i
	for i > 0 {
		p := (i - 1) / 2
		if !h.before(h.list[i], h.list[p]) {
			break
		}
		h.swap(i, p)
		i = p
	}
	return i != start
}

func (h *minHeap[T]) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h.list) {
			return
		}
		if c+1 < len(h.list) && h.before(h.list[c+1], h.list[c]) {
			c++
		}
		if !h.before(h.list[c], h.list[i]) {
			return
		}
		h.swap(i, c)
		i = c
	}
}
