package jobindex

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/podyard/podyard/serverless/queue"
)

// A record is a job without its payloads. It has no pointers. It has the size of three cache lines;
// the members of each are used together.
type record struct {
	// To find it, and in the order of claims.
	id         ident
	status     queue.Status
	flags      queue.Flags
	reason     queue.Reason
	deliveries uint8
	restarts   uint8
	marks      Marks
	attempt    uint8
	hash       uint32 // of endpoint and id
	endpoint   uint32 // interned string
	line       uint32 // of Index.lines
	before     uint32 // neighbours in the list of the line
	after      uint32
	place      place
	delayed    bool
	packed     uint8 // Read, Returned and Releases of the state
	leases     uint8
	seq        uint64
	terms      uint32 // interned terms
	run        uint32

	expires       queue.Instant
	queued        queue.Instant
	worker, lost  uint32 // interned strings
	token         queue.Token
	leaseUntil    queue.Instant
	output, chunk uint32
	finished      queue.Instant // Snoozes of a job that has not ended: it has no Finished
	firstChunk    queue.Instant

	started, runUntil, submitted queue.Instant // started is LostStarted of a job that waits: it has no Started
	stream                       int64
	chunks, drained              uint32
	inBytes, outBytes            uint32
	tag                          uint64
	all, own                     uint32 // of Index.chunks: in the list of the endpoint, and in that of the owner; 0: none
}

// State returns the state of a job.
func (x *Index) State(i uint32) (s queue.State) {
	x.Read(i, &s)
	return s
}

// Read sets s to the state of a job. It sets member by member, because a processor waits when
// it copies what was just written.
func (x *Index) Read(i uint32, s *queue.State) {
	r := x.t.at(i)
	s.Status, s.Flags, s.Reason, s.Deliveries, s.Restarts, s.Run = r.status, r.flags, r.reason, r.deliveries, r.restarts, r.run
	s.Priority, s.Attempt, s.Delayed, s.Leases = x.lines[r.line].level, r.attempt, r.delayed, r.leases
	s.Seq, s.Token = r.seq, r.token
	s.Worker, s.Lost = queue.WorkerID(x.names.text(r.worker)), queue.WorkerID(x.names.text(r.lost))
	s.Submitted, s.Queued, s.Started, s.Finished = r.submitted, r.queued, r.started, r.finished
	s.LeaseUntil, s.RunUntil, s.Expires = r.leaseUntil, r.runUntil, r.expires
	s.Terms = *x.terms.at(r.terms)
	s.Chunks, s.Drained, s.Stream = r.chunks, r.drained, r.stream
	s.InBytes, s.OutBytes, s.FirstChunk = r.inBytes, r.outBytes, r.firstChunk
	s.Read, s.Returned, s.Releases, s.LostStarted = r.packed&1 != 0, r.packed&2 != 0, r.packed>>2, 0
	if s.Snoozes = 0; !r.status.Terminal() {
		s.Finished, s.Snoozes = 0, uint16(r.finished)
	}
	if r.status == queue.InQueue {
		s.Started, s.LostStarted = 0, r.started
	}
}

// store is the inverse of Read, without what never changes: the priority and the terms.
func (x *Index) store(r *record, s *queue.State) {
	x.recount(r, s)
	r.status, r.flags, r.reason, r.deliveries, r.restarts, r.run = s.Status, s.Flags, s.Reason, s.Deliveries, s.Restarts, s.Run
	r.attempt, r.delayed, r.leases = s.Attempt, s.Delayed, s.Leases
	r.seq, r.token = s.Seq, s.Token
	x.names.replace(&r.worker, string(s.Worker))
	x.names.replace(&r.lost, string(s.Lost))
	r.submitted, r.queued, r.started, r.finished = s.Submitted, s.Queued, s.Started, s.Finished
	r.leaseUntil, r.runUntil, r.expires = s.LeaseUntil, s.RunUntil, s.Expires
	r.chunks, r.drained, r.stream = s.Chunks, s.Drained, s.Stream
	r.inBytes, r.outBytes, r.firstChunk = s.InBytes, s.OutBytes, s.FirstChunk
	if !s.Status.Terminal() {
		r.finished = queue.Instant(s.Snoozes)
	}
	if s.Status == queue.InQueue {
		r.started = s.LostStarted
	}
	r.packed = s.Releases << 2
	if s.Read {
		r.packed |= 1
	}
	if s.Returned {
		r.packed |= 2
	}
}

// Marks are what a queue records about a job besides its state.
type Marks uint8

// The marks.
const (
	Busy       Marks = 1 << iota // a move is in progress
	Hidden                       // added, but not visible yet
	Skipped                      // a claim skipped it because it was busy
	HasExtra                     // the queue has more data of it elsewhere
	Logged                       // the queue has a first log line of it elsewhere
	LoggedMore                   // and more log lines
	unused                       // the record is free
)

const (
	pageBits = 10
	pageSize = 1 << pageBits
)

// A page is pageSize records.
type page struct {
	records *[pageSize]record
	timers  *[pageSize]timer
	free    []uint16 // unused slots
}

// records is a table of jobs that grows and shrinks by pages. Index 0 is no record. The first
// page has the list heads of the wheel.
type records struct {
	seed         maphash.Seed
	index        segments // by hash of endpoint and id
	pages        []page
	partialPages []uint32 // pages with unused slots
	emptyPages   int      // empty pages that are kept in reserve
	freedPages   []uint32 // numbers of pages that were freed
	count        int
}

func (t *records) init() {
	t.seed = maphash.MakeSeed()
	t.pages = append(t.pages, page{timers: new([pageSize]timer), records: new([pageSize]record)})
}

func (t *records) at(i uint32) *record {
	return &t.pages[i>>pageBits].records[i&(pageSize-1)]
}

func (t *records) timer(i uint32) *timer {
	return &t.pages[i>>pageBits].timers[i&(pageSize-1)]
}

// exists reports whether the page of record i exists.
func (t *records) exists(i uint32) bool { return t.pages[i>>pageBits].records != nil }

func (t *records) hash(endpoint uint32, d *ident) uint32 {
	var b [21]byte
	binary.LittleEndian.PutUint32(b[:], endpoint)
	b[4] = d.form
	copy(b[5:], d.bits[:])
	return uint32(maphash.Bytes(t.seed, b[:]))
}

// find returns the index of a job, or 0.
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

// add adds an empty record for a job. ok is false if the job has one already.
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
	if len(t.partialPages) == 0 {
		t.grow()
	}
	n := t.partialPages[len(t.partialPages)-1]
	p := &t.pages[n]
	if len(p.free) == pageSize {
		t.emptyPages--
	}
	slot := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	if len(p.free) == 0 {
		p.free = nil // most pages are full and need no list
		t.partialPages = t.partialPages[:len(t.partialPages)-1]
	}
	return n<<pageBits | uint32(slot)
}

// grow adds a page. It reuses the number of a freed page if there is one.
func (t *records) grow() {
	p := page{records: new([pageSize]record), timers: new([pageSize]timer), free: make([]uint16, pageSize)}
	for i := range p.free {
		p.free[i] = uint16(pageSize - 1 - i)
		p.records[i].marks = unused
	}
	t.emptyPages++
	if k := len(t.freedPages); k > 0 {
		n := t.freedPages[k-1]
		t.freedPages = t.freedPages[:k-1]
		t.pages[n] = p
		t.partialPages = append(t.partialPages, n)
		return
	}
	t.pages = append(t.pages, p)
	t.partialPages = append(t.partialPages, uint32(len(t.pages)-1))
}

// touch reads, of each job, the record and the place in the hash table, which are seldom in the
// cache of the processor. These reads do not depend on each other, so they
// overlap; what deletes job after job would wait for each.
//
// It is not inlined, because a compiler leaves out reads whose result nobody uses.
//
//go:noinline
func (t *records) touch(list []uint32) (sum uint64) {
	for _, i := range list {
		r := t.at(i)
		s := t.index.of(r.hash)
		sum += s.slots[r.hash&s.mask()]
		sum += uint64(r.expires) + uint64(r.submitted)
	}
	return sum
}

// remove frees a record. An empty page is left to the garbage collector, except a few in
// reserve.
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
		t.partialPages = append(t.partialPages, n)
	case pageSize:
		t.freePage(n)
	}
}

func (t *records) freePage(n uint32) {
	if t.emptyPages < 4 {
		t.emptyPages++
		return
	}
	t.pages[n] = page{}
	t.freedPages = append(t.freedPages, n)
	for i, o := range t.partialPages {
		if o == n {
			t.partialPages[i] = t.partialPages[len(t.partialPages)-1]
			t.partialPages = t.partialPages[:len(t.partialPages)-1]
			return
		}
	}
}
