package billing

import (
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// A BucketSize is how long a bucket is.
type BucketSize string

// The sizes.
const (
	Hour  BucketSize = "hour"
	Day   BucketSize = "day"
	Week  BucketSize = "week"
	Month BucketSize = "month"
	Year  BucketSize = "year"
)

// floor is the start of the bucket that t, in UTC, is in.
func (b BucketSize) floor(t time.Time) time.Time {
	y, m, d := t.Date()
	switch b {
	case Hour:
		return t.Truncate(time.Hour)
	case Week:
		back := (int(t.Weekday()) + 6) % 7 // days since Monday
		return time.Date(y, m, d-back, 0, 0, 0, 0, time.UTC)
	case Month:
		return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	case Year:
		return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// next is the start of the bucket after the one that begins at t.
func (b BucketSize) next(t time.Time) time.Time { return b.step(t, 1) }

func (b BucketSize) step(t time.Time, n int) time.Time {
	switch b {
	case Hour:
		return t.Add(time.Duration(n) * time.Hour)
	case Week:
		return t.AddDate(0, 0, 7*n)
	case Month:
		return t.AddDate(0, n, 0)
	case Year:
		return t.AddDate(n, 0, 0)
	}
	return t.AddDate(0, 0, n)
}

// MaxBuckets is how many buckets a window has at most.
const MaxBuckets = 10_000

// A Query selects a window and what is in it.
type Query struct {
	Start time.Time  // zero: 30 days ago
	End   time.Time  // zero: now
	Size  BucketSize // empty: Day
	LastN int        // not 0: the last 1 to MaxBuckets buckets, the present one included, instead of Start and End
	Kind  pods.UsageKind
	ID    string // empty: all
}

// Errors of a query.
var (
	errBoth  = problem.New(problem.BadRequest, "lastN and startTime or endTime exclude each other")
	errOrder = problem.New(problem.BadRequest, "startTime must be before endTime")
	errSize  = problem.New(problem.Invalid, "bucketSize must be one of hour, day, week, month, year")
	errLastN = problem.Newf(problem.Invalid, "lastN must be from 1 to %d", MaxBuckets)
	errYears = problem.New(problem.Invalid, "the window must begin and end within the years 1 to 9999")
	errMany  = problem.Newf(problem.Invalid, "the window has more than %d buckets", MaxBuckets)
)

// window returns an empty report of the query's window, rounded to whole buckets.
func (q *Query) window(now time.Time) (r Report, err error) {
	switch q.Size {
	case "":
		q.Size = Day
	case Hour, Day, Week, Month, Year:
	default:
		return r, errSize
	}
	r.Size = q.Size
	if r.Start, r.End, err = q.bounds(now); err != nil {
		return r, err
	}
	if r.Start.Year() < 1 || r.End.Year() > 9999 { // RFC 3339 has no other years
		return r, errYears
	}
	if q.Size.step(r.Start, MaxBuckets).Before(r.End) {
		return r, errMany
	}
	return r, nil
}

// bounds returns the window, rounded to whole buckets.
func (q *Query) bounds(now time.Time) (start, end time.Time, err error) {
	if q.LastN != 0 {
		if !q.Start.IsZero() || !q.End.IsZero() {
			return start, end, errBoth
		}
		if q.LastN < 0 || q.LastN > MaxBuckets {
			return start, end, errLastN
		}
		end = q.Size.next(q.Size.floor(now))
		return q.Size.step(end, -q.LastN), end, nil
	}
	start, end = q.Start.UTC(), q.End.UTC()
	if q.End.IsZero() {
		end = now
	}
	if q.Start.IsZero() {
		start = now.AddDate(0, 0, -30)
	}
	if !start.Before(end) {
		return start, end, errOrder
	}
	start = q.Size.floor(start)
	if last := q.Size.floor(end); last.Before(end) {
		return start, q.Size.next(last), nil
	}
	return start, end, nil
}
