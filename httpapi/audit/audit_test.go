package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/internal/suite"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func open(t *testing.T, dir string, o *audit.Options) *audit.Log {
	t.Helper()
	l, err := audit.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return l
}

// trails calls fn with each kind of trail.
func trails(t *testing.T, fn func(t *testing.T, a audit.Trail)) {
	t.Helper()
	t.Run("Log", func(t *testing.T) { fn(t, open(t, filepath.Join(t.TempDir(), "audit"), nil)) })
	t.Run("Memory", func(t *testing.T) { fn(t, audit.NewMemory(5000)) })
}

func read(t *testing.T, a audit.Trail, q audit.Query) []audit.Record {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 5000
	}
	list, err := a.Read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// change is one at second n.
func change(n int, user string) audit.Record {
	return audit.Record{Time: start.Add(time.Duration(n) * time.Second), Kind: audit.Change, User: user, Operation: "createPod", Status: 201}
}

func refusal(n int, source string) audit.Record {
	return audit.Record{Time: start.Add(time.Duration(n) * time.Second), Kind: audit.Refusal, Operation: "run", Source: source, Status: 401}
}

func TestTheNewestRecordsOfBothKindsComeFirst(t *testing.T) {
	trails(t, func(t *testing.T, a audit.Trail) {
		whole := audit.Record{
			Time: start, Kind: audit.Change, User: "alice", Key: "0123abcd", Operation: "deletePod", Path: "/v2/pods/p", Record: "p", Owner: "bob",
			Source: "192.0.2.1", Agent: "curl/8", Status: 204,
		}
		a.Record(whole)
		a.Record(refusal(1, "192.0.2.1"))
		a.Record(change(2, "bob"))
		if diff := cmp.Diff([]audit.Record{change(2, "bob"), refusal(1, "192.0.2.1"), whole}, read(t, a, audit.Query{})); diff != "" {
			t.Errorf("Read (-want +got):\n%s", diff)
		}
		for name, tt := range map[string]struct {
			q    audit.Query
			want []audit.Record
		}{
			"a limit":                 {audit.Query{Limit: 1}, []audit.Record{change(2, "bob")}},
			"an instant":              {audit.Query{Before: start.Add(2 * time.Second)}, []audit.Record{refusal(1, "192.0.2.1"), whole}},
			"a beginning":             {audit.Query{Since: start.Add(time.Second)}, []audit.Record{change(2, "bob"), refusal(1, "192.0.2.1")}},
			"a kind":                  {audit.Query{Kind: audit.Refusal}, []audit.Record{refusal(1, "192.0.2.1")}},
			"a user":                  {audit.Query{User: "alice"}, []audit.Record{whole}},
			"an operation":            {audit.Query{Operation: "run"}, []audit.Record{refusal(1, "192.0.2.1")}},
			"a user and an operation": {audit.Query{User: "alice", Operation: "run"}, nil},
		} {
			if diff := cmp.Diff(tt.want, append([]audit.Record(nil), read(t, a, tt.q)...)); diff != "" {
				t.Errorf("Read with %s (-want +got):\n%s", name, diff)
			}
		}
	})
}

func TestRecordsSinceAnInstantAreFoundAlsoBehindAClockThatWasSetBack(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, nil)
	l.Record(change(5*3600, "ahead"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir, nil)
	l.Record(change(1, "right"))
	list := read(t, l, audit.Query{Since: start.Add(time.Hour)})
	if len(list) != 1 || list[0].User != "ahead" {
		t.Errorf("%+v, want the record of the clock that was ahead", list)
	}
}

// So before is a cursor.
func TestNoTwoRecordsHaveTheSameTime(t *testing.T) {
	trails(t, func(t *testing.T, a audit.Trail) {
		suite.Together(50, func(i int) { a.Record(change(0, fmt.Sprint("u", i))) })
		seen, q := map[string]bool{}, audit.Query{Limit: 7}
		for {
			page := read(t, a, q)
			for _, r := range page {
				seen[r.User] = true
			}
			if len(page) < 7 {
				break
			}
			q.Before = page[6].Time
		}
		if len(seen) != 50 {
			t.Errorf("pages of 7 have %d of 50 records", len(seen))
		}
	})
}

func TestAFloodOfRefusalsIsCountedAndChangesAreAllKept(t *testing.T) {
	trails(t, func(t *testing.T, a audit.Trail) {
		for range 1000 {
			a.Record(refusal(0, "192.0.2.1"))
			a.Record(change(0, "alice"))
		}
		a.Record(refusal(1, "192.0.2.2")) // another address has an account of its own
		a.Record(refusal(60, "192.0.2.1"))
		count := map[audit.Kind]int{}
		dropped := 0
		for _, r := range read(t, a, audit.Query{}) {
			count[r.Kind]++
			dropped += r.Dropped
		}
		if count[audit.Refusal] != audit.PerAddress+2 || dropped != 1000-audit.PerAddress || count[audit.Dropped] != 1 || count[audit.Change] != 1000 {
			t.Errorf("kept %v, dropped %d", count, dropped)
		}
	})
}

func TestReadingDoesNotMakeRoomForMoreRefusals(t *testing.T) {
	trails(t, func(t *testing.T, a audit.Trail) {
		for range 10 * audit.PerAddress {
			a.Record(refusal(0, "192.0.2.1"))
			read(t, a, audit.Query{})
		}
		kept, dropped := 0, 0
		for _, r := range read(t, a, audit.Query{}) {
			if dropped += r.Dropped; r.Kind == audit.Refusal {
				kept++
			}
		}
		if kept != audit.PerAddress || dropped != 9*audit.PerAddress {
			t.Errorf("%d kept, %d dropped", kept, dropped)
		}
	})
}

func TestRefusalsOfManyAddressesAreBoundedTogether(t *testing.T) {
	trails(t, func(t *testing.T, a audit.Trail) {
		const many = 5000
		for i := range many {
			a.Record(refusal(0, fmt.Sprintf("10.0.%d.%d", i/256, i%256)))
		}
		kept, dropped := 0, 0
		list := read(t, a, audit.Query{})
		for _, r := range list {
			if dropped += r.Dropped; r.Kind == audit.Refusal {
				kept++
			}
		}
		if kept != audit.PerMinute || kept+dropped != many || len(list) != kept+1 {
			t.Errorf("%d kept, %d dropped, %d lines", kept, dropped, len(list))
		}
	})
}

func TestANetworkOfIPv6CountsAsOneAddress(t *testing.T) {
	trails(t, func(t *testing.T, a audit.Trail) {
		for i := range 100 {
			a.Record(refusal(0, fmt.Sprintf("2001:db8::%x", i+1)))
		}
		list := read(t, a, audit.Query{})
		if len(list) != audit.PerAddress+1 || list[0].Source != "2001:db8::/64" || list[0].Dropped != 100-audit.PerAddress {
			t.Errorf("%d lines, the newest is %+v", len(list), list[0])
		}
	})
}

func TestFilesAreRotatedAndTheOldestGo(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, &audit.Options{Files: 3, FileBytes: 1000})
	for i := range 200 {
		l.Record(change(i, "alice"))
	}
	list := read(t, l, audit.Query{})
	if len(list) < 10 || len(list) > 60 || list[0].Time != change(199, "").Time {
		t.Errorf("%d records are left, the newest of %v", len(list), list[0].Time)
	}
	for i := range list[1:] {
		if list[i].Time.Sub(list[i+1].Time) != time.Second {
			t.Errorf("there is a gap after %v", list[i+1].Time)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "changes-*.jsonl"))
	if err != nil || len(files) != 3 {
		t.Errorf("files: %v, %v", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 1000 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info, err)
		}
	}
}

func TestALogGoesOnWhereItWasAlsoAfterATornLine(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, nil)
	l.Record(change(0, "alice"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.Record(change(1, "late")) // after the end: nothing happens
	f, err := os.OpenFile(filepath.Join(dir, "changes-000000000001.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"time":"2026-01-0`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir, nil)
	l.Record(change(2, "bob"))
	if diff := cmp.Diff([]audit.Record{change(2, "bob"), change(0, "alice")}, read(t, l, audit.Query{})); diff != "" {
		t.Errorf("Read (-want +got):\n%s", diff)
	}
}

func TestRecordsLongerThanABlockAreReadBackwards(t *testing.T) {
	l := open(t, t.TempDir(), nil)
	for i := range 1000 {
		r := change(i, strings.Repeat("ü", 250))
		r.Agent = strings.Repeat("x", i%500)
		l.Record(r)
	}
	list := read(t, l, audit.Query{Limit: 1000})
	for i, r := range list {
		if want := 999 - i; len(r.Agent) != want%500 || r.Time != change(want, "").Time {
			t.Fatalf("record %d is of %v with %d bytes", i, r.Time, len(r.Agent))
		}
	}
	if len(list) != 1000 {
		t.Errorf("%d records, want 1000", len(list))
	}
}

// Where the directory is gone no file can follow: as on a full disk.
func TestAFailureToWriteIsLoggedOnceAndCounted(t *testing.T) {
	var text bytes.Buffer
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, &audit.Options{FileBytes: 200, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	l.Record(change(0, "alice"))
	l.Record(refusal(0, "192.0.2.1"))
	if err := os.Rename(dir, dir+"2"); err != nil {
		t.Skip("an open directory cannot be renamed here:", err)
	}
	for i := range 5 {
		l.Record(change(1+i, "lost"))
	}
	if n := strings.Count(text.String(), "records cannot be written"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, text.String())
	}
	if err := os.Rename(dir+"2", dir); err != nil {
		t.Fatal(err)
	}
	l.Record(change(9, "bob"))
	list, lost := read(t, l, audit.Query{}), 0
	for _, r := range list {
		lost += r.Dropped
	}
	kept := len(read(t, l, audit.Query{User: "lost"}))
	if lost+kept != 5 || lost == 0 || list[1].User != "bob" {
		t.Errorf("%d lost, %d kept: %+v", lost, kept, list)
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	l := open(t, t.TempDir(), nil)
	l.Record(change(0, "alice"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Read(ctx, audit.Query{Limit: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("Read = %v", err)
	}
}

// Operators read the files in a terminal.
func TestALineHasNothingThatActsOnATerminalAndMeansTheSame(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir, nil)
	r := change(1, "alice")
	r.Path, r.Agent, r.Record = "/v2/\u009b2J/\x1b[31m", "curl\u202e\u0085", "\x7f\u2066x\u200b"
	a.Record(r)
	got := read(t, a, audit.Query{Limit: 1})
	if len(got) != 1 || got[0].Path != r.Path || got[0].Agent != r.Agent || got[0].Record != r.Record {
		t.Errorf("Read = %+v, want %+v", got, r)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files = %v, %v", files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range strings.ReplaceAll(string(b), "\n", "") {
			if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) {
				t.Errorf("%s has %U", file, c)
			}
		}
	}
}
