// Package templatestest is what every templates.Store must do.
package templatestest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/templates"
)

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) templates.Store) {
	suite.Test(t, slices.Concat(suite.RecordRules[templates.Store](records), suite.UpdateRules[templates.Store](records), publicRules), open)
}

var records = suite.Records[templates.Template]{
	New: template,
	Bare: func(id, owner string, created time.Time) templates.Template {
		return templates.Template{ID: id, Owner: owner, Name: "n", Created: created}
	},
	ID:     func(t templates.Template) string { return t.ID },
	Spoil:  spoil,
	Change: func(t *templates.Template) { t.Name, t.Env, t.Persistent = "new", map[string]string{"B": "2"}, nil },
	Count:  func(t *templates.Template) { t.Disk++ },

	ErrExists: templates.ErrExists, ErrNotFound: templates.ErrNotFound,
}

func template(id, owner string, created time.Time) templates.Template {
	return templates.Template{
		ID: id, Owner: owner, Name: "näme \"\x01\"", Category: templates.AMD, Created: created,
		Template: pods.Template{
			Image: "org/image:1", Args: "serve 'a b'", Disk: 7, Ports: []string{"80/http"}, Env: map[string]string{"A": "\x01"},
			Registry: "reg", Persistent: &pods.PersistentMount{Size: 20, Path: "/w"}, StartSSH: true, Serverless: true,
			AllowedCUDAVersions: []string{"12.8"},
			Extras:              pods.Extras{ShmSize: 64, Restart: pods.RestartAlways},
		},
	}
}

func spoil(t *templates.Template) {
	t.Ports[0], t.Env["A"], t.AllowedCUDAVersions[0] = "x", "x", "x"
	t.Persistent.Size = 0
}

var publicRules = []suite.Rule[templates.Store]{
	{Name: "PublicIsOfAllOwnersAndFollowsUpdates", Why: "everybody sees what is public, and nothing else", Run: publicFollows},
	{Name: "PublicIsByCreationThenID", Why: "a listing must not change its order from call to call", Run: publicIsInOrder},
	{Name: "NothingOfPublicIsShared", Why: "callers change what they get", Run: nothingOfPublicIsShared},
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

// public is a template that everybody sees, made n seconds after start.
func public(id, owner string, n int) templates.Template {
	v := template(id, owner, start.Add(time.Duration(n)*time.Second))
	v.Public = true
	return v
}

func create(t testing.TB, s templates.Store, list ...templates.Template) {
	t.Helper()
	for _, v := range list {
		if err := s.Create(t.Context(), v.Clone()); err != nil {
			t.Fatalf("Create %s: %v", v.ID, err)
		}
	}
}

func wantPublic(t testing.TB, s templates.Store, want ...templates.Template) {
	t.Helper()
	got, err := s.Public(t.Context())
	if err != nil {
		t.Fatalf("Public: %v", err)
	}
	if diff := cmp.Diff(append([]templates.Template{}, want...), append([]templates.Template{}, got...)); diff != "" {
		t.Errorf("Public (-want +got):\n%s", diff)
	}
}

func publicFollows(t testing.TB, s templates.Store) {
	wantPublic(t, s)
	a, b, c := public("a", "alice", 1), public("b", "bob", 2), public("c", "alice", 3)
	c.Public = false
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

func publicIsInOrder(t testing.TB, s templates.Store) {
	a, b, c, d := public("a", "alice", 2), public("b", "bob", 1), public("c", "alice", 1), public("d", "bob", 3)
	create(t, s, d, c, b, a)
	wantPublic(t, s, b, c, a, d)
}

func nothingOfPublicIsShared(t testing.TB, s templates.Store) {
	create(t, s, public("a", "alice", 1))
	for range 2 {
		list, err := s.Public(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			spoil(&list[i])
		}
		clear(list)
	}
	wantPublic(t, s, public("a", "alice", 1))
}
