// Package registriestest is what every registries.Store must do, as a table of rules.
package registriestest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/registries"
)

// A Rule is one thing that a store must do.
type Rule struct {
	Name string
	Why  string // printed when it is broken
	Run  func(t *testing.T, s registries.Store)
}

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) registries.Store) {
	for _, r := range Rules() {
		suite.Run(t, r.Name, r.Why, func(t *testing.T) { r.Run(t, open(t)) })
	}
}

// Rules are the rules of a store.
func Rules() []Rule {
	return []Rule{
		{"CreatedIsReadBackWhole", "a pod that pulls years later needs exactly what was stored", createdIsReadBackWhole},
		{"TakenIDIsRefusedAndChangesNothing", "two users must never share a credential", takenIDIsRefused},
		{"UnknownIsNotFound", "callers branch on ErrNotFound", unknownIsNotFound},
		{"ListIsByCreationThenID", "a listing must not change its order from call to call", listIsByCreation},
		{"ListHasOneOwnerOnly", "a user must not learn of another's registries", listHasOneOwner},
		{"DeletedIsGone", "a deleted credential must not be used again", deletedIsGone},
		{"ReturnedListIsTheCallers", "callers change what they get", returnedListIsTheCallers},
		{"OneOfManyCreatesOfAnIDWins", "ids are unique under contention too", oneCreateWins},
		{"OneOfManyDeletesSucceeds", "a delete is reported once", oneDeleteSucceeds},
	}
}

var start = time.Date(2026, 1, 2, 3, 4, 5, int(678*time.Millisecond), time.UTC)

func registry(n int, owner string) registries.Registry {
	return registries.Registry{
		ID: fmt.Sprintf("registry%06d", n), Owner: owner, Name: fmt.Sprint("name ", n),
		Created: start.Add(time.Duration(n) * time.Second),
	}
}

func create(t *testing.T, s registries.Store, rs ...registries.Registry) {
	t.Helper()
	for _, r := range rs {
		if err := s.Create(t.Context(), r, registries.Credential{Username: "u", Password: "p"}); err != nil {
			t.Fatalf("Create %s: %v", r.ID, err)
		}
	}
}

func createdIsReadBackWhole(t *testing.T, s registries.Store) {
	want := registry(1, "alice")
	want.Name = "näme \x01 \"quoted\" \U0001F600"
	c := registries.Credential{Username: "üser", Password: "p\x00ss\n%s"}
	if err := s.Create(t.Context(), want, c); err != nil {
		t.Fatal(err)
	}
	got, gotC, err := s.Get(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Get (-want +got):\n%s", diff)
	}
	if gotC != c { // not by cmp: it would print them
		t.Error("the credential came back changed")
	}
}

func takenIDIsRefused(t *testing.T, s registries.Store) {
	first := registry(1, "alice")
	create(t, s, first)
	second := registry(1, "bob")
	second.Name = "another"
	if err := s.Create(t.Context(), second, registries.Credential{Username: "x", Password: "y"}); !errors.Is(err, registries.ErrExists) {
		t.Errorf("second Create of %s = %v, want ErrExists", first.ID, err)
	}
	got, c, err := s.Get(t.Context(), first.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, got); diff != "" || c.Username != "u" {
		t.Errorf("the refused Create changed the first (-want +got):\n%s", diff)
	}
	wantList(t, s, "bob")
}

func unknownIsNotFound(t *testing.T, s registries.Store) {
	for _, id := range []string{"unknown0000000", "", "a/b", "registry000001\x00", "..", "%00"} {
		if _, _, err := s.Get(t.Context(), id); !errors.Is(err, registries.ErrNotFound) {
			t.Errorf("Get %q = %v, want ErrNotFound", id, err)
		}
		if err := s.Delete(t.Context(), id); !errors.Is(err, registries.ErrNotFound) {
			t.Errorf("Delete %q = %v, want ErrNotFound", id, err)
		}
	}
	wantList(t, s, "nobody")
	wantList(t, s, "")
}

func listIsByCreation(t *testing.T, s registries.Store) {
	a, b, c, d := registry(1, "alice"), registry(2, "alice"), registry(3, "alice"), registry(4, "alice")
	b.Created, c.Created = c.Created, b.Created // created in another order than their ids
	d.Created = a.Created                       // and two at the same instant
	create(t, s, d, b, c, a)
	wantList(t, s, "alice", a, d, c, b)
}

func listHasOneOwner(t *testing.T, s registries.Store) {
	a, b, c := registry(1, "al"), registry(2, "alice"), registry(3, "al")
	create(t, s, a, b, c)
	wantList(t, s, "al", a, c)
	wantList(t, s, "alice", b)
	wantList(t, s, "a")
}

func deletedIsGone(t *testing.T, s registries.Store) {
	a, b := registry(1, "alice"), registry(2, "alice")
	create(t, s, a, b)
	if err := s.Delete(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), a.ID); !errors.Is(err, registries.ErrNotFound) {
		t.Errorf("Get of a deleted registry = %v, want ErrNotFound", err)
	}
	if err := s.Delete(t.Context(), a.ID); !errors.Is(err, registries.ErrNotFound) {
		t.Errorf("second Delete = %v, want ErrNotFound", err)
	}
	wantList(t, s, "alice", b)
}

func returnedListIsTheCallers(t *testing.T, s registries.Store) {
	a, b := registry(1, "alice"), registry(2, "alice")
	create(t, s, a, b)
	list, err := s.List(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	clear(list)
	wantList(t, s, "alice", a, b)
}

func oneCreateWins(t *testing.T, s registries.Store) {
	r := registry(1, "alice")
	won := race(t, registries.ErrExists, func(ctx context.Context) error {
		return s.Create(ctx, r, registries.Credential{Username: "u", Password: "p"})
	})
	if won != 1 {
		t.Errorf("%d Creates of one id succeeded, want 1", won)
	}
	wantList(t, s, "alice", r)
}

func oneDeleteSucceeds(t *testing.T, s registries.Store) {
	r := registry(1, "alice")
	create(t, s, r)
	won := race(t, registries.ErrNotFound, func(ctx context.Context) error { return s.Delete(ctx, r.ID) })
	if won != 1 {
		t.Errorf("%d Deletes of one registry succeeded, want 1", won)
	}
	wantList(t, s, "alice")
}

// race calls f from many goroutines and counts its successes; others must be lost.
func race(t *testing.T, lost error, f func(context.Context) error) (won int) {
	t.Helper()
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = f(t.Context()) })
	}
	wg.Wait()
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, lost):
			t.Errorf("a call that lost = %v, want %v", err, lost)
		}
	}
	return won
}

func wantList(t *testing.T, s registries.Store, owner string, want ...registries.Registry) {
	t.Helper()
	got, err := s.List(t.Context(), owner)
	if err != nil {
		t.Fatalf("List %q: %v", owner, err)
	}
	if len(got) == 0 && len(want) == 0 {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List %q (-want +got):\n%s", owner, diff)
	}
}
