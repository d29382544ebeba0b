// Package billingtest is what every billing.Store must do, as a table of rules.
package billingtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
)

// A Rule is one thing that a store must do.
type Rule struct {
	Name string
	Why  string // printed when it is broken
	Run  func(t *testing.T, s billing.Store)
}

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) billing.Store) {
	for _, r := range Rules() {
		suite.Run(t, r.Name, r.Why, func(t *testing.T) { r.Run(t, open(t)) })
	}
}

// Rules are the rules of a store.
func Rules() []Rule {
	return []Rule{
		{"RecordedIsReadBackWhole", "what was used is billed at the price of its day", recordedIsReadBack},
		{"RecordingAgainReplaces", "whoever is not sure records again, and nothing is billed twice", recordingAgain},
		{"KindIDPartAndFromNameAUse", "a use must not take the place of another", namesDiffer},
		{"UsesAreThoseOfOneOwner", "a user is billed for no other", usesOfOneOwner},
		{"UsesOverlapAHalfOpenWindow", "what ends where a window begins is not in it", usesOverlap},
		{"OpenIsOfOneKindAndOfAllOwners", "what a crash left open is closed, whoever's it is", openOfAll},
		{"RecordsAtOnceAllCount", "a use must not be lost to another", recordsAtOnce},
		{"ListsAreTheCallers", "callers change what they get", listsAreTheCallers},
	}
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

// use is an hour of something, n hours after the start.
func use(n int) pods.Use {
	from := start.Add(time.Duration(n) * time.Hour)
	return pods.Use{Owner: "alice", Kind: pods.WorkerUse, ID: "e", Part: "w", From: from, To: from.Add(time.Hour), GPU: 1.1}
}

func with(u pods.Use, change func(*pods.Use)) pods.Use {
	change(&u)
	return u
}

func record(t *testing.T, s billing.Store, uses ...pods.Use) {
	t.Helper()
	if err := s.Record(t.Context(), uses); err != nil {
		t.Fatal(err)
	}
}

func sorted(list []pods.Use) []pods.Use {
	list = append([]pods.Use{}, list...)
	slices.SortFunc(list, func(a, b pods.Use) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Part, b.Part))
	})
	return list
}

func want(t *testing.T, what string, got []pods.Use, err error, want ...pods.Use) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if diff := gocmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wantAll compares everything that owner used.
func wantAll(t *testing.T, s billing.Store, owner string, uses ...pods.Use) {
	t.Helper()
	got, err := s.Uses(t.Context(), owner, start.Add(-time.Hour), start.AddDate(100, 0, 0))
	want(t, fmt.Sprintf("Uses of %q", owner), got, err, uses...)
}

func wantOpen(t *testing.T, s billing.Store, kind pods.UseKind, uses ...pods.Use) {
	t.Helper()
	got, err := s.Open(t.Context(), kind)
	want(t, fmt.Sprintf("Open %q", kind), got, err, uses...)
}

func recordedIsReadBack(t *testing.T, s billing.Store) {
	wantAll(t, s, "alice")
	record(t, s)
	whole := pods.Use{
		Owner: "alice", Kind: pods.PodUse, ID: "p", Part: "ä \" part", From: start, To: start.Add(1), Open: true,
		GPU: 0.1, CPU: 0.2, Disk: 1.0 / 3, Standard: 1e-9, HighPerformance: 4,
	}
	bare := pods.Use{Owner: "alice", Kind: pods.VolumeUse, ID: "v", From: start, To: start.Add(1)}
	record(t, s, whole, bare)
	wantAll(t, s, "alice", whole, bare)
}

func recordingAgain(t *testing.T, s billing.Store) {
	u := with(use(1), func(u *pods.Use) { u.Open = true })
	record(t, s, u)
	record(t, s, u, use(2))
	u.To = u.To.Add(time.Hour)
	record(t, s, u)
	wantAll(t, s, "alice", u, use(2))
	u.Open = false
	record(t, s, u)
	record(t, s, u)
	wantAll(t, s, "alice", u, use(2))
}

func namesDiffer(t *testing.T, s billing.Store) {
	list := []pods.Use{
		use(1),
		with(use(1), func(u *pods.Use) { u.Kind = pods.PodUse }),
		with(use(1), func(u *pods.Use) { u.ID = "ew" }),
		with(use(1), func(u *pods.Use) { u.ID, u.Part = "ew", "" }),
		with(use(1), func(u *pods.Use) { u.Part = "" }),
		with(use(1), func(u *pods.Use) { u.Part = "w2" }),
		with(use(1), func(u *pods.Use) { u.From = u.From.Add(1) }),
	}
	for _, u := range list {
		record(t, s, u)
	}
	wantAll(t, s, "alice", list...)
}

func usesOfOneOwner(t *testing.T, s billing.Store) {
	al := with(use(1), func(u *pods.Use) { u.Owner, u.ID = "al", "e2" })
	record(t, s, use(1), al)
	wantAll(t, s, "alice", use(1))
	wantAll(t, s, "al", al)
	wantAll(t, s, "")
	wantAll(t, s, "bob")
}

func usesOverlap(t *testing.T, s billing.Store) {
	u := use(0)
	record(t, s, u)
	for _, row := range []struct {
		from, to time.Time
		in       bool
	}{
		{u.From, u.To, true},
		{u.From.Add(-time.Hour), u.From, false},
		{u.From.Add(-time.Hour), u.From.Add(1), true},
		{u.To, u.To.Add(time.Hour), false},
		{u.To.Add(-1), u.To.Add(time.Hour), true},
		{u.From.Add(time.Minute), u.From.Add(2 * time.Minute), true},
		{u.From.AddDate(-1, 0, 0), u.To.AddDate(1, 0, 0), true},
	} {
		got, err := s.Uses(t.Context(), "alice", row.from, row.to)
		if err != nil || (len(got) == 1) != row.in || len(got) > 1 {
			t.Errorf("Uses from %v to %v = %v, %v; want one: %t", row.from, row.to, got, err, row.in)
		}
	}
}

func openOfAll(t *testing.T, s billing.Store) {
	wantOpen(t, s, pods.WorkerUse)
	open := func(u *pods.Use) { u.Open = true }
	alices, bobs := with(use(1), open), with(use(2), open)
	bobs.Owner, bobs.ID = "bob", "e2"
	another := with(alices, func(u *pods.Use) { u.Kind = pods.PodUse })
	record(t, s, alices, bobs, another, use(3))
	wantOpen(t, s, pods.WorkerUse, alices, bobs)
	wantOpen(t, s, pods.PodUse, another)
	wantOpen(t, s, pods.VolumeUse)
	alices.Open = false
	record(t, s, alices)
	wantOpen(t, s, pods.WorkerUse, bobs)
	wantAll(t, s, "alice", alices, another, use(3))
}

func recordsAtOnce(t *testing.T, s billing.Store) {
	var all []pods.Use
	var wg sync.WaitGroup
	for i := range 16 {
		two := []pods.Use{use(2 * i), use(2*i + 1)}
		all = append(all, two...)
		for range 2 {
			wg.Go(func() {
				if err := s.Record(context.WithoutCancel(t.Context()), two); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	wantAll(t, s, "alice", all...)
}

func listsAreTheCallers(t *testing.T, s billing.Store) {
	u := with(use(1), func(u *pods.Use) { u.Open = true })
	given := []pods.Use{u}
	record(t, s, given...)
	clear(given)
	for range 2 {
		uses, err := s.Uses(t.Context(), "alice", start, start.AddDate(1, 0, 0))
		want(t, "Uses", uses, err, u)
		open, err := s.Open(t.Context(), pods.WorkerUse)
		want(t, "Open", open, err, u)
		clear(uses)
		clear(open)
	}
}
