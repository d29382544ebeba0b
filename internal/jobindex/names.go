package jobindex

import "strings"

// names gives numbers to strings that many records share (endpoints, owners, workers), so
// that a record holds no pointer and the garbage collector need not look at it. Number 0
// is the empty string.
type names struct {
	number map[string]uint32
	list   []name
	free   []uint32
	recent [recent]uint32 // found last, by hint: most lookups are for few names
}

const recent = 16

// hint chooses the place of a name among the recent ones.
func hint(s string) int { return (len(s) + int(s[0]) + 3*int(s[len(s)-1])) % recent }

type name struct {
	text string
	refs int
}

// hold returns the number of s and keeps it valid until as many drops.
func (n *names) hold(s string) uint32 {
	if s == "" {
		return 0
	}
	i, ok := n.find(s)
	if !ok {
		s = strings.Clone(s) // what is kept must not keep the request that it came with
		i = n.place(s)
		n.number[s] = i
	}
	n.list[i].refs++
	return i
}

func (n *names) place(s string) uint32 {
	if k := len(n.free); k > 0 {
		i := n.free[k-1]
		n.free = n.free[:k-1]
		n.list[i] = name{text: s}
		return i
	}
	if n.number == nil {
		n.number = map[string]uint32{}
		n.list = []name{{}}
	}
	n.list = append(n.list, name{text: s})
	return uint32(len(n.list) - 1)
}

func (n *names) drop(i uint32) {
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

// find is the number of s without holding it; ok is false when no record has it.
func (n *names) find(s string) (i uint32, ok bool) {
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

// swap makes *i the number of s.
func (n *names) swap(i *uint32, s string) {
	if n.text(*i) == s {
		return
	}
	old := *i
	*i = n.hold(s)
	n.drop(old)
}

func (n *names) text(i uint32) string {
	if i == 0 {
		return ""
	}
	return n.list[i].text
}
