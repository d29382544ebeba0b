package jobindex

import (
	"cmp"
	"math"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

// A bucket is one that is not full, of a key, an owner or an endpoint. It exists longer than its key and
// its owner, because those who delete their jobs must not have it full again.
type bucket struct {
	queue.Bucket
	hold       queue.Hold // of a key; zero: it is not held
	tag        HoldTag    // of the hold
	order      *order
	name       bucketName
	holds      *holder // of a key with a rate; nil: others have no such bound
	room       int     // how many attempts may start, as of the last refill
	refillPos  int32   // in order.refills
	blockedPos int32   // in order.blocked
}

// A HoldTag is what a store keeps a hold by. A store that keeps none has the zero one.
type HoldTag struct {
	Job  uint64
	Made queue.Instant
}

// A bucketName says whose a bucket is, by interned strings. key is noName for one of an owner, and owner is
// noName, too, for that of the endpoint.
type bucketName struct{ owner, key uint32 }

const noName = math.MaxUint32

// buckets are those of an endpoint.
type buckets struct {
	list    map[bucketName]*bucket
	refills minHeap[*bucket]         // by the instant at which they have room for one more
	blocked minHeap[*bucket]         // those without room that have ready jobs, by the same instant
	taken   map[uint32]queue.Instant // when NextReady returned the jobs that are not running yet
	bucket  *bucket                  // of the endpoint; nil: it is full
	now     queue.Instant            // of the last refill
	holding int                      // keys that are held
	holds   map[uint32]int           // of each owner
	loaded  bool                     // the order has jobs of an earlier process, whose starts no bucket has
}

// roomOf returns how many attempts may start under a rate.
func roomOf(r queue.Rate, b *bucket) int {
	switch {
	case b != nil && b.hold != queue.Hold{}:
		return 0
	case r.Limit == 0:
		return math.MaxInt
	case b == nil:
		return r.Limit
	}
	return b.room
}

func (k *key) rate() queue.Rate {
	if r := &k.order.rules; r.Keys == nil && k.name != 0 {
		return r.PerKeyRate
	} else if k.name == 0 {
		return queue.Rate{}
	}
	return k.order.rules.KeyRate(k.order.x.names.text(k.name))
}

func (k *key) room() int { return roomOf(k.rate(), k.bucket) }

func (o *owner) room(q *order) int { return roomOf(q.rules.PerUserRate, o.bucket) }

func (q *order) room() int { return roomOf(q.rules.Rate, q.bucket) }

// upTo limits the counts to n.
func (c counts) upTo(n int) counts { return counts{min(c.all, n), min(c.normal, n)} }

// bucketsOf calls fn with the rate, the name and the place of each bucket that a start of a key goes into.
func (k *key) bucketsOf(fn func(r queue.Rate, n bucketName, b **bucket)) {
	o, q := k.owner, k.order
	if r := k.rate(); r.Limit > 0 {
		fn(r, bucketName{o.name, k.name}, &k.bucket)
	}
	if r := q.rules.PerUserRate; r.Limit > 0 {
		fn(r, bucketName{o.name, noName}, &o.bucket)
	}
	if r := q.rules.Rate; r.Limit > 0 {
		fn(r, bucketName{noName, noName}, &q.bucket)
	}
}

// start counts a start of a key at now.
func (x *Index) start(k *key, now queue.Instant) {
	x.boundBuckets(k)
	x.shift(k, func() {
		k.bucketsOf(func(r queue.Rate, n bucketName, at **bucket) {
			if *at == nil {
				*at = x.addBucket(k.order, n)
				if n.key != noName {
					(*at).holds = x.holderOf(k.owner.holds.name)
					(*at).holds.buckets++
				}
			}
			b := *at
			b.Bucket = b.Start(r, now)
			x.settle(b, r, now)
		})
	})
}

// mostBuckets is how many keys a user may have, on all endpoints, whose buckets are not full. Keys are free text, a
// bucket may take 30 days to be full, and no budget counts it when the jobs are deleted.
const mostBuckets = 100_000

// boundBuckets makes room for a new bucket of a key. Where its user has too many, one of theirs on the endpoint is full at
// once: of some that are looked at, the one that has room for a start soonest.
func (x *Index) boundBuckets(k *key) {
	h, q := k.owner.holds, k.order
	if h.buckets < x.mostBuckets || k.bucket != nil || k.rate().Limit == 0 {
		return
	}
	var soonest *bucket
	looked := 0
	for _, b := range q.list {
		if b.holds == h && b.hold == (queue.Hold{}) && (soonest == nil || q.refillAt(b) < q.refillAt(soonest)) {
			soonest = b
		}
		if looked++; looked == 64 {
			break
		}
	}
	if soonest != nil {
		soonest.Bucket = 0
		x.fill(soonest, x.now)
	}
}

// giveBack takes a start back that was none.
func (x *Index) giveBack(k *key, started queue.Instant) {
	x.shift(k, func() {
		k.bucketsOf(func(r queue.Rate, _ bucketName, at **bucket) {
			if b := *at; b != nil {
				b.Bucket = b.GiveBack(r, started, x.now)
				x.settle(b, r, x.now)
			}
		})
	})
}

// shift does what changes the room of a key, and gives its lines and its owner their turns.
func (x *Index) shift(k *key, change func()) {
	o, q := k.owner, k.order
	ofKey, ofOwner := k.free(), o.couldRun(q)
	wasFull, wasStopped := k.full(), o.full(q)
	change()
	o.free = o.free.plus(k.free(), 1).plus(ofKey, -1)
	q.free = q.free.plus(o.couldRun(q), 1).plus(ofOwner, -1)
	if k.full() != wasFull {
		x.refreshAll(k)
	}
	if o.full(q) != wasStopped {
		o.refresh(q)
	}
}

func (x *Index) addBucket(q *order, n bucketName) *bucket {
	b := &bucket{order: q, name: n}
	for _, name := range [...]uint32{n.owner, n.key} {
		if name != noName {
			x.names.keep(name)
		}
	}
	if q.list == nil {
		q.list, q.taken, q.holds = map[bucketName]*bucket{}, map[uint32]queue.Instant{}, map[uint32]int{}
	}
	q.list[n] = b
	return b
}

// settle finds out how much room a bucket has at now, and drops one that is full.
func (x *Index) settle(b *bucket, r queue.Rate, now queue.Instant) {
	q := b.order
	next := queue.Instant(0)
	if r.Limit > 0 {
		b.Bucket = b.Within(r, now)
		b.room, next = b.Room(r, now), b.Next(r, now)
	}
	switch until := b.hold.Ends(&q.rules.Rules, now); {
	case until > 0:
		if b.room > 0 { // the rate keeps nobody, so only the end of the hold counts
			next = 0
		}
		b.room, next = 0, max(next, until)
	case b.hold != queue.Hold{}:
		x.endHold(b)
	}
	if next > 0 {
		q.refills.set(b, &b.refillPos, queue.Turn{Seq: uint64(next)}, true)
		q.block(b, q.waitingFor(b))
		return
	}
	q.refills.forget(&b.refillPos)
	q.blocked.forget(&b.blockedPos)
	delete(q.list, b.name)
	if b.holds != nil {
		b.holds.buckets--
		x.drop(b.holds)
	}
	switch k, o := q.whose(b); {
	case k != nil:
		k.bucket = nil
	case o != nil:
		o.bucket = nil
	case q.bucket == b:
		q.bucket = nil
	}
	for _, name := range [...]uint32{b.name.owner, b.name.key} {
		if name != noName {
			x.names.release(name)
		}
	}
}

// whose returns the key or the owner of a bucket. It has neither if it is that of the endpoint, or they are gone.
func (q *order) whose(b *bucket) (k *key, o *owner) {
	if o = q.owners[b.name.owner]; b.name.owner == noName || o == nil {
		return nil, nil
	}
	if b.name.key == noName {
		return nil, o
	}
	return o.keys[b.name.key], nil
}

// waitingFor counts the ready jobs of whom a bucket is.
func (q *order) waitingFor(b *bucket) int {
	switch k, o := q.whose(b); {
	case k != nil:
		return k.ready.all
	case o != nil:
		return o.ready.all
	}
	return 0
}

// rateOf returns the rate of a bucket under the rules.
func (x *Index) rateOf(b *bucket) queue.Rate {
	r := &b.order.rules
	switch {
	case b.name.key != noName:
		return r.KeyRate(x.names.text(b.name.key))
	case b.name.owner != noName:
		return r.PerUserRate
	}
	return r.Rate
}

// Tell tells the index what time it is, for what is given back (queue.GiveStart).
func (x *Index) Tell(now queue.Instant) {
	if now > x.now || x.now-now > maxClockStepBack {
		x.now = now
	}
}

// refill gives the buckets of an endpoint the room that they have at now.
func (x *Index) refill(q *order, now queue.Instant) {
	if q.now-now > maxClockStepBack { // the clock was set back: they would have no room for that time
		for _, b := range q.list {
			x.fill(b, now)
		}
	}
	q.now = now
	for !q.refills.empty() && q.refills.list[0].turn.Seq <= uint64(max(now, 0)) {
		x.reads++
		x.fill(q.refills.top(), now)
	}
}

func (x *Index) fill(b *bucket, now queue.Instant) {
	q, fill := b.order, func() { x.settle(b, x.rateOf(b), now) }
	switch k, o := q.whose(b); {
	case k != nil:
		x.shift(k, fill)
	case o != nil:
		before, wasStopped := o.couldRun(q), o.full(q)
		fill()
		q.free = q.free.plus(o.couldRun(q), 1).plus(before, -1)
		if o.full(q) != wasStopped {
			o.refresh(q)
		}
	default:
		fill()
	}
}

// block puts a bucket to those for which somebody waits, or takes it out.
func (q *order) block(b *bucket, ready int) {
	if b != nil {
		q.blocked.set(b, &b.blockedPos, queue.Turn{Seq: q.refillAt(b)}, b.room == 0 && ready > 0)
	}
}

// refillAt is when a bucket that is not full has room for one more.
func (q *order) refillAt(b *bucket) uint64 { return q.refills.list[b.refillPos-1].turn.Seq }

// freeAt returns when a job that a rate holds may start, at the earliest; 0: there is none.
func (q *order) freeAt() (at queue.Instant) {
	switch {
	case q.rules.Paused:
	case q.bucket != nil && q.bucket.room == 0 && q.ready.all > 0:
		at = queue.Instant(q.refillAt(q.bucket))
	case !q.blocked.empty():
		at = queue.Instant(q.blocked.list[0].turn.Seq)
	}
	return at
}

// setRates puts what is in the buckets under rules that have changed. Buckets of rates that are gone go.
func (x *Index) setRates(q *order) {
	for _, b := range q.list {
		x.settle(b, x.rateOf(b), x.now)
	}
	if q.loaded && q.rules.Rated() {
		x.restart(q)
	}
}

// restart counts the last start of each job of an endpoint that was there when the queue was opened. Other
// starts of them, and those of jobs that are gone, are forgotten: at most the starts of one bucket more are
// possible after that.
func (x *Index) restart(q *order) {
	q.loaded = false
	type start struct {
		at queue.Instant
		k  *key
	}
	var list []start
	x.All(func(i uint32) {
		if r := x.t.at(i); r.status != queue.InQueue && r.started > 0 && r.marks&Hidden == 0 {
			if k := x.lines[r.line].key; k.order == q {
				list = append(list, start{r.started, k})
			}
		}
	})
	slices.SortFunc(list, func(a, b start) int { return cmp.Compare(a.at, b.at) })
	for _, s := range list {
		x.start(s.k, s.at)
	}
	for _, b := range q.list {
		x.settle(b, x.rateOf(b), x.now)
	}
}

// HeldBy returns what holds the jobs of an owner and a key longest.
func (x *Index) HeldBy(now queue.Instant, endpoint, owner, key string, rules *queue.Rules) (h queue.Held) {
	l := x.listOf(endpoint)
	who, ok := x.names.find(owner)
	what, known := x.names.find(key)
	if l == nil || !ok || !known || rules == nil {
		return h
	}
	of := func(n bucketName) bucket {
		if b := l.order.list[n]; b != nil {
			return *b
		}
		return bucket{}
	}
	h = h.Longer("rate", of(bucketName{noName, noName}).Bucket, rules.Rate, now)
	h = h.Longer("perUserRate", of(bucketName{who, noName}).Bucket, rules.PerUserRate, now)
	b := of(bucketName{who, what})
	h = h.Longer(rules.KeyRateName(key), b.Bucket, rules.KeyRate(key), now)
	return h.LongerHold(b.hold, rules, now)
}
