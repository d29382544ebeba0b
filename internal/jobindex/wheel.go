package jobindex

import (
	"math/bits"

	"github.com/podyard/podyard/serverless/queue"
)

// A wheel is a hierarchical timing wheel: it orders records by the instant at which they are
// due, with constant time for each insertion and removal. Level l has 64 lists, each 64^l ms
// wide. A record is in the list of the highest 6-bit group in which its instant differs from
// now. Lists are rings through the timers of the records; their heads are timers of the first
// page.
type wheel struct {
	t    *records
	now  queue.Instant
	used [levels]uint64 // bit set: the list may have records
}

// A timer is a record in the wheel. It is not a part of the record: a walk through a list waits
// for each neighbour, and four timers have the size of a cache line.
type timer struct {
	prev, next uint32        // neighbours in a list
	armed      queue.Instant // the instant at which it is in the wheel
}

const (
	levels  = 11 // 66 bits, enough for every instant
	slots   = 64
	pending = levels*slots + 1 // head of the list of due records
)

func (w *wheel) init(t *records) {
	w.t = t
	for i := uint32(1); i <= pending; i++ {
		r := t.timer(i)
		r.prev, r.next = i, i
	}
}

// add inserts record i at the instant at.
func (w *wheel) add(i uint32, at queue.Instant) {
	r := w.t.timer(i)
	head := uint32(pending)
	if at > w.now {
		l := (63 - bits.LeadingZeros64(uint64(at)^uint64(w.now))) / 6
		s := uint64(at) >> (6 * l) & (slots - 1)
		w.used[l] |= 1 << s
		head = uint32(l*slots) + uint32(s) + 1
	}
	h := w.t.timer(head)
	r.prev, r.next, r.armed = h.prev, head, at
	w.t.timer(h.prev).next = i
	h.prev = i
}

// off makes remove work on a record that is not in the wheel.
func (w *wheel) off(i uint32) {
	r := w.t.timer(i)
	r.prev, r.next = i, i
}

func (w *wheel) remove(i uint32) {
	r := w.t.timer(i)
	w.t.timer(r.prev).next = r.next
	w.t.timer(r.next).prev = r.prev
}

// due removes and returns a record whose list has been reached at now; 0: none. The instant
// of the record may still be later; the caller then inserts it again.
func (w *wheel) due(now queue.Instant) uint32 {
	for {
		if i := w.t.timer(pending).next; i != pending {
			w.remove(i)
			return i
		}
		l, s, start := w.first()
		if l < 0 || start > now {
			w.now = max(w.now, now)
			return 0
		}
		w.now = start
		w.used[l] &^= 1 << s
		w.splice(uint32(l*slots+s) + 1)
	}
}

// each calls fn with the records that are due at now, and with some that are not. They stay in the
// wheel.
func (w *wheel) each(now queue.Instant, fn func(i uint32)) {
	for l, s, start := w.first(); l >= 0 && start <= now; l, s, start = w.first() {
		w.now = start
		w.used[l] &^= 1 << s
		head := w.t.timer(uint32(l*slots+s) + 1)
		i, last := head.next, head.prev
		head.prev, head.next = uint32(l*slots+s)+1, uint32(l*slots+s)+1
		for more := true; more; {
			t := w.t.timer(i)
			next := t.next
			more = i != last
			w.add(i, t.armed)
			i = next
		}
	}
	w.now = max(w.now, now)
	for i := w.t.timer(pending).next; i != pending; i = w.t.timer(i).next {
		fn(i)
	}
}

// rewind sets the wheel back to now and inserts every record again.
func (w *wheel) rewind(now queue.Instant) {
	for l := range levels {
		for ; w.used[l] != 0; w.used[l] &= w.used[l] - 1 {
			w.splice(uint32(l*slots+bits.TrailingZeros64(w.used[l])) + 1)
		}
	}
	w.now = now
	head := w.t.timer(pending)
	i := head.next
	head.prev, head.next = pending, pending
	for i != pending {
		t := w.t.timer(i)
		next := t.next
		w.add(i, t.armed)
		i = next
	}
}

// next returns a lower bound of the instant at which due returns a record; 0 if the wheel is
// empty.
func (w *wheel) next() queue.Instant {
	if w.t.timer(pending).next != pending {
		return w.now
	}
	l, _, start := w.first()
	if l < 0 {
		return 0
	}
	return start
}

// first returns the earliest list with records. It clears the bits of empty lists that it
// passes.
func (w *wheel) first() (level, slot int, start queue.Instant) {
	for l := range levels {
		for w.used[l] != 0 {
			s := bits.TrailingZeros64(w.used[l])
			head := uint32(l*slots+s) + 1
			if w.t.timer(head).next != head {
				shift := 6 * (l + 1)
				base := uint64(w.now) >> shift << shift
				return l, s, queue.Instant(base | uint64(s)<<(6*l))
			}
			w.used[l] &^= 1 << s
		}
	}
	return -1, 0, 0
}

// splice moves a whole list to the pending list.
func (w *wheel) splice(head uint32) {
	h, p := w.t.timer(head), w.t.timer(pending)
	first, last := h.next, h.prev
	if first == head {
		return
	}
	h.prev, h.next = head, head
	w.t.timer(p.prev).next, w.t.timer(first).prev = first, p.prev
	w.t.timer(last).next, p.prev = pending, last
}
