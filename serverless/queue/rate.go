package queue

import (
	"context"
	"maps"
	"math"
	"time"
)

// Limits of a rate.
const (
	// MaxRateLimit is the highest limit of a rate.
	MaxRateLimit = 1_000_000
	// MinRatePer and MaxRatePer bound the time in which a bucket is refilled.
	MinRatePer = time.Second
	MaxRatePer = 30 * 24 * time.Hour
	// MaxKeyRules is how many single keys of an endpoint have limits of their own.
	MaxKeyRules = 1000
	// MaxHold is the longest time for which a worker holds a key.
	MaxHold = 24 * time.Hour
	// MaxHolds is how many keys of an owner can be held on an endpoint. Of further keys none is held.
	MaxHolds = 1000
)

// A Rate bounds how many attempts start (docs/decisions.md 59): a bucket has room for Limit starts and
// is refilled evenly, Limit in Per. So in any window of t at most Limit + Limit*t/Per attempts start. The
// zero Rate is no limit.
type Rate struct {
	Limit int
	Per   time.Duration // whole milliseconds
}

// step is the time in which a bucket gets room for one more start, rounded up to the nanosecond.
func (r Rate) step() int64 { return (int64(r.Per) + int64(r.Limit) - 1) / int64(r.Limit) }

// A Bucket is what is kept of the starts under a Rate: the instant at which the bucket is full again, in
// nanoseconds of Unix time. The zero Bucket is full. It is the theoretical arrival time of the generic cell
// rate algorithm (ITU-T I.371), so a start is one addition and the limit one comparison.
type Bucket int64

// nanos is i in nanoseconds, as near as a Bucket can have it.
func nanos(i Instant) int64 {
	const most = (math.MaxInt64 - int64(2*MaxRatePer)) / int64(time.Millisecond)
	return min(max(int64(i), 0), most) * int64(time.Millisecond)
}

// Within returns b, no emptier than one that was just emptied. It may be: the clock was set back, or the
// rate is another one. A queue keeps the result, because every later instant has another one.
func (b Bucket) Within(r Rate, now Instant) Bucket {
	return min(b, Bucket(nanos(now)+int64(r.Limit)*r.step()))
}

func (b Bucket) within(r Rate, now Instant) int64 { return int64(b.Within(r, now)) }

// Room returns how many attempts may start at now.
func (b Bucket) Room(r Rate, now Instant) int {
	missing := max(b.within(r, now)-nanos(now), 0)
	return r.Limit - int((missing+r.step()-1)/r.step())
}

// Next returns the first instant after now at which there is room for one more; 0: b is full.
func (b Bucket) Next(r Rate, now Instant) Instant {
	room := int64(b.Room(r, now))
	if room >= int64(r.Limit) {
		return 0
	}
	at := b.within(r, now) - (int64(r.Limit)-room-1)*r.step()
	return max(Instant((at+int64(time.Millisecond)-1)/int64(time.Millisecond)), now+1)
}

// Start returns b after a start at now. The caller has asked for Room.
func (b Bucket) Start(r Rate, now Instant) Bucket {
	return Bucket(max(b.within(r, now), nanos(now)) + r.step())
}

// GiveBack returns b at now after a start at started turned out to be none. What the bucket was refilled
// with since may be used up already, or there was no room for it: so much of the start is not given back.
func (b Bucket) GiveBack(r Rate, started, now Instant) Bucket {
	return Bucket(b.within(r, now) - max(r.step()-max(nanos(now)-nanos(started), 0), 0))
}

// A KeyRule has the limits of one key, instead of those of all keys.
type KeyRule struct {
	PerKey int  // 0: that of all keys
	Rate   Rate // zero: that of all keys
}

// KeyRules are the limits of single keys by name, for the key of this name of every owner. They are not
// changed once they are in use.
type KeyRules map[string]KeyRule

// Equal reports whether r and o say the same.
func (r *Rules) Equal(o *Rules) bool {
	a, b := *r, *o
	a.Keys, b.Keys = nil, nil
	return a == b && (r.Keys == o.Keys || maps.Equal(r.keys(), o.keys()))
}

func (r *Rules) keys() KeyRules {
	if r.Keys == nil {
		return nil
	}
	return *r.Keys
}

// KeyLimit returns how many jobs of an owner with this key may run; 0: no limit.
func (r *Rules) KeyLimit(key string) int {
	if n := r.keys()[key].PerKey; n > 0 {
		return n
	}
	if key == "" {
		return 0
	}
	return r.PerKey
}

// KeyRate returns the rate of a key of an owner. Jobs without a key have none.
func (r *Rules) KeyRate(key string) Rate {
	if rate := r.keys()[key].Rate; rate.Limit > 0 {
		return rate
	}
	if key == "" {
		return Rate{}
	}
	return r.PerKeyRate
}

// Rated reports whether there is a rate.
func (r *Rules) Rated() bool {
	if r.Rate.Limit > 0 || r.PerKeyRate.Limit > 0 || r.PerUserRate.Limit > 0 {
		return true
	}
	for _, k := range r.keys() {
		if k.Rate.Limit > 0 {
			return true
		}
	}
	return false
}

// Limited reports whether the running jobs have a limit, so that the end of one may free another.
func (r *Rules) Limited() bool {
	if r.PerKey > 0 || r.PerUser > 0 || r.Total > 0 {
		return true
	}
	for _, k := range r.keys() {
		if k.PerKey > 0 {
			return true
		}
	}
	return false
}

// A Hold keeps the jobs of an owner and a key of an endpoint from starting (docs/decisions.md 59), whatever
// becomes of the job whose worker asked for it. The zero Hold keeps none.
type Hold struct {
	Made  Instant // it has no effect under rules with the same or a later HoldsSince
	Until Instant // the first instant at which they may start
}

// HoldUntil returns the hold that an OpFinish makes at now.
func (op *Op) HoldUntil(now Instant) Hold { return Hold{now, now.Add(min(op.Hold, MaxHold))} }

// holdSkew is how far the clocks of servers may differ for a hold of MaxHold.
const holdSkew = time.Minute

// Ends returns when a hold ends under rules; 0: it keeps nothing from starting at now. One that lasts longer than
// a hold can was made when the clock was ahead, and has ended.
func (h Hold) Ends(r *Rules, now Instant) Instant {
	if h.Until <= now || h.Until > now.Add(MaxHold+holdSkew) || h.Made <= r.HoldsSince {
		return 0
	}
	return h.Until
}

// A Held says which rate keeps the jobs of an owner and a key from starting.
type Held struct {
	By    string  // the name of the rate in the settings: rate, perUserRate, perKeyRate or keys; ByHold for a Hold; empty: none does
	Until Instant // when there is room for one more
}

// ByHold is Held.By of what a worker holds.
const ByHold = "holdKey"

// RateHolder is an optional interface of a JobQueue that can tell which rate holds a job.
type RateHolder interface {
	// HeldBy returns what holds the jobs of an owner and a key on an endpoint longest at now.
	HeldBy(ctx context.Context, now Instant, endpoint, owner, key string, rules *Rules) (Held, error)
}

// KeyRateName is the name of the rate of a key in the settings.
func (r *Rules) KeyRateName(key string) string {
	if r.keys()[key].Rate.Limit > 0 {
		return "keys"
	}
	return "perKeyRate"
}

// LongerHold returns h, or a hold that lasts longer.
func (h Held) LongerHold(x Hold, r *Rules, now Instant) Held {
	if at := x.Ends(r, now); at > h.Until {
		return Held{ByHold, at}
	}
	return h
}

// Longer returns h, or a bucket that has no room longer.
func (h Held) Longer(by string, b Bucket, r Rate, now Instant) Held {
	if r.Limit == 0 || b.Room(r, now) > 0 {
		return h
	}
	if at := b.Next(r, now); at > h.Until {
		return Held{by, at}
	}
	return h
}
