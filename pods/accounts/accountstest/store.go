// Package accountstest is what every accounts.Store must do.
package accountstest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods/accounts"
)

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) accounts.Store) {
	suite.Test(t, slices.Concat(suite.RecordRules[accounts.Store](records), suite.UpdateRules[accounts.Store](records), allRules), open)
}

var records = suite.Records[accounts.Key]{
	New: func(id, user string, created time.Time) accounts.Key {
		return accounts.Key{
			ID: id, User: user, Scopes: []string{"*", "endpoint:ä\x01:run"}, Created: created, Expires: created.Add(time.Hour),
			Digest: accounts.DigestOf("s" + id), Old: accounts.DigestOf("o" + id), OldUntil: created.Add(time.Minute),
		}
	},
	Bare: func(id, user string, created time.Time) accounts.Key {
		return accounts.Key{ID: id, User: user, Created: created, Digest: accounts.DigestOf(id)}
	},
	ID:    func(k accounts.Key) string { return k.ID },
	Spoil: func(k *accounts.Key) { k.Scopes[0] = "x" },
	Change: func(k *accounts.Key) {
		k.Scopes, k.Expires, k.Digest = []string{"pods:read"}, time.Time{}, accounts.DigestOf("new")
	},
	Count: func(k *accounts.Key) { k.Scopes = append(k.Scopes, "endpoint:e:read") },

	ErrExists: accounts.ErrExists, ErrNotFound: accounts.ErrNotFound,
}

var allRules = []suite.Rule[accounts.Store]{
	{Name: "AllIsOfEveryUserByCreationThenID", Why: "a service that does not know a key refuses whoever has it", Run: allOfEveryUser},
	{Name: "AllFollowsUpdatesAndDeletes", Why: "a revoked key must not be accepted after a restart", Run: allFollows},
	{Name: "NothingOfAllIsShared", Why: "callers change what they get", Run: nothingOfAllIsShared},
	{Name: "VersionOfASharedStoreFollowsEachChange", Why: "a key that was revoked on one server must not be accepted on another", Run: versionFollows},
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

// key is a key made n seconds after start.
func key(id, user string, n int) accounts.Key {
	return records.New(id, user, start.Add(time.Duration(n)*time.Second))
}

func create(t testing.TB, s accounts.Store, keys ...accounts.Key) {
	t.Helper()
	for _, k := range keys {
		if err := s.Create(t.Context(), k); err != nil {
			t.Fatalf("Create %s: %v", k.ID, err)
		}
	}
}

func want(t testing.TB, s accounts.Store, keys ...accounts.Key) {
	t.Helper()
	got, err := s.All(t.Context())
	if err != nil {
		t.Fatalf("All: %v", err)
	}
	if diff := cmp.Diff(append([]accounts.Key{}, keys...), append([]accounts.Key{}, got...)); diff != "" {
		t.Errorf("All (-want +got):\n%s", diff)
	}
}

func allOfEveryUser(t testing.TB, s accounts.Store) {
	want(t, s)
	a, b, c, d := key("a", "bob", 1), key("b", "alice", 1), key("c", "alice", 0), key("d", "", 2)
	create(t, s, b, d, a, c)
	want(t, s, c, a, b, d)
}

func allFollows(t testing.TB, s accounts.Store) {
	a, b := key("a", "alice", 1), key("b", "bob", 2)
	create(t, s, a, b)
	if _, err := s.Update(t.Context(), "a", func(k *accounts.Key) error { records.Change(k); return nil }); err != nil {
		t.Fatal(err)
	}
	records.Change(&a)
	want(t, s, a, b)
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	want(t, s, b)
}

func nothingOfAllIsShared(t testing.TB, s accounts.Store) {
	create(t, s, key("a", "alice", 1))
	for range 2 {
		list, err := s.All(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("All = %v, %v", list, err)
		}
		records.Spoil(&list[0])
	}
	want(t, s, key("a", "alice", 1))
}

func versionFollows(t testing.TB, s accounts.Store) {
	shared, ok := s.(accounts.Shared)
	if !ok {
		return
	}
	seen := map[int64]string{}
	version := func(after string, changed bool) {
		t.Helper()
		v, err := shared.Version(t.Context())
		if err != nil {
			t.Fatalf("Version: %v", err)
		}
		if before, known := seen[v]; known == changed {
			t.Errorf("Version after %s = %d, which it was after %q", after, v, before)
		}
		seen[v] = after
	}
	version("nothing", true)
	create(t, s, key("a", "alice", 1))
	version("a creation", true)
	version("a creation", false)
	create(t, s, key("b", "alice", 1))
	version("another creation", true)
	if _, err := s.Update(t.Context(), "a", func(k *accounts.Key) error { records.Change(k); return nil }); err != nil {
		t.Fatal(err)
	}
	version("an update", true)
	if err := s.Delete(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	version("a deletion", true)
	create(t, s, key("b", "alice", 1))
	version("the creation of what was deleted", true)
}
