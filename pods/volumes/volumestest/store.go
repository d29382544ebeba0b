// Package volumestest is what every volumes.Store must do, as a table of rules.
package volumestest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/volumes"
)

// A Rule is one thing that a store must do.
type Rule struct {
	Name string
	Why  string // printed when it is broken
	Run  func(t *testing.T, s volumes.Store)
}

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) volumes.Store) {
	for _, r := range Rules() {
		suite.Run(t, r.Name, r.Why, func(t *testing.T) { r.Run(t, open(t)) })
	}
}

// Rules are the rules of a store.
func Rules() []Rule {
	return []Rule{
		{"CreatedIsReadBackWhole", "a volume is what it was made as", createdIsReadBack},
		{"TakenIDIsRefusedAndChangesNothing", "two users must never share a volume", takenIDIsRefused},
		{"UnknownIsNotFound", "callers branch on ErrNotFound", unknownIsNotFound},
		{"ListIsOfOneOwnerByCreationThenID", "a listing keeps its order and tells nothing of others", listIsInOrder},
		{"UpdateStoresWhatFnLeavesAndReturnsIt", "a volume that grew must stay so", updateStores},
		{"UpdateThatFailsChangesNothing", "a refused request changes nothing", failedUpdate},
		{"UpdatesAtOnceAllCount", "an update must not be lost to another", updatesAllCount},
		{"OneOfManyDeletesSucceeds", "a delete is reported once", oneDeleteSucceeds},
	}
}

var start = time.Date(2026, 1, 2, 3, 4, 5, int(678*time.Millisecond), time.UTC)

func volume(n int, owner string) volumes.Volume {
	return volumes.Volume{
		ID: fmt.Sprintf("volume%08d", n), Owner: owner, Name: fmt.Sprint("näme \"", n, "\""), Size: 10 + n,
		DataCenter: "US-TX-3", Type: catalog.Standard, Created: start.Add(time.Duration(n) * time.Second),
		Sizes: []volumes.Sized{{From: start, Size: 10 + n}},
	}
}

func create(t *testing.T, s volumes.Store, vs ...volumes.Volume) {
	t.Helper()
	for _, v := range vs {
		if err := s.Create(t.Context(), v); err != nil {
			t.Fatalf("Create %s: %v", v.ID, err)
		}
	}
}

func want(t *testing.T, s volumes.Store, want volumes.Volume) {
	t.Helper()
	got, err := s.Get(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Get (-want +got):\n%s", diff)
	}
}

func wantList(t *testing.T, s volumes.Store, owner string, want ...volumes.Volume) {
	t.Helper()
	got, err := s.List(t.Context(), owner)
	if err != nil {
		t.Fatalf("List %q: %v", owner, err)
	}
	if diff := cmp.Diff(append([]volumes.Volume{}, want...), append([]volumes.Volume{}, got...)); diff != "" {
		t.Errorf("List %q (-want +got):\n%s", owner, diff)
	}
}

func createdIsReadBack(t *testing.T, s volumes.Store) {
	v := volume(1, "alice")
	v.Type = catalog.HighPerformance
	create(t, s, v)
	want(t, s, v)
}

func takenIDIsRefused(t *testing.T, s volumes.Store) {
	first, second := volume(1, "alice"), volume(1, "bob")
	create(t, s, first)
	if err := s.Create(t.Context(), second); !errors.Is(err, volumes.ErrExists) {
		t.Errorf("second Create of %s = %v, want ErrExists", first.ID, err)
	}
	want(t, s, first)
	wantList(t, s, "bob")
}

func unknownIsNotFound(t *testing.T, s volumes.Store) {
	for _, id := range []string{"unknown0000000", "", "a/b", "volume00000001\x00"} {
		_, get := s.Get(t.Context(), id)
		_, update := s.Update(t.Context(), id, func(*volumes.Volume) error { return nil })
		for name, err := range map[string]error{"Get": get, "Update": update, "Delete": s.Delete(t.Context(), id)} {
			if !errors.Is(err, volumes.ErrNotFound) {
				t.Errorf("%s %q = %v, want ErrNotFound", name, id, err)
			}
		}
	}
	wantList(t, s, "nobody")
	wantList(t, s, "")
}

func listIsInOrder(t *testing.T, s volumes.Store) {
	a, b, c, other := volume(1, "al"), volume(2, "al"), volume(3, "al"), volume(4, "alice")
	b.Created = c.Created // two at the same instant
	create(t, s, c, other, b, a)
	wantList(t, s, "al", a, b, c)
	wantList(t, s, "alice", other)
	list, err := s.List(t.Context(), "al")
	if err != nil {
		t.Fatal(err)
	}
	clear(list) // it is the caller's
	wantList(t, s, "al", a, b, c)
}

func updateStores(t *testing.T, s volumes.Store) {
	v := volume(1, "alice")
	create(t, s, v)
	got, err := s.Update(t.Context(), v.ID, func(v *volumes.Volume) error {
		v.Name, v.Size = "new", 4096
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	v.Name, v.Size = "new", 4096
	if diff := cmp.Diff(v, got); diff != "" {
		t.Errorf("Update (-want +got):\n%s", diff)
	}
	want(t, s, v)
	wantList(t, s, "alice", v)
}

func failedUpdate(t *testing.T, s volumes.Store) {
	v, no := volume(1, "alice"), errors.New("no")
	create(t, s, v)
	_, err := s.Update(t.Context(), v.ID, func(v *volumes.Volume) error {
		v.Size = 1
		return no
	})
	if !errors.Is(err, no) {
		t.Errorf("Update = %v, want fn's error", err)
	}
	want(t, s, v)
}

func updatesAllCount(t *testing.T, s volumes.Store) {
	v := volume(1, "alice")
	create(t, s, v)
	atOnce(16, func(int) {
		if _, err := s.Update(context.WithoutCancel(t.Context()), v.ID, func(v *volumes.Volume) error { v.Size++; return nil }); err != nil {
			t.Error(err)
		}
	})
	v.Size += 16
	want(t, s, v)
}

func oneDeleteSucceeds(t *testing.T, s volumes.Store) {
	v, other := volume(1, "alice"), volume(2, "alice")
	create(t, s, v, other)
	errs := make([]error, 16)
	atOnce(len(errs), func(i int) { errs[i] = s.Delete(t.Context(), v.ID) })
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, volumes.ErrNotFound):
			t.Errorf("a Delete that lost = %v, want ErrNotFound", err)
		}
	}
	if won != 1 {
		t.Errorf("%d Deletes of one volume succeeded, want 1", won)
	}
	wantList(t, s, "alice", other)
}

func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
