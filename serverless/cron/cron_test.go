package cron_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/cron"
)

func parse(t testing.TB, text string) cron.Expression {
	t.Helper()
	e, err := cron.Parse(text)
	if err != nil {
		t.Fatalf("Parse %q: %v", text, err)
	}
	return e
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := cron.Zone(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Each row has the instants after the first one, in UTC.
func TestNextOnOrdinaryDays(t *testing.T) {
	for _, row := range []struct{ text, instants string }{
		{"* * * * *", "2026-01-01T00:00:00Z 2026-01-01T00:01:00Z 2026-01-01T00:02:00Z"},
		{"* * * * *", "2026-01-01T00:00:59Z 2026-01-01T00:01:00Z"},
		{"30 4 * * *", "2026-01-01T04:30:00Z 2026-01-02T04:30:00Z"},
		{"*/20 9-10 * * *", "2026-01-01T09:40:00Z 2026-01-01T10:00:00Z 2026-01-01T10:20:00Z 2026-01-01T10:40:00Z 2026-01-02T09:00:00Z"},
		{"7/25 0 * * *", "2026-01-01T00:00:00Z 2026-01-01T00:07:00Z 2026-01-01T00:32:00Z 2026-01-01T00:57:00Z 2026-01-02T00:07:00Z"},
		{"0 0 1 jan,JUL *", "2026-01-01T00:00:00Z 2026-07-01T00:00:00Z 2027-01-01T00:00:00Z"},
		{"0 0 * * sat-SUN", "2026-01-01T00:00:00Z 2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-10T00:00:00Z"},
		{"0 0 * * 7", "2026-01-01T00:00:00Z 2026-01-04T00:00:00Z"},
		{"0 0 * * 0", "2026-01-01T00:00:00Z 2026-01-04T00:00:00Z"},
		{"0 0 * * 5-7", "2026-01-01T00:00:00Z 2026-01-02T00:00:00Z 2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-09T00:00:00Z"},
		{"0 0 10 * MON", "2026-01-01T00:00:00Z 2026-01-05T00:00:00Z 2026-01-10T00:00:00Z 2026-01-12T00:00:00Z"}, // either
		{"0 0 */10 * MON", "2026-01-01T00:00:00Z 2026-05-11T00:00:00Z"},                                         // both
		{"0 0 30 2 MON", "2026-02-20T00:00:00Z 2026-02-23T00:00:00Z 2027-02-01T00:00:00Z"},
		{"0 0 31 * *", "2026-01-31T00:00:00Z 2026-03-31T00:00:00Z 2026-05-31T00:00:00Z"},
		{"0 0 29 2 *", "2096-02-29T00:00:00Z 2104-02-29T00:00:00Z"},
		{"0 0 29 2 */7", "2088-02-29T00:00:00Z 2128-02-29T00:00:00Z"}, // a Sunday: the longest wait
		{"59 23 31 12 *", "2026-12-31T23:59:00Z 2027-12-31T23:59:00Z"},
	} {
		checkInstants(t, row.text, "UTC", row.instants)
	}
}

func checkInstants(t *testing.T, text, in, instants string) {
	t.Helper()
	e, z := parse(t, text), zone(t, in)
	list := strings.Fields(instants)
	for i, want := range list[1:] {
		got := e.Next(instant(t, list[i]), z)
		if w := instant(t, want).UTC(); !got.Equal(w) {
			t.Errorf("%q in %s: Next(%s) = %s, want %s", text, in, list[i], got.Format(time.RFC3339), w.Format(time.RFC3339))
		}
	}
}

// The rules of docs/decisions.md 42, in zones that change in all the ways that there are.
func TestNextWhereTheClockChanges(t *testing.T) {
	for _, row := range []struct{ rule, text, in, instants string }{
		{"skipped: at the end of the gap", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00 2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"several skipped: once", "0,20,40 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00 2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00"},
		{"skipped, and the end of the gap itself: once", "0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00 2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00"},
		{"repeated: at the first", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00 2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"a restart in the repeated hour", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:29:00+01:00 2026-10-26T02:30:00+01:00"},
		{"a restart between the two", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:45:00+02:00 2026-10-26T02:30:00+01:00"},
		{"every hour, forward", "0 * * * *", "Europe/Berlin", "2026-03-29T01:00:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T04:00:00+02:00"},
		{"every hour, back", "0 * * * *", "Europe/Berlin", "2026-10-25T01:00:00+02:00 2026-10-25T02:00:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T03:00:00+01:00"},
		{"a step in the minute, in an hour that is skipped", "*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00 2026-03-30T02:00:00+02:00"},
		{"a step in the hour, back", "15 */2 * * *", "Europe/Berlin", "2026-10-25T00:15:00+02:00 2026-10-25T02:15:00+02:00 2026-10-25T02:15:00+01:00 2026-10-25T04:15:00+01:00"},

		{"half an hour, forward", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30 2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		{"half an hour, back", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00 2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
		{"half an hour, back, a restart", "45 1 * * *", "Australia/Lord_Howe", "2026-04-05T01:40:00+10:30 2026-04-06T01:45:00+10:30"},
		{"half an hour, each quarter", "*/15 * * * *", "Australia/Lord_Howe", "2026-04-05T01:30:00+11:00 2026-04-05T01:45:00+11:00 2026-04-05T01:30:00+10:30 2026-04-05T01:45:00+10:30 2026-04-05T02:00:00+10:30"},

		{"midnight is skipped", "0 0 * * *", "America/Santiago", "2025-09-06T00:00:00-04:00 2025-09-07T01:00:00-03:00 2025-09-08T00:00:00-03:00"},
		{"midnight of one day is skipped", "0 0 7 9 *", "America/Santiago", "2025-01-01T00:00:00-03:00 2025-09-07T01:00:00-03:00 2026-09-07T00:00:00-03:00"},
		{"the hour before midnight is repeated", "30 23 * * *", "America/Santiago", "2025-04-05T12:00:00-03:00 2025-04-05T23:30:00-03:00 2025-04-06T23:30:00-04:00"},
		{"midnight is skipped", "0 0 * * FRI", "Africa/Cairo", "2024-04-20T00:00:00+02:00 2024-04-26T01:00:00+03:00 2024-05-03T00:00:00+03:00"},
		{"midnight is skipped", "30 0 * * *", "Asia/Beirut", "2022-03-26T12:00:00+02:00 2022-03-27T01:00:00+03:00 2022-03-28T00:30:00+03:00"},
		{"a whole day is skipped", "0 12 30 12 *", "Pacific/Apia", "2011-06-01T00:00:00-11:00 2011-12-31T00:00:00+14:00 2012-12-30T12:00:00+14:00"},
		{"a whole day is skipped", "0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00-10:00 2011-12-29T12:00:00-10:00 2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00"},
		{"a whole day is repeated", "0 12 * * *", "Pacific/Kwajalein", "1969-09-29T00:00:00+11:00 1969-09-29T12:00:00+11:00 1969-09-30T12:00:00+11:00 1969-10-01T12:00:00-12:00"},
		{"the rule of a zone goes on for ever", "30 2 * * *", "America/New_York", "2090-03-11T12:00:00-05:00 2090-03-12T03:00:00-04:00 2090-03-13T02:30:00-04:00"},
	} {
		t.Run(row.rule, func(t *testing.T) { checkInstants(t, row.text, row.in, row.instants) })
	}
}

func TestBadExpressionsAreRefusedByField(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"", "five fields"}, {"* * * *", "not 4"}, {"* * * * * *", "not 6"}, {"@daily", "five fields"},
		{"60 * * * *", "minute: 60 is not from 0 to 59"}, {"-1 * * * *", "minute: "}, {"x * * * *", `minute: "x" is no value`},
		{"* 24 * * *", "hour: 24"}, {"* +1 * * *", "hour: "}, {"* 1- * * *", "hour: "}, {"* 5-1 * * *", "hour: the range"},
		{"* * 0 * *", "day of the month: 0"}, {"* * 32 * *", "day of the month: 32"}, {"* * L * *", "day of the month: "},
		{"* * * 13 *", "month: 13"}, {"* * * MON *", "month: "}, {"* * * 0 *", "month: 0"},
		{"* * * * 8", "day of the week: 8"}, {"* * * * JAN", "day of the week: "}, {"* * * * 5#2", "day of the week: "}, {"* * * * FRI-MON", "day of the week: the range"},
		{"*/0 * * * *", "minute: the step 0"}, {"*/60 * * * *", "minute: the step 60"}, {"*/ * * * *", "minute: "}, {"*/x * * * *", "minute: "}, {"1/2/3 * * * *", "minute: "},
		{"1,,2 * * * *", "minute: "}, {", * * * *", "minute: "}, {"1-2-3 * * * *", "minute: "}, {"?  * * * *", "minute: "}, {"** * * * *", "minute: "},
		{"99999999999999999999 * * * *", "minute: "},
		{"0 0 30 2 *", "never fire"}, {"0 0 31 2,4,6,9,11 *", "never fire"}, {"0 0 31 4 */2", "never fire"},
		{strings.Repeat("1,", 200) + "1 * * * *", "at most 200 bytes"},
	} {
		_, err := cron.Parse(row.text)
		if err == nil || !strings.Contains(err.Error(), row.want) || problem.KindOf(err) != problem.Invalid {
			t.Errorf("Parse(%.40q) = %v, want a 422 with %q", row.text, err, row.want)
		}
	}
}

func TestUnknownZonesAreRefused(t *testing.T) {
	for _, name := range []string{"", "Local", "local", "utc", "Nowhere/City", "../UTC", "/etc/localtime", "posix/UTC", "right/UTC", "localtime", "posixrules", "Europe", "Europe/", "U\x00TC", strings.Repeat("A", 100)} {
		if _, err := cron.Zone(name); problem.KindOf(err) != problem.Invalid {
			t.Errorf("Zone(%.20q) = %v, want a 422", name, err)
		}
	}
}

func TestZeroExpressionNeverFires(t *testing.T) {
	if at := (cron.Expression{}).Next(time.Now(), time.UTC); !at.IsZero() {
		t.Errorf("Next = %v, want never", at)
	}
}

// The zones of the property: all kinds of changes, each with a day before one of them.
var changes = []struct{ zone, around string }{
	{"UTC", "2026-02-28T00:00:00Z"},
	{"Europe/Berlin", "2026-03-28T12:00:00Z"},
	{"Europe/Berlin", "2026-10-24T12:00:00Z"},
	{"Australia/Lord_Howe", "2026-10-03T00:00:00Z"},
	{"Australia/Lord_Howe", "2026-04-04T00:00:00Z"},
	{"America/Santiago", "2025-09-06T00:00:00Z"},
	{"America/Santiago", "2025-04-05T00:00:00Z"},
	{"Africa/Cairo", "2024-04-25T00:00:00Z"},
	{"Africa/Cairo", "2024-10-31T00:00:00Z"},
	{"Asia/Beirut", "2022-03-26T00:00:00Z"},
	{"Pacific/Apia", "2011-12-29T00:00:00Z"},
	{"Pacific/Kwajalein", "1969-09-30T00:00:00Z"},
	{"Africa/Casablanca", "2026-02-14T00:00:00Z"},
	{"America/Caracas", "2007-12-09T00:00:00Z"},
	{"Asia/Kathmandu", "1985-12-31T00:00:00Z"},
}

func TestNextIsWhatALookAtEachMinuteFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(changes).Draw(t, "change")
		z, err := cron.Zone(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		around, _ := time.Parse(time.RFC3339, c.around)
		if _, end := around.In(z).ZoneBounds(); !end.IsZero() {
			around = end
		}
		after := around.Add(time.Duration(rapid.IntRange(-4*3600, 4*3600).Draw(t, "after")) * time.Second)
		near := after.In(z).Hour() + rapid.IntRange(0, 5).Draw(t, "near")
		hour := rapid.OneOf(rapid.Just(strconv.Itoa(near%24)), rapid.Custom(func(t *rapid.T) string { return fieldOf(t, "any hour", 0, 23) })).Draw(t, "hour")
		text := strings.Join([]string{
			fieldOf(t, "minute", 0, 59), hour, dayOf(t, "day", 1, 31), dayOf(t, "month", 1, 12), dayOf(t, "week", 0, 7),
		}, " ")
		e, err := cron.Parse(text)
		if err != nil {
			t.Skip(err)
		}
		until := after.Add(2 * 24 * time.Hour)
		want, got := look(text, z, after, until), e.Next(after, z)
		if got.After(until) {
			got = time.Time{}
		}
		if !got.Equal(want) {
			t.Fatalf("%q in %s: Next(%s) = %s, want %s", text, z, after.In(z), got.In(z), want.In(z))
		}
	})
}

// fieldOf draws a field, most often a simple one.
func fieldOf(t *rapid.T, name string, lo, hi int) string {
	part := rapid.Custom(func(t *rapid.T) string {
		a, b := rapid.IntRange(lo, hi).Draw(t, "a"), rapid.IntRange(lo, hi).Draw(t, "b")
		n := strconv.Itoa
		return rapid.SampledFrom([]string{n(a), n(a), n(a) + "," + n(b), n(a) + "," + n(b), n(min(a, b)) + "-" + n(max(a, b)), "*", "*/" + n(max(1, a)), n(a) + "/" + n(max(1, b)), n(min(a, b)) + "-" + n(max(a, b)) + "/" + n(2)}).Draw(t, "form")
	})
	return part.Draw(t, name)
}

// dayOf is fieldOf for the fields that would leave out most days.
func dayOf(t *rapid.T, name string, lo, hi int) string {
	if rapid.IntRange(0, 5).Draw(t, name+" is free") > 0 {
		return "*"
	}
	return fieldOf(t, name, lo, hi)
}

// look goes from minute to minute on the clock of a wall, and has its own reading of the
// fields. It returns the first instant after one that fires, up to another.
func look(text string, z *time.Location, after, until time.Time) time.Time {
	f := strings.Fields(text)
	rhythm := strings.ContainsAny(f[0]+f[1], "*/")
	either := !strings.Contains(f[2]+f[4], "*")
	fits := func(w time.Time) bool {
		day := in(f[2], w.Day(), 1, 31)
		week := in(f[4], int(w.Weekday()), 0, 6) || w.Weekday() == 0 && in(f[4], 7, 0, 6)
		return in(f[0], w.Minute(), 0, 59) && in(f[1], w.Hour(), 0, 23) && in(f[3], int(w.Month()), 1, 12) && (day && week || either && (day || week))
	}
	wall := func(u time.Time) time.Time { // what the wall shows, as if it were UTC
		_, offset := u.In(z).Zone()
		return u.UTC().Add(time.Duration(offset) * time.Second)
	}
	shown := map[time.Time]bool{}
	last := wall(after.Add(-72 * time.Hour).Truncate(time.Minute))
	for u := after.Add(-72 * time.Hour).Truncate(time.Minute); !u.After(until); u = u.Add(time.Minute) {
		now := wall(u)
		fires := fits(now) && (rhythm || !shown[now])
		for w := last.Add(time.Minute); w.Before(now); w = w.Add(time.Minute) {
			fires = fires || !rhythm && !shown[w] && fits(w)
			shown[w] = true
		}
		shown[now], last = true, now
		if fires && u.After(after) {
			return u
		}
	}
	return time.Time{}
}

// in reports whether a field has a value.
func in(field string, n, lo, hi int) bool {
	for part := range strings.SplitSeq(field, ",") {
		span, step, stepped := strings.Cut(part, "/")
		from, to, ranged := strings.Cut(span, "-")
		a, b := atoi(from), atoi(to)
		switch {
		case span == "*":
			a, b = lo, hi
		case !ranged && stepped:
			b = max(a, hi)
		case !ranged:
			b = a
		case b == 0 && lo == 0 && hi == 6:
			b = 7
		}
		if n >= a && n <= b && (!stepped || (n-a)%atoi(step) == 0) {
			return true
		}
	}
	return false
}

func atoi(s string) (n int) {
	for _, r := range s {
		n = 10*n + int(r-'0')
	}
	return n
}

// A parsed expression is parsed from its own text to the same one, and its next instant is
// later, a full minute, and the same for every instant before it.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"* * * * *", "*/5 0-6/2 1,15 JAN-MAR sun", "0 0 29 2 */7", "0 0 30 2 *", "7/25 3 * * MON-FRI", "5-1 * * * *", "@hourly", "\x00 * * * *"} {
		f.Add(text, int64(1774746000), uint8(1))
	}
	f.Fuzz(func(t *testing.T, text string, at int64, in uint8) {
		e, err := cron.Parse(text)
		if err != nil {
			var p *problem.Error
			if !errors.As(err, &p) || p.Kind != problem.Invalid {
				t.Fatalf("Parse(%q) = %v, want a 422", text, err)
			}
			return
		}
		if again, err := cron.Parse(e.String()); err != nil || again != e {
			t.Fatalf("Parse(%q) = %v, %v, want the same", e.String(), again, err)
		}
		after := time.Unix(at%(1<<33), 0)
		z := zone(t, changes[int(in)%len(changes)].zone)
		next := e.Next(after, z)
		if !next.After(after) || next.In(z).Second() != 0 && next.Year() > 1970 {
			t.Fatalf("%q: Next(%s) = %s", text, after, next)
		}
		if got := e.Next(next.Add(-time.Nanosecond), z); !got.Equal(next) {
			t.Fatalf("%q: Next just before %s = %s", text, next, got)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	e, z := parse(b, "0 0 29 2 *"), zone(b, "Europe/Berlin")
	after := instant(b, "2096-02-29T00:00:00Z")
	for b.Loop() {
		e.Next(after, z)
	}
}
