package jobindex

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/podyard/podyard/serverless"
)

// A record is a job without its payloads. It has no pointers.
type record struct {
	id ident

	status     serverless.Status
	flags      serverless.Flags
	reason     serverless.Reason
	deliveries uint8
	restarts   uint8
	marks      Marks

	endpoint, owner, worker, lost uint32 // names

	seq   uint64
	token serverless.Token
	submitted, queued, started, finished,
	leaseUntil, runUntil, expires serverless.Instant
	execTimeout, retain int64
	chunks, drained     uint32
	stream              int64

	armed      serverless.Instant // when the wheel has it
	prev, next uint32             // in a list of the wheel

	tag           uint64
	output, chunk uint32
	hash          uint32 // of endpoint and id
	run           uint32 // here, where there is room for it
}

// Marks are what a queue notes of a job besides its state.
type Marks uint8

// The marks.
const (
	Busy       Marks = 1 << iota // a move is under way
	Hidden                       // it is not there yet
	Passed                       // a claim came by while it was busy
	Extras                       // the queue has more of it elsewhere
	Logged                       // likewise a first line about it
	LoggedMore                   // and others
	unused                       // the record is free
)

const (
	pageBits = 10
	pageSize = 1 << pageBits
)

// A page is pageSize records.
type page struct {
	records *[pageSize]record
	free    []uint16 // unused slots
}

// records is a table of jobs that grows and shrinks by pages. Index 0 is no record; the
// first page belongs to the wheel's list heads.
type records struct {
	seed  maphash.Seed
	index segments // by hash of endpoint and id
	pages []page
	open  []uint32 // pages with unused slots
	spare int      // empty pages that are kept
	gone  []uint32 // numbers of pages that were given up
	count int
}

func (t *records) init() {
	t.seed = maphash.MakeSeed()
	t.pages = append(t.pages, page{records: new([pageSize]record)})
}

func (t *records) at(i uint32) *record {
	return &t.pages[i>>pageBits].records[i&(pageSize-1)]
}

// exists reports whether the page of record i is there.
func (t *records) exists(i uint32) bool { return t.pages[i>>pageBits].records != nil }

func (t *records) hash(endpoint uint32, d *ident) uint32 {
	var b [21]byte
	binary.LittleEndian.PutUint32(b[:], endpoint)
	b[4] = d.form
	copy(b[5:], d.bits[:])
	return uint32(maphash.Bytes(t.seed, b[:]))
}

// find is the index of a job, 0 when there is none.
func (t *records) find(endpoint uint32, d *ident) uint32 {
	h := t.hash(endpoint, d)
	return t.search(t.index.of(h), h, endpoint, d)
}

func (t *records) search(s *segment, h, endpoint uint32, d *ident) uint32 {
	if s.n == 0 {
		return 0
	}
	mask := s.mask()
	for p := h & mask; s.slots[p] != 0; p = (p + 1) & mask {
		if uint32(s.slots[p]>>32) != h {
			continue
		}
		i := uint32(s.slots[p])
		if r := t.at(i); r.endpoint == endpoint && r.id == *d {
			return i
		}
	}
	return 0
}

// add makes an empty record for a job; ok is false if there is one already.
func (t *records) add(endpoint uint32, d *ident) (i uint32, ok bool) {
	h := t.hash(endpoint, d)
	s := t.index.of(h)
	if t.search(s, h, endpoint, d) != 0 {
		return 0, false
	}
	i = t.alloc()
	*t.at(i) = record{endpoint: endpoint, id: *d, hash: h}
	s.add(h, i)
	t.count++
	return i, true
}

func (t *records) alloc() uint32 {
	if len(t.open) == 0 {
		t.grow()
	}
	n := t.open[len(t.open)-1]
	p := &t.pages[n]
	if len(p.free) == pageSize {
		t.spare--
	}
	slot := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	if len(p.free) == 0 {
		p.free = nil // most pages are full: their list goes
		t.open = t.open[:len(t.open)-1]
	}
	return n<<pageBits | uint32(slot)
}

// grow adds a page, in the place of one that was given up if there is one.
func (t *records) grow() {
	p := page{records: new([pageSize]record), free: make([]uint16, pageSize)}
	for i := range p.free {
		p.free[i] = uint16(pageSize - 1 - i)
		p.records[i].marks = unused
	}
	t.spare++
	if k := len(t.gone); k > 0 {
		n := t.gone[k-1]
		t.gone = t.gone[:k-1]
		t.pages[n] = p
		t.open = append(t.open, n)
		return
	}
	t.pages = append(t.pages, p)
	t.open = append(t.open, uint32(len(t.pages)-1))
}

// remove gives the record up. A page that becomes empty goes back to the garbage
// collector, but for a few in reserve.
func (t *records) remove(i uint32) {
	h := t.at(i).hash
	t.index.of(h).remove(h, i)
	*t.at(i) = record{marks: unused}
	t.count--
	n := i >> pageBits
	p := &t.pages[n]
	p.free = append(p.free, uint16(i&(pageSize-1)))
	switch len(p.free) {
	case 1:
		t.open = append(t.open, n)
	case pageSize:
		t.retire(n)
	}
}

func (t *records) retire(n uint32) {
	if t.spare < 4 {
		t.spare++
		return
	}
	t.pages[n] = page{}
	t.gone = append(t.gone, n)
	for i, o := range t.open {
		if o == n {
			t.open[i] = t.open[len(t.open)-1]
			t.open = t.open[:len(t.open)-1]
			return
		}
	}
}
