// Package billingtest is what every billing.Store must do.
package billingtest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
)

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) billing.Store) {
	suite.Test(t, rules, open)
}

var rules = []suite.Rule[billing.Store]{
	{Name: "RecordedIsReadBackWhole", Why: "what was used is billed at the price of its day", Run: recordedIsReadBack},
	{Name: "RecordingAgainReplaces", Why: "whoever is not sure records again, and nothing is billed twice", Run: recordingAgain},
	{Name: "KindIDPartAndFromNameAUse", Why: "a use must not take the place of another", Run: namesDiffer},
	{Name: "UsesAreThoseOfOneOwner", Why: "a user is billed for no other", Run: usesOfOneOwner},
	{Name: "UsesOverlapAHalfOpenWindow", Why: "what ends where a window begins is not in it", Run: usesOverlap},
	{Name: "OpenIsOfOneKindAndOfAllOwners", Why: "what a crash left open is closed, whoever's it is", Run: openOfAll},
	{Name: "WhatEndedBeforeAnInstantExpires", Why: "bills must not grow for ever, and what goes on is billed", Run: endedExpires},
	{Name: "RecordsAtOnceAllCount", Why: "a use must not be lost to another", Run: recordsAtOnce},
	{Name: "ListsAreTheCallers", Why: "callers change what they get", Run: listsAreTheCallers},
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

// use is an hour of something, n hours after the start.
func use(n int) pods.Usage {
	from := start.Add(time.Duration(n) * time.Hour)
	return pods.Usage{Owner: "alice", Kind: pods.WorkerUsage, ID: "e", Part: "w", From: from, To: from.Add(time.Hour), GPU: 1.1}
}

func with(u pods.Usage, change func(*pods.Usage)) pods.Usage {
	change(&u)
	return u
}

func record(t testing.TB, s billing.Store, uses ...pods.Usage) {
	t.Helper()
	if err := s.Record(t.Context(), uses); err != nil {
		t.Fatal(err)
	}
}

func sorted(list []pods.Usage) []pods.Usage {
	list = append([]pods.Usage{}, list...)
	slices.SortFunc(list, func(a, b pods.Usage) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Part, b.Part))
	})
	return list
}

func want(t testing.TB, what string, got []pods.Usage, err error, want ...pods.Usage) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if diff := gocmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wantAll compares everything that owner used.
func wantAll(t testing.TB, s billing.Store, owner string, uses ...pods.Usage) {
	t.Helper()
	got, err := s.Usage(t.Context(), owner, start.Add(-time.Hour), start.AddDate(100, 0, 0))
	want(t, fmt.Sprintf("Uses of %q", owner), got, err, uses...)
}

func wantOpen(t testing.TB, s billing.Store, kind pods.UsageKind, uses ...pods.Usage) {
	t.Helper()
	got, err := s.Open(t.Context(), kind)
	want(t, fmt.Sprintf("Open %q", kind), got, err, uses...)
}

func recordedIsReadBack(t testing.TB, s billing.Store) {
	wantAll(t, s, "alice")
	record(t, s)
	whole := pods.Usage{
		Owner: "alice", Kind: pods.PodUsage, ID: "p", Part: "ä \" part", From: start, To: start.Add(1), Open: true,
		GPU: 0.1, CPU: 0.2, Disk: 1.0 / 3, Standard: 1e-9, HighPerformance: 4,
	}
	bare := pods.Usage{Owner: "alice", Kind: pods.VolumeUsage, ID: "v", From: start, To: start.Add(1)}
	record(t, s, whole, bare)
	wantAll(t, s, "alice", whole, bare)
}

func recordingAgain(t testing.TB, s billing.Store) {
	u := with(use(1), func(u *pods.Usage) { u.Open = true })
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

func namesDiffer(t testing.TB, s billing.Store) {
	list := []pods.Usage{
		use(1),
		with(use(1), func(u *pods.Usage) { u.Kind = pods.PodUsage }),
		with(use(1), func(u *pods.Usage) { u.ID = "ew" }),
		with(use(1), func(u *pods.Usage) { u.ID, u.Part = "ew", "" }),
		with(use(1), func(u *pods.Usage) { u.Part = "" }),
		with(use(1), func(u *pods.Usage) { u.Part = "w2" }),
		with(use(1), func(u *pods.Usage) { u.From = u.From.Add(1) }),
	}
	for _, u := range list {
		record(t, s, u)
	}
	wantAll(t, s, "alice", list...)
}

func usesOfOneOwner(t testing.TB, s billing.Store) {
	al := with(use(1), func(u *pods.Usage) { u.Owner, u.ID = "al", "e2" })
	record(t, s, use(1), al)
	wantAll(t, s, "alice", use(1))
	wantAll(t, s, "al", al)
	wantAll(t, s, "")
	wantAll(t, s, "bob")
}

func usesOverlap(t testing.TB, s billing.Store) {
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
		got, err := s.Usage(t.Context(), "alice", row.from, row.to)
		if err != nil || (len(got) == 1) != row.in || len(got) > 1 {
			t.Errorf("Uses from %v to %v = %v, %v; want one: %t", row.from, row.to, got, err, row.in)
		}
	}
}

func openOfAll(t testing.TB, s billing.Store) {
	wantOpen(t, s, pods.WorkerUsage)
	open := func(u *pods.Usage) { u.Open = true }
	alices, bobs := with(use(1), open), with(use(2), open)
	bobs.Owner, bobs.ID = "bob", "e2"
	another := with(alices, func(u *pods.Usage) { u.Kind = pods.PodUsage })
	record(t, s, alices, bobs, another, use(3))
	wantOpen(t, s, pods.WorkerUsage, alices, bobs)
	wantOpen(t, s, pods.PodUsage, another)
	wantOpen(t, s, pods.VolumeUsage)
	alices.Open = false
	record(t, s, alices)
	wantOpen(t, s, pods.WorkerUsage, bobs)
	wantAll(t, s, "alice", alices, another, use(3))
}

func expire(t testing.TB, s billing.Store, before time.Time, limit int) int {
	t.Helper()
	n, err := s.Expire(t.Context(), before, limit)
	if err != nil {
		t.Fatalf("Expire = %v, want nil", err)
	}
	return n
}

func endedExpires(t testing.TB, s billing.Store) {
	open := with(use(0), func(u *pods.Usage) { u.Open, u.ID = true, "open" })
	bobs := with(use(1), func(u *pods.Usage) { u.Owner, u.ID = "bob", "e2" })
	record(t, s, open, use(0), use(1), bobs, use(2), use(9))
	before := use(2).To
	if n := expire(t, s, start, 10); n != 0 {
		t.Errorf("Expire before everything deleted %d, want 0", n)
	}
	first := expire(t, s, before, 2)
	if second := expire(t, s, before, 2); first != 2 || second != 1 {
		t.Errorf("Expire with the limit 2 deleted %d and %d of 3", first, second)
	}
	wantAll(t, s, "alice", open, use(2), use(9))
	wantAll(t, s, "bob")
	wantOpen(t, s, pods.WorkerUsage, open)
	open.Open = false
	record(t, s, open)
	if n := expire(t, s, before, 10); n != 1 {
		t.Errorf("Expire deleted %d, want the one that is no longer open", n)
	}
	if n := expire(t, s, before, 10); n != 0 {
		t.Errorf("Expire again deleted %d, want 0", n)
	}
	wantAll(t, s, "alice", use(2), use(9))
}

func recordsAtOnce(t testing.TB, s billing.Store) {
	var all []pods.Usage
	for i := range 32 {
		all = append(all, use(i))
	}
	// Each of the uses is recorded by two callers at once.
	suite.Together(32, func(i int) {
		two := all[i/2*2 : i/2*2+2]
		if err := s.Record(t.Context(), two); err != nil {
			t.Error(err)
		}
	})
	wantAll(t, s, "alice", all...)
}

func listsAreTheCallers(t testing.TB, s billing.Store) {
	u := with(use(1), func(u *pods.Usage) { u.Open = true })
	given := []pods.Usage{u}
	record(t, s, given...)
	clear(given)
	for range 2 {
		uses, err := s.Usage(t.Context(), "alice", start, start.AddDate(1, 0, 0))
		want(t, "Uses", uses, err, u)
		open, err := s.Open(t.Context(), pods.WorkerUsage)
		want(t, "Open", open, err, u)
		clear(uses)
		clear(open)
	}
}
