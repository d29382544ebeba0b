package cron

import "time"

const (
	day = 24 * 60 * 60
	// horizon bounds the search. The longest wait is that for a 29 February on one day of the
	// week, which is 40 years.
	horizon = 100 * 366 * day
	// memory is how far back a local time counts as repeated. No change of a zone is longer
	// than a day.
	memory = 2 * day
)

// Next returns the first instant after an instant at which e fires in a zone, in UTC. It
// depends on nothing else, so the instants of a schedule are the same after a restart. It
// returns the zero time only for the zero Expression.
func (e Expression) Next(after time.Time, zone *time.Location) time.Time {
	from := after.Unix() + 1
	end := from + horizon
	for p := periodOf(from, zone); p.start < end; p = p.following() {
		if at, ok := e.within(p, from); ok {
			return time.Unix(at, 0).UTC()
		}
	}
	return time.Time{}
}

// within returns the first instant from one on at which e fires in a period.
func (e Expression) within(p period, from int64) (int64, bool) {
	least := max(from, p.start) + p.offset // local
	if !e.rhythm {
		if p.start >= from {
			if _, skipped := e.local(p.seen, p.start+p.offset); skipped {
				return p.start, true
			}
		}
		least = max(least, p.seen)
	}
	at, ok := e.local(least, min(p.end, max(from, p.start)+horizon)+p.offset)
	return at - p.offset, ok
}

// local returns the first local time from lo on and before hi that matches. Local times are
// seconds, as of a zone without offset.
func (e Expression) local(lo, hi int64) (int64, bool) {
	lo += 59
	lo -= mod(lo, 60)
	for lo < hi {
		t := time.Unix(lo, 0).UTC()
		switch {
		case !e.month.has(int(t.Month())):
			lo = time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC).Unix()
		case !e.matchesDay(t):
			lo += day - mod(lo, day)
		default:
			if in, ok := e.inDay(t.Hour(), t.Minute()); ok {
				at := lo - mod(lo, day) + in
				return at, at < hi
			}
			lo += day - mod(lo, day)
		}
	}
	return 0, false
}

func (e Expression) matchesDay(t time.Time) bool {
	inMonth, inWeek := e.day.has(t.Day()), e.week.has(int(t.Weekday()))
	if e.either {
		return inMonth || inWeek
	}
	return inMonth && inWeek
}

// inDay returns the first time from hour:minute on, in seconds of the day.
func (e Expression) inDay(hour, minute int) (int64, bool) {
	h, ok := e.hour.from(hour)
	if !ok {
		return 0, false
	}
	if h > hour {
		minute = 0
	}
	m, ok := e.minute.from(minute)
	if !ok { // only in the first hour
		if h, ok = e.hour.from(hour + 1); !ok {
			return 0, false
		}
		m, ok = e.minute.from(0)
	}
	return int64(h*60+m) * 60, ok
}

func mod(n, by int64) int64 { return (n%by + by) % by }

// A period is a time with one offset from UTC, in Unix seconds.
type period struct {
	zone       *time.Location
	start, end int64 // end is excluded
	offset     int64
	seen       int64 // local times before it have occurred when the period begins
}

// Bounds of time for a zone that never changes.
const (
	never   = int64(-1) << 60
	forever = int64(1) << 60
)

func periodOf(at int64, zone *time.Location) period {
	p := period{zone: zone, seen: never}
	for past := bounds(at, zone); past.start != never && past.start > at-memory; {
		past = bounds(past.start-1, zone)
		p.seen = max(p.seen, past.end+past.offset)
	}
	b := bounds(at, zone)
	p.start, p.end, p.offset = b.start, b.end, b.offset
	return p
}

// following returns the next period. One that never ends is followed by one that never
// begins.
func (p period) following() period {
	if p.end == forever {
		return period{zone: p.zone, start: forever, end: forever}
	}
	return periodOf(p.end, p.zone)
}

// bounds returns the period of an instant, without seen.
func bounds(at int64, zone *time.Location) period {
	t := time.Unix(at, 0).In(zone)
	_, offset := t.Zone()
	p := period{start: never, end: forever, offset: int64(offset)}
	start, end := t.ZoneBounds()
	if !start.IsZero() {
		p.start = start.Unix()
	}
	if !end.IsZero() {
		p.end = end.Unix()
	}
	return p
}
