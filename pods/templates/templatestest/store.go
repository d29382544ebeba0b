// Package templatestest is what every templates.Store must do, as a table of rules.
package templatestest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/templates"
)

// A Rule is one thing that a store must do.
type Rule struct {
	Name string
	Why  string // printed when it is broken
	Run  func(t *testing.T, s templates.Store)
}

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) templates.Store) {
	for _, r := range Rules() {
		suite.Run(t, r.Name, r.Why, func(t *testing.T) { r.Run(t, open(t)) })
	}
}

// Rules are the rules of a store.
func Rules() []Rule {
	return []Rule{
		{"CreatedIsReadBackWhole", "a pod that is made years later needs exactly what was stored", createdIsReadBack},
		{"TakenIDIsRefusedAndChangesNothing", "two users must never share a template", takenIDIsRefused},
		{"UnknownIsNotFound", "callers branch on ErrNotFound", unknownIsNotFound},
		{"ListIsOfOneOwnerByCreationThenID", "a listing keeps its order and tells nothing of others", listIsInOrder},
		{"PublicIsOfAllOwnersAndFollowsUpdates", "everybody sees what is public, and nothing else", publicFollows},
		{"UpdateStoresWhatFnLeavesAndReturnsIt", "a change must stay", updateStores},
		{"UpdateThatFailsChangesNothing", "a refused request changes nothing", failedUpdate},
		{"UpdatesAtOnceAllCount", "an update must not be lost to another", updatesAllCount},
		{"NothingIsSharedWithCallers", "callers change what they gave and what they get", nothingIsShared},
		{"OneOfManyDeletesSucceeds", "a delete is reported once", oneDeleteSucceeds},
	}
}

var start = time.Date(2026, 1, 2, 3, 4, 5, int(678*time.Millisecond), time.UTC)

func template(n int, owner string) templates.Template {
	return templates.Template{
		ID: fmt.Sprintf("template%06d", n), Owner: owner, Name: fmt.Sprint("näme \"", n, "\""), Category: templates.AMD,
		Created: start.Add(time.Duration(n) * time.Second),
		Template: pods.Template{
			Image: "org/image:1", Args: "serve 'a b'", Disk: n, Ports: []string{"80/http"}, Env: map[string]string{"A": "\x01"},
			Registry: "reg", Persistent: &pods.PersistentMount{Size: 20, Path: "/w"}, StartSSH: true, Serverless: true,
			AllowedCUDAVersions: []string{"12.8"},
		},
	}
}

func create(t *testing.T, s templates.Store, ts ...templates.Template) {
	t.Helper()
	for _, v := range ts {
		if err := s.Create(t.Context(), v); err != nil {
			t.Fatalf("Create %s: %v", v.ID, err)
		}
	}
}

func want(t *testing.T, s templates.Store, want templates.Template) {
	t.Helper()
	got, err := s.Get(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Get (-want +got):\n%s", diff)
	}
}

func wantList(t *testing.T, s templates.Store, owner string, want ...templates.Template) {
	t.Helper()
	got, err := s.List(t.Context(), owner)
	if err != nil {
		t.Fatalf("List %q: %v", owner, err)
	}
	if diff := cmp.Diff(append([]templates.Template{}, want...), append([]templates.Template{}, got...)); diff != "" {
		t.Errorf("List %q (-want +got):\n%s", owner, diff)
	}
}

func wantPublic(t *testing.T, s templates.Store, want ...templates.Template) {
	t.Helper()
	got, err := s.Public(t.Context())
	if err != nil {
		t.Fatalf("Public: %v", err)
	}
	if diff := cmp.Diff(append([]templates.Template{}, want...), append([]templates.Template{}, got...)); diff != "" {
		t.Errorf("Public (-want +got):\n%s", diff)
	}
}

func createdIsReadBack(t *testing.T, s templates.Store) {
	v, bare := template(1, "alice"), templates.Template{ID: "bare", Owner: "alice", Name: "n", Created: start}
	create(t, s, v, bare)
	want(t, s, v)
	want(t, s, bare)
}

func takenIDIsRefused(t *testing.T, s templates.Store) {
	first, second := template(1, "alice"), template(1, "bob")
	create(t, s, first)
	if err := s.Create(t.Context(), second); !errors.Is(err, templates.ErrExists) {
		t.Errorf("second Create of %s = %v, want ErrExists", first.ID, err)
	}
	want(t, s, first)
	wantList(t, s, "bob")
}

func unknownIsNotFound(t *testing.T, s templates.Store) {
	for _, id := range []string{"unknown0000000", "", "a/b", "template000001\x00"} {
		_, get := s.Get(t.Context(), id)
		_, update := s.Update(t.Context(), id, func(*templates.Template) error { return nil })
		for name, err := range map[string]error{"Get": get, "Update": update, "Delete": s.Delete(t.Context(), id)} {
			if !errors.Is(err, templates.ErrNotFound) {
				t.Errorf("%s %q = %v, want ErrNotFound", name, id, err)
			}
		}
	}
	wantList(t, s, "nobody")
	wantPublic(t, s)
}

func listIsInOrder(t *testing.T, s templates.Store) {
	a, b, c, other := template(1, "al"), template(2, "al"), template(3, "al"), template(4, "alice")
	b.Created = c.Created // two at the same instant
	create(t, s, c, other, b, a)
	wantList(t, s, "al", a, b, c)
	wantList(t, s, "alice", other)
	wantList(t, s, "")
}

func publicFollows(t *testing.T, s templates.Store) {
	a, b, c := template(1, "alice"), template(2, "bob"), template(3, "alice")
	a.Public, b.Public = true, true
	create(t, s, c, b, a)
	wantPublic(t, s, a, b)
	for _, v := range []*templates.Template{&a, &c} {
		v.Public = !v.Public
		if _, err := s.Update(t.Context(), v.ID, func(x *templates.Template) error { x.Public = v.Public; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	wantPublic(t, s, b, c)
	if err := s.Delete(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	wantPublic(t, s, c)
}

func updateStores(t *testing.T, s templates.Store) {
	v := template(1, "alice")
	create(t, s, v)
	change := func(v *templates.Template) error {
		v.Name, v.Env, v.Persistent = "new", map[string]string{"B": "2"}, nil
		return nil
	}
	got, err := s.Update(t.Context(), v.ID, change)
	if err != nil {
		t.Fatal(err)
	}
	_ = change(&v)
	if diff := cmp.Diff(v, got); diff != "" {
		t.Errorf("Update (-want +got):\n%s", diff)
	}
	want(t, s, v)
	wantList(t, s, "alice", v)
}

func failedUpdate(t *testing.T, s templates.Store) {
	v, no := template(1, "alice"), errors.New("no")
	create(t, s, v)
	_, err := s.Update(t.Context(), v.ID, func(v *templates.Template) error {
		v.Name, v.Env["A"] = "x", "x"
		return no
	})
	if !errors.Is(err, no) {
		t.Errorf("Update = %v, want fn's error", err)
	}
	want(t, s, v)
}

func updatesAllCount(t *testing.T, s templates.Store) {
	v := template(1, "alice")
	create(t, s, v)
	atOnce(16, func(int) {
		_, err := s.Update(context.WithoutCancel(t.Context()), v.ID, func(v *templates.Template) error { v.Disk++; return nil })
		if err != nil {
			t.Error(err)
		}
	})
	v.Disk += 16
	want(t, s, v)
}

func nothingIsShared(t *testing.T, s templates.Store) {
	v := template(1, "alice")
	v.Public = true
	given := v.Clone()
	create(t, s, given)
	spoil := func(t templates.Template) {
		t.Ports[0], t.Env["A"], t.AllowedCUDAVersions[0], t.Persistent.Size = "x", "x", "x", 0
	}
	spoil(given)
	got, err := s.Get(t.Context(), v.ID)
	if err != nil {
		t.Fatal(err)
	}
	spoil(got)
	list, err := s.List(t.Context(), "alice")
	if err != nil || len(list) != 1 {
		t.Fatalf("List = %v, %v; want one", list, err)
	}
	spoil(list[0])
	public, err := s.Public(t.Context())
	if err != nil || len(public) != 1 {
		t.Fatalf("Public = %v, %v; want one", public, err)
	}
	spoil(public[0])
	updated, err := s.Update(t.Context(), v.ID, func(*templates.Template) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	spoil(updated)
	want(t, s, v)
}

func oneDeleteSucceeds(t *testing.T, s templates.Store) {
	v, other := template(1, "alice"), template(2, "alice")
	create(t, s, v, other)
	errs := make([]error, 16)
	atOnce(len(errs), func(i int) { errs[i] = s.Delete(t.Context(), v.ID) })
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, templates.ErrNotFound):
			t.Errorf("a Delete that lost = %v, want ErrNotFound", err)
		}
	}
	if won != 1 {
		t.Errorf("%d Deletes of one template succeeded, want 1", won)
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
