package jobindex

import (
	"iter"
	"math/bits"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

const priorities = queue.MaxPriority + 1

// An order has the jobs of an endpoint that are ready, as queue.Choose asks for them.
type order struct {
	owners  map[uint32]*owner // with a job in any status
	first   *owner            // whose jobs were first in the list of the endpoint; nil: it has no job any more
	turns   minHeap[*owner]   // those with a job that could be claimed
	rules   rules
	ruled   bool   // there are rules
	claims  uint64 // for turns
	ready   counts
	free    counts // the sum of that of the owners
	running int
	recent  *line
	x       *Index
	buckets
}

// rules are the rules of an endpoint.
type rules struct {
	queue.Rules
	rated bool // there is a rate, or a key is held
}

// limit reports whether a key or an owner may have a limit or a rate.
func (r *rules) limit() bool { return r.PerKey != 0 || r.PerUser != 0 || r.rated || r.Keys != nil }

// An owner has a line for each level and key.
type owner struct {
	name    uint32
	holds   *holder
	keys    map[uint32]*key
	levels  [priorities]*level
	active  uint16 // bits of the levels with a line
	served  queue.Turn
	pos     int32 // in order.turns
	ready   counts
	free    counts // the sum of that of the keys
	running int
	bucket  *bucket // nil: it is full
	list    seqList // if the list of the endpoint is split
}

// A level has the lines of one priority with a job that could be claimed.
type level struct {
	turns minHeap[*line] // by turn
	ages  minHeap[*line] // by the Seq of the oldest job
}

// A key counts the jobs of an owner with one key. Jobs without a key have one too, of number 0.
type key struct {
	name    uint32
	owner   *owner
	order   *order
	lines   []*line // of the levels
	ready   counts
	running int
	bucket  *bucket // nil: it is full
}

// A line has the ready jobs of one owner, priority and key, the oldest first. It exists while
// there is a job in any status.
type line struct {
	number           uint32
	jobs             int // in any status
	key              *key
	holds            *holder // of the owner
	level            uint8
	first, last      uint32 // of the list through the records, in the order of Seq
	requeued         seqHeap
	head             ref // the oldest of both
	served           queue.Turn
	turnPos, agesPos int32
}

// counts are numbers of jobs: of all, and of those without low priority.
type counts struct{ all, normal int }

func (c counts) plus(o counts, n int) counts { return counts{c.all + n*o.all, c.normal + n*o.normal} }

func (c *counts) add(o counts) { c.all, c.normal = c.all+o.all, c.normal+o.normal }

// atMost limits the counts where there is a limit: how many more may run.
func (c counts) atMost(limit, running int) counts {
	if limit == 0 {
		return c
	}
	n := max(limit-running, 0)
	return counts{min(c.all, n), min(c.normal, n)}
}

func countOf(f queue.Flags) counts {
	if f&queue.LowPriority != 0 {
		return counts{all: 1}
	}
	return counts{1, 1}
}

// join returns the line of a job and counts the job in it.
func (x *Index) join(q *order, user, name string, priority uint8) *line {
	l := q.recent
	if l == nil || l.level != priority || x.names.text(l.key.owner.name) != user || x.names.text(l.key.name) != name {
		l = x.lineOf(q, user, name, priority)
		q.recent = l
	}
	l.jobs++
	return l
}

func (x *Index) lineOf(q *order, user, name string, priority uint8) *line {
	who, what := x.names.intern(user), x.names.intern(name)
	o := q.owners[who]
	if o == nil {
		x.names.intern(user)
		o = &owner{name: who, keys: map[uint32]*key{}, holds: x.holderOf(user), bucket: q.list[bucketName{who, noName}]}
		q.owners[who] = o
	}
	k := o.keys[what]
	if k == nil {
		x.names.intern(name)
		k = &key{name: what, owner: o, order: q, bucket: q.list[bucketName{who, what}]}
		o.keys[what] = k
	}
	x.names.release(who)
	x.names.release(what)
	for _, l := range k.lines {
		if l.level == priority {
			return l
		}
	}
	l := &line{key: k, holds: o.holds, level: priority}
	k.lines = append(k.lines, l)
	if n := len(x.freeLines); n > 0 {
		l.number = x.freeLines[n-1]
		x.freeLines = x.freeLines[:n-1]
		x.lines[l.number] = l
		return l
	}
	l.number = uint32(len(x.lines))
	x.lines = append(x.lines, l)
	return l
}

// part removes a job from the count of its line.
func (x *Index) part(l *line) {
	if l.jobs--; l.jobs > 0 {
		return
	}
	k := l.key
	q, o := k.order, k.owner
	if q.recent == l {
		q.recent = nil
	}
	if lv := o.levels[l.level]; lv != nil {
		lv.turns.forget(&l.turnPos)
		lv.ages.forget(&l.agesPos)
	}
	x.lines[l.number] = nil
	x.freeLines = append(x.freeLines, l.number)
	k.lines = slices.DeleteFunc(k.lines, func(other *line) bool { return other == l })
	if len(k.lines) > 0 {
		return
	}
	delete(o.keys, k.name)
	x.names.release(k.name)
	if len(o.keys) == 0 {
		q.turns.forget(&o.pos)
		if q.first == o {
			q.first = nil
		}
		delete(q.owners, o.name)
		x.drop(o.holds)
		x.names.release(o.name)
	}
}

// A place says how a job is counted in the order of its endpoint.
type place uint8

const (
	away     place = iota // neither ready nor running
	inList                // ready, in the list of its line
	requeued              // ready, in the heap of its line
	aside                 // ready, but passed by until Requeue
	taken                 // NextReady has returned it: it counts as running until it is moved or requeued
	running
)

func (p place) ready() bool { return p == inList || p == requeued || p == aside }

// placeOf returns the kind of place that a job has: away, inList for a ready job, or running.
func placeOf(s queue.Status, delayed bool) place {
	switch {
	case s == queue.InProgress:
		return running
	case s == queue.InQueue && !delayed:
		return inList
	}
	return away
}

// update stores the state of a job that is not hidden and gives the job its place.
func (x *Index) update(i uint32, r *record, s *queue.State) {
	want := placeOf(s.Status, s.Delayed)
	same := want == inList && r.place.ready() && r.seq == s.Seq && r.flags == s.Flags ||
		want == running && (r.place == running || r.place == taken)
	if !same {
		x.leave(i, r)
	}
	x.store(r, s)
	switch {
	case !same:
		x.enter(i, r, want)
	case want == running:
		if r.place == taken && len(x.lines[r.line].key.order.taken) > 0 {
			delete(x.lines[r.line].key.order.taken, i)
		}
		r.place = running
	}
}

// enter gives a job that is away its place.
func (x *Index) enter(i uint32, r *record, want place) {
	l := x.lines[r.line]
	r.place = want
	switch want {
	case inList:
		l.key.count(countOf(r.flags), 1, 0)
		if x.queueUp(l, i, r) {
			x.refresh(l)
		}
	case running:
		x.run(l.key, 1)
	}
}

// queueUp adds a job to its line. It returns false if the head of the line stays the same.
func (x *Index) queueUp(l *line, i uint32, r *record) bool {
	if l.last != 0 && r.seq < x.t.at(l.last).seq {
		r.place = requeued
		l.requeued.push(ref{r.seq, i})
		return true
	}
	r.before, r.after = l.last, 0
	if l.last == 0 {
		l.first = i
	} else {
		x.t.at(l.last).after = i
	}
	l.last = i
	return l.head.rec == 0 || r.seq < l.head.seq
}

// leave removes a job from its place.
func (x *Index) leave(i uint32, r *record) {
	l, was := x.lines[r.line], r.place
	r.place = away
	switch was {
	case inList:
		x.unlink(l, r)
	case taken, running:
		x.run(l.key, -1)
		if at, ok := l.key.order.taken[i]; ok && was == taken {
			delete(l.key.order.taken, i)
			x.giveBack(l.key, at)
		}
	}
	if was.ready() {
		l.key.count(countOf(r.flags), -1, 0)
		if l.head.rec == i {
			x.refresh(l)
		}
	}
}

func (x *Index) unlink(l *line, r *record) {
	if r.before == 0 {
		l.first = r.after
	} else {
		x.t.at(r.before).after = r.after
	}
	if r.after == 0 {
		l.last = r.before
	} else {
		x.t.at(r.after).before = r.before
	}
	r.before, r.after = 0, 0
}

// setAside passes by a ready job until Requeue.
func (x *Index) setAside(i uint32) {
	r := x.t.at(i)
	l := x.lines[r.line]
	if r.place == inList {
		x.unlink(l, r)
	}
	r.place = aside
	x.refresh(l)
}

// run counts n more running jobs of a key.
func (x *Index) run(k *key, n int) {
	if !k.order.rules.limit() {
		k.count(counts{}, 0, n)
		return
	}
	wasFull, wasStopped := k.full(), k.owner.full(k.order)
	k.count(counts{}, 0, n)
	if k.full() != wasFull {
		x.refreshAll(k)
	}
	if k.owner.full(k.order) != wasStopped {
		k.owner.refresh(k.order)
	}
}

// count adds n times c to the ready jobs, and ran to the running ones.
func (k *key) count(c counts, n, ran int) {
	o, q := k.owner, k.order
	if !q.rules.limit() {
		c = counts{n * c.all, n * c.normal}
		k.ready.add(c)
		o.ready.add(c)
		q.ready.add(c)
		o.free.add(c)
		q.free.add(c)
		k.running, o.running, q.running = k.running+ran, o.running+ran, q.running+ran
		return
	}
	ofKey, ofOwner := k.free(), o.couldRun(q)
	k.ready, o.ready, q.ready = k.ready.plus(c, n), o.ready.plus(c, n), q.ready.plus(c, n)
	k.running, o.running, q.running = k.running+ran, o.running+ran, q.running+ran
	o.free = o.free.plus(k.free(), 1).plus(ofKey, -1)
	q.free = q.free.plus(o.couldRun(q), 1).plus(ofOwner, -1)
}

// perKey returns the limit of the key; 0: none.
func (k *key) perKey() int {
	if k.name == 0 {
		return 0
	}
	if r := &k.order.rules; r.Keys == nil {
		return r.PerKey
	}
	return k.order.rules.KeyLimit(k.order.x.names.text(k.name))
}

// fullAt reports whether the key is at a limit of its endpoint.
func (k *key) fullAt(perKey int) bool { return k.name != 0 && perKey > 0 && k.running >= perKey }

// free counts the jobs that could be claimed if only the key had a limit.
func (k *key) free() counts {
	c := k.ready.atMost(k.perKey(), k.running)
	if k.order.rules.rated {
		c = c.upTo(k.room())
	}
	return c
}

func (k *key) full() bool {
	return k.fullAt(k.perKey()) || k.order.rules.rated && k.room() == 0
}

// couldRun counts the jobs of an owner that could be claimed if the endpoint had no limit.
func (o *owner) couldRun(q *order) counts {
	c := o.free.atMost(q.rules.PerUser, o.running)
	if q.rules.rated {
		c = c.upTo(o.room(q))
	}
	return c
}

func (o *owner) full(q *order) bool {
	return q.rules.PerUser > 0 && o.running >= q.rules.PerUser || q.rules.rated && o.room(q) == 0
}

// couldRun counts the jobs that could be claimed one after the other while none ends.
func (q *order) couldRun() counts {
	if q.rules.Paused {
		return counts{}
	}
	c := q.free.atMost(q.rules.Total, q.running)
	if q.rules.rated {
		c = c.upTo(q.room())
	}
	return c
}

// refresh finds the oldest job of a line, and gives the line and its owner their turns.
func (x *Index) refresh(l *line) {
	for len(l.requeued) > 0 && !x.isRequeued(l.requeued[0]) {
		l.requeued.pop()
	}
	l.head = ref{}
	if l.first != 0 {
		l.head = ref{x.t.at(l.first).seq, l.first}
	}
	if len(l.requeued) > 0 && (l.first == 0 || l.requeued[0].seq < l.head.seq) {
		l.head = l.requeued[0]
	}
	o, in := l.key.owner, l.head.rec != 0 && !l.key.full()
	lv := o.levels[l.level]
	if lv == nil {
		if !in {
			l.key.waits()
			return
		}
		lv = &level{}
		o.levels[l.level] = lv
	}
	lv.turns.set(l, &l.turnPos, l.served.Next(l.head.seq), in)
	lv.ages.set(l, &l.agesPos, queue.Turn{Seq: l.head.seq}, in)
	l.key.waits()
	o.active &^= 1 << l.level
	if !lv.ages.empty() {
		o.active |= 1 << l.level
	}
	o.refresh(l.key.order)
}

// waits says whether jobs wait for the bucket of the key.
func (k *key) waits() {
	if k.bucket != nil {
		k.order.block(k.bucket, k.ready.all)
	}
}

// refreshAll refreshes the lines of a key.
func (x *Index) refreshAll(k *key) {
	for _, l := range k.lines {
		x.refresh(l)
	}
}

// isRequeued reports whether a ref in the heap of a line is still a job there.
func (x *Index) isRequeued(r ref) bool { return x.current(r) && x.t.at(r.rec).place == requeued }

// refresh gives an owner its turn.
func (o *owner) refresh(q *order) {
	if o.bucket != nil {
		q.block(o.bucket, o.ready.all)
	}
	q.turns.set(o, &o.pos, o.served.Next(o.oldest().seq), o.active != 0 && !o.full(q))
}

// oldest returns the oldest job of the lines of an owner that could be claimed.
func (o *owner) oldest() (oldest ref) {
	for left := o.active; left != 0; left &= left - 1 {
		r := o.levels[bits.TrailingZeros16(left)].ages.top().head
		if oldest.rec == 0 || r.seq < oldest.seq {
			oldest = r
		}
	}
	return oldest
}

// setRules changes the limits. It looks at every key once if a limit has changed.
func (x *Index) setRules(q *order, rules *queue.Rules) {
	if rules == nil {
		if !q.ruled {
			return
		}
		rules = &queue.Rules{}
	}
	if q.rules.Equal(rules) {
		q.rules.Keys = rules.Keys // the next time it is the same pointer, and not all keys are compared
		return
	}
	rated := rules.Rated() || q.holding > 0
	same := !rated && !q.rules.rated && q.rules.Keys == rules.Keys && q.rules.PerKey == rules.PerKey && q.rules.PerUser == rules.PerUser
	full := map[*key]struct{}{} // only lines of keys that change are looked at: there may be half a million of them
	if !same {
		for k := range q.eachKey() {
			if k.full() {
				full[k] = struct{}{}
			}
		}
	}
	q.rules.Rules, q.ruled, q.rules.rated = *rules, !rules.Equal(&queue.Rules{}), rated
	if same {
		return
	}
	x.setRates(q)
	q.free = counts{}
	for _, o := range q.owners {
		o.free = counts{}
		for _, k := range o.keys {
			x.reads++
			o.free = o.free.plus(k.free(), 1)
			if _, was := full[k]; was != k.full() {
				x.refreshAll(k)
			}
		}
		o.refresh(q)
		q.free = q.free.plus(o.couldRun(q), 1)
	}
}

// eachKey yields the keys of all owners.
func (q *order) eachKey() iter.Seq[*key] {
	return func(yield func(*key) bool) {
		for _, o := range q.owners {
			for _, k := range o.keys {
				if !yield(k) {
					return
				}
			}
		}
	}
}

// NextReady removes from the ready jobs of an endpoint the one that is next for a slot, and
// returns it; 0: none. It passes by a Busy job, which becomes Skipped, and one that is barred for
// the worker of the slot (queue.State.Barred). The job counts as running: a caller that does not
// claim it must call Requeue. A job past its ttl, which must be deleted, does not count.
func (x *Index) NextReady(now queue.Instant, s *queue.Slot) (next uint32) {
	l := x.listOf(s.Endpoint)
	if l == nil {
		return 0
	}
	q := &l.order
	x.Tell(now)
	x.setRules(q, s.Rules)
	if q.rules.rated {
		if x.refill(q, now); q.room() == 0 {
			return 0
		}
	}
	h := &x.asked
	h.x, h.q, h.now, h.worker = x, q, now, s.Worker
	var barred []uint32
	for next == 0 {
		i, c := queue.Choose(h, &q.rules.Rules, q.running, now)
		switch {
		case c == queue.ChooseNone:
			x.requeueAll(barred)
			return 0
		case c == queue.ChooseJob:
			q.claims++
			x.take(i, queue.Turn{Seq: l.stats.LastSeq, Serial: q.claims}, now)
			next = i
		case x.Has(i, Busy):
			x.Mark(i, Skipped, 0)
			x.setAside(i)
		case x.t.at(i).expires <= now:
			x.leave(i, x.t.at(i))
			next = i
		default:
			barred = append(barred, i)
			x.setAside(i)
		}
	}
	x.requeueAll(barred)
	return next
}

// heads implements queue.Heads for a slot.
type heads struct {
	x      *Index
	q      *order
	o      *owner // whose turn is first
	now    queue.Instant
	worker queue.WorkerID
}

func (h *heads) Levels() uint16 {
	if h.q.turns.empty() {
		return 0
	}
	h.o = h.q.turns.top()
	return h.o.active
}

func (h *heads) Oldest(priority int) queue.Head[uint32] {
	return h.of(h.o.levels[priority].ages.top())
}

func (h *heads) First(priority int) queue.Head[uint32] {
	return h.of(h.o.levels[priority].turns.top())
}

func (h *heads) of(l *line) queue.Head[uint32] {
	i := l.head.rec
	r := h.x.t.at(i)
	h.x.reads++
	return queue.Head[uint32]{Job: i, Queued: r.queued, Barred: r.marks&Busy != 0 || r.expires <= h.now || h.x.barred(r, h.worker)}
}

func (x *Index) requeueAll(list []uint32) {
	for _, i := range list {
		x.Requeue(i)
	}
}

// barred reports whether a queued job is barred for a worker.
func (x *Index) barred(r *record, w queue.WorkerID) bool {
	return r.lost != 0 && r.leaseUntil != 0 && x.names.text(r.lost) == string(w)
}

// take makes a ready job a running one: its line and its owner come last.
func (x *Index) take(i uint32, turn queue.Turn, now queue.Instant) {
	r := x.t.at(i)
	l := x.lines[r.line]
	l.served, l.key.owner.served = turn, turn
	if r.place != inList || l.key.order.rules.limit() {
		x.leave(i, r)
		r.place = taken
		x.run(l.key, 1)
		if q := l.key.order; q.rules.rated {
			if x.start(l.key, now); q.taken != nil {
				q.taken[i] = now
			}
		}
		return
	}
	x.unlink(l, r)
	r.place = taken
	l.key.count(countOf(r.flags), -1, 1)
	x.refresh(l) // it was the oldest of its line
}

// Requeue puts a job that NextReady returned or passed by back to its place among the ready jobs.
func (x *Index) Requeue(i uint32) {
	r := x.t.at(i)
	x.leave(i, r)
	x.enter(i, r, placeOf(r.status, r.delayed))
}

// oldestFree returns the oldest job that could be claimed now, or 0.
func (q *order) oldestFree() (oldest ref) {
	if q.rules.Paused || q.rules.Total > 0 && q.running >= q.rules.Total || q.turns.empty() || q.rules.rated && q.room() == 0 {
		return ref{}
	}
	for i := range q.turns.list {
		if r := q.turns.list[i].value.oldest(); oldest.rec == 0 || r.seq < oldest.seq {
			oldest = r
		}
	}
	return oldest
}
