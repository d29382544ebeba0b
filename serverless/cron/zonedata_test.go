package cron_test

import (
	"archive/zip"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/cron"
)

// The data of a zone comes in two forms. Slim data has a rule for the future, long data a list
// of changes until 2037 and the rule after it. Which one a host has must not matter: the image
// from scratch, Windows and every program without the files of the system have slim data.

// slim returns a zone from the data that comes with Go, whatever the host has.
func slim(t *testing.T, name string) *time.Location {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("the go command is needed to find slim data: %v", err)
	}
	z, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if os.IsNotExist(err) {
		t.Skip("this installation of Go has no lib/time/zoneinfo.zip")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	f, err := z.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// listed returns a zone that has the offsets of another one, but every change in a list. It is
// found from the offsets alone, so it does not depend on what ZoneBounds returns.
func listed(t *testing.T, of *time.Location, first, last int) *time.Location {
	t.Helper()
	offset := func(at int64) int32 {
		_, n := time.Unix(at, 0).In(of).Zone()
		return int32(n)
	}
	begin, end := time.Date(first, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(last, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	offsets := []int32{offset(begin)}
	indexes := map[int32]byte{offsets[0]: 0}
	var times []int64
	var types []byte
	const step = 3 * 60 * 60
	for at := begin; at < end; at += step {
		if offset(at) == offset(at+step) {
			continue
		}
		lo, hi := at, at+step // the change is after lo and not after hi
		for hi-lo > 1 {
			if mid := (lo + hi) / 2; offset(mid) == offset(lo) {
				lo = mid
			} else {
				hi = mid
			}
		}
		o := offset(hi)
		if _, ok := indexes[o]; !ok {
			indexes[o] = byte(len(offsets))
			offsets = append(offsets, o)
		}
		times, types = append(times, hi), append(types, indexes[o])
	}

	// RFC 8536, version 2: an empty first part, then one with 64 bits, then no rule.
	header := func(n, kinds int) []byte {
		b := append([]byte("TZif2"), make([]byte, 15)...)
		for _, count := range []int{0, 0, 0, n, kinds, 1} {
			b = binary.BigEndian.AppendUint32(b, uint32(count))
		}
		return b
	}
	data := append(header(0, 1), 0, 0, 0, 0, 0, 0, 0) // one kind of time, and the name ""
	data = append(data, header(len(times), len(offsets))...)
	for _, at := range times {
		data = binary.BigEndian.AppendUint64(data, uint64(at))
	}
	data = append(data, types...)
	for _, o := range offsets {
		data = append(binary.BigEndian.AppendUint32(data, uint32(o)), 0, 0)
	}
	data = append(data, 0, '\n', '\n')
	zone, err := time.LoadLocationFromTZData(of.String(), data)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

var zoneNames = []string{
	"UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/Santiago", "America/Sao_Paulo",
	"America/St_Johns", "Australia/Lord_Howe", "Australia/Sydney", "Africa/Cairo", "Africa/Casablanca", "Asia/Kathmandu",
	"Asia/Jerusalem", "Pacific/Auckland",
}

var expressions = []string{
	"* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "15 2 * * *", "0 0 * * *", "59 23 31 12 *", "0 12 1 1 *", "0 0 29 2 *",
	"0 0 29 2 */7", "* 0 29 2 */7", "0 0 31 12 */7", "*/30 2 * * SUN", "0 1,2,3 * 3,10 SUN", "45 1 * 4,10 *", "30 0 1 * *",
	"0 0 * * MON", "12 3 30 3 6", "15 */2 31 12 *", "30 23 28-31 * 0",
}

func TestNextIsTheSameOnSlimAndOnLongData(t *testing.T) {
	const last = 2110
	// Days around which rules, years and hours begin and end.
	days := []struct{ month, day int }{{1, 1}, {2, 28}, {3, 13}, {3, 29}, {4, 4}, {9, 6}, {10, 3}, {10, 25}, {11, 1}, {12, 30}, {12, 31}}
	parsed := make([]cron.Expression, 0, len(expressions))
	for _, text := range expressions {
		parsed = append(parsed, parse(t, text))
	}
	for _, name := range zoneNames {
		t.Run(name, func(t *testing.T) {
			a := slim(t, name)
			b := listed(t, a, 2024, last+101)
			for year := 2026; year <= last; year++ {
				for _, d := range days {
					after := time.Date(year, time.Month(d.month), d.day, 12, 34, 56, 0, time.UTC)
					for _, e := range parsed {
						if got, want := e.Next(after, a), e.Next(after, b); !got.Equal(want) {
							t.Fatalf("%q after %s:\nslim data: %s\nlong data: %s", e, after.Format(time.RFC3339), got.Format(time.RFC3339), want.Format(time.RFC3339))
						}
					}
				}
			}
		})
	}
}

// On 31 December of a leap year, ZoneBounds of a zone with a rule returns an end that has passed.
func TestNextOnTheLastDayOfALeapYear(t *testing.T) {
	for _, row := range []struct{ text, in, after, want string }{
		{"* 0 29 2 */7", "Europe/Berlin", "2026-11-26T00:00:00Z", "2032-02-28T23:00:00Z"},
		{"0 0 29 2 */7", "Europe/Berlin", "2026-11-26T00:00:00Z", "2032-02-28T23:00:00Z"},
		{"0 12 1 1 *", "America/New_York", "2028-06-01T00:00:00Z", "2029-01-01T17:00:00Z"},
		{"0 12 1 1 *", "America/Santiago", "2028-06-01T00:00:00Z", "2029-01-01T15:00:00Z"},
		{"0 12 1 1 *", "Australia/Lord_Howe", "2028-06-01T00:00:00Z", "2029-01-01T01:00:00Z"},
		{"0 12 1 1 *", "Africa/Cairo", "2028-06-01T00:00:00Z", "2029-01-01T10:00:00Z"},
		{"30 14 * * *", "Europe/Berlin", "2028-12-31T10:00:00Z", "2028-12-31T13:30:00Z"},
		{"0 0 2 1 *", "Europe/Berlin", "2028-12-31T10:00:00Z", "2029-01-01T23:00:00Z"},
		{"0 0 2 1 *", "America/New_York", "2096-12-31T10:00:00Z", "2097-01-02T05:00:00Z"},
	} {
		z, e := slim(t, row.in), parse(t, row.text)
		if got := e.Next(instant(t, row.after), z); !got.Equal(instant(t, row.want)) {
			t.Errorf("%q in %s: Next(%s) = %s, want %s", row.text, row.in, row.after, got.Format(time.RFC3339), row.want)
		}
	}
}
