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
	// maxPeriods bounds the search too. A zone changes less than ten times a year, so it is only
	// reached if the data of a zone is wrong.
	maxPeriods = 2000
)

// Next returns the first instant after an instant at which e fires in a zone, in UTC. It
// depends on nothing else, so the instants of a schedule are the same after a restart. It
// returns the zero time only for the zero Expression. It takes less than a few milliseconds,
// because it looks at most 100 years ahead.
func (e Expression) Next(after time.Time, zone *time.Location) time.Time {
	from := after.Unix() + 1
	end := from + horizon
	p := firstPeriod(from-memory, zone)
	for range maxPeriods {
		if at, ok := e.within(p, from); ok {
			return time.Unix(at, 0).UTC()
		}
		if p.end >= end {
			break
		}
		p = p.following()
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

// A period is a time with one offset from UTC, in Unix seconds. Two periods in a row may have
// the same offset.
type period struct {
	zone       *time.Location
	start, end int64 // end is excluded, and later than start
	offset     int64
	seen       int64 // local times before it have occurred when the period begins
}

// Bounds of time for a zone that never changes.
const (
	never   = int64(-1) << 60
	forever = int64(1) << 60
)

// firstPeriod returns the period from an instant on. Nothing before the instant counts as seen.
func firstPeriod(at int64, zone *time.Location) period {
	return period{zone: zone, start: at, seen: never}.bounded()
}

// following returns the period after one that ends. It begins exactly where the other one
// ends. We don't ask ZoneBounds for the beginning, because periods of a zone can overlap there:
// see bounded.
func (p period) following() period {
	return period{zone: p.zone, start: p.end, seen: max(p.seen, p.end+p.offset)}.bounded()
}

// bounded returns a period with the offset at its start, and its end.
//
// If a zone follows a rule, ZoneBounds takes each year for 365 days. So on 31 December of a leap
// year, for example at 2028-12-31T12:00Z in Europe/Berlin, it returns an end that has passed
// already, 2028-12-31T00:00Z. The rule of a zone begins anew with each year in UTC, so that is
// where such a period ends for us. Hosts whose zone data has no list of future changes ("slim")
// have this from today on, and the others from 2038 on.
func (p period) bounded() period {
	t := time.Unix(p.start, 0).In(p.zone)
	_, offset := t.Zone()
	p.offset, p.end = int64(offset), forever
	if _, end := t.ZoneBounds(); end.After(t) {
		p.end = end.Unix()
	} else if !end.IsZero() {
		p.end = time.Date(t.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return p
}
