package jobindex

import (
	"math"

	"github.com/podyard/podyard/serverless/queue"
)

// HoldKey holds the key of a job. A job without a key holds nothing, and neither does one of an owner with
// queue.MaxHolds keys that are held.
func (x *Index) HoldKey(i uint32, h queue.Hold, tag HoldTag) {
	if k := x.lines[x.t.at(i).line].key; k.name != 0 {
		x.holdKey(k.order, bucketName{k.owner.name, k.name}, h, tag, queue.MaxHolds)
	}
}

// LoadHold holds a key that was held in an earlier process, if no newer hold of it is loaded.
func (x *Index) LoadHold(endpoint, owner, key string, h queue.Hold, tag HoldTag) {
	ep, who, what := x.names.intern(endpoint), x.names.intern(owner), x.names.intern(key)
	defer func() {
		for _, n := range [...]uint32{ep, who, what} {
			x.names.release(n)
		}
	}()
	q, n := &x.ensureList(ep).order, bucketName{who, what}
	if b := q.list[n]; b != nil && b.hold.Made > h.Made {
		x.dropHold(tag)
		return
	}
	x.holdKey(q, n, h, tag, math.MaxInt) // what was over the limit was not stored
}

// holdKey holds a key, unless the owner has most keys that are held already.
func (x *Index) holdKey(q *order, n bucketName, h queue.Hold, tag HoldTag, most int) {
	if q.holds[n.owner] >= most {
		x.refill(q, h.Made) // some may have ended
	}
	b := q.list[n]
	switch {
	case b != nil && b.hold != queue.Hold{}:
		if b.tag != tag {
			x.dropHold(b.tag)
		}
	case q.holds[n.owner] >= most:
		x.dropHold(tag)
		return
	default:
		if b == nil {
			b = x.addBucket(q, n)
		}
		if q.holding++; x.holding == nil {
			x.holding = map[*order]bool{}
		}
		x.holding[q] = true
		q.holds[n.owner]++
		q.rules.rated = true // that is the same as without it, as long as no key is held
	}
	set := func() {
		b.hold, b.tag = h, tag
		x.settle(b, x.rateOf(b), h.Made)
	}
	if k, _ := q.whose(b); k != nil {
		x.shift(k, func() {
			k.bucket = b
			set()
		})
	} else {
		set()
	}
}

func (x *Index) dropHold(tag HoldTag) {
	if tag != (HoldTag{}) {
		x.endedHolds = append(x.endedHolds, tag)
	}
}

// endHold takes the hold of a bucket away.
func (x *Index) endHold(b *bucket) {
	q := b.order
	x.dropHold(b.tag)
	b.hold, b.tag = queue.Hold{}, HoldTag{}
	if q.holds[b.name.owner]--; q.holds[b.name.owner] == 0 {
		delete(q.holds, b.name.owner)
	}
	if q.holding--; q.holding == 0 {
		q.rules.rated = q.rules.Rated()
		delete(x.holding, q)
	}
}

// EndHolds ends the holds whose time is over, also on endpoints that nobody asks for.
func (x *Index) EndHolds(now queue.Instant) {
	for q := range x.holding {
		x.refill(q, now)
	}
}

// EndedHolds returns the holds that have ended or were replaced since the last call, or were none.
func (x *Index) EndedHolds() []HoldTag {
	list := x.endedHolds
	x.endedHolds = nil
	return list
}
