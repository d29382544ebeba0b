package jobindex

import "strings"

// An interner gives numbers to strings that many records share (endpoints, owners, workers),
// so that a record has no pointer for the garbage collector to follow. Number 0 is the empty
// string. Each string has a reference count.
type interner struct {
	number map[string]uint32
	list   []internedString
	free   []uint32
	recent [recent]uint32 // cache of recent lookups, by hint
}

const recent = 16

// hint returns the place of a string in the cache.
func hint(s string) int { return (len(s) + int(s[0]) + 3*int(s[len(s)-1])) % recent }

type internedString struct {
	text string
	refs int
}

// intern returns the number of s and adds a reference. The number is valid until release was
// called as often as intern.
func (n *interner) intern(s string) uint32 {
	if s == "" {
		return 0
	}
	i, ok := n.find(s)
	if !ok {
		s = strings.Clone(s) // s may be a part of a large request
		i = n.place(s)
		n.number[s] = i
	}
	n.list[i].refs++
	return i
}

func (n *interner) place(s string) uint32 {
	if k := len(n.free); k > 0 {
		i := n.free[k-1]
		n.free = n.free[:k-1]
		n.list[i] = internedString{text: s}
		return i
	}
	if n.number == nil {
		n.number = map[string]uint32{}
		n.list = []internedString{{}}
	}
	n.list = append(n.list, internedString{text: s})
	return uint32(len(n.list) - 1)
}

// keep adds a reference to a number that is in use.
func (n *interner) keep(i uint32) {
	if i != 0 {
		n.list[i].refs++
	}
}

func (n *interner) release(i uint32) {
	if i == 0 {
		return
	}
	n.list[i].refs--
	if n.list[i].refs == 0 {
		delete(n.number, n.list[i].text)
		n.list[i].text = ""
		n.free = append(n.free, i)
	}
}

// find returns the number of s without a reference. ok is false if s has no number.
func (n *interner) find(s string) (i uint32, ok bool) {
	if s == "" {
		return 0, true
	}
	last := &n.recent[hint(s)]
	if n.text(*last) == s {
		return *last, true
	}
	if i, ok = n.number[s]; ok {
		*last = i
	}
	return i, ok
}

// replace sets *i to the number of s and releases the old number.
func (n *interner) replace(i *uint32, s string) {
	if n.text(*i) == s {
		return
	}
	old := *i
	*i = n.intern(s)
	n.release(old)
}

func (n *interner) text(i uint32) string {
	if i == 0 {
		return ""
	}
	return n.list[i].text
}
