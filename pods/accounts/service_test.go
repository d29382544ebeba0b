package accounts_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/problem"
)

func caller(user string, scopes ...string) accounts.Caller {
	c := accounts.Caller{User: user}
	for _, s := range scopes {
		p, _ := accounts.ParseScope(s)
		c.Scopes = append(c.Scopes, p)
	}
	return c
}

var (
	root  = caller("root", "*", "operator")
	alice = caller("alice", "*")
	bob   = caller("bob", "*")
)

// A bench is a service with a shorter way to say things.
type bench struct {
	*testing.T
	*accounts.Service
}

func newBench(t *testing.T, o *accounts.Options) bench {
	return bench{t, accounts.New(memory.NewAccounts(), o)}
}

func (b bench) make(by accounts.Caller, r accounts.CreateRequest) (accounts.Key, string) {
	b.Helper()
	k, secret, err := b.Create(b.Context(), by, r)
	if err != nil {
		b.Fatalf("Create %+v: %v", r, err)
	}
	return k, string(secret)
}

func (b bench) accepts(secret string, want bool) {
	b.Helper()
	g, err := b.Authenticate(b.Context(), secret)
	if (err == nil) != want || err != nil && !errors.Is(err, accounts.ErrUnknown) {
		b.Errorf("Authenticate = %+v, %v, want it accepted: %v", g, err, want)
	}
}

func wantKind(t *testing.T, what string, err error, want problem.Kind) {
	t.Helper()
	if err == nil || problem.KindOf(err) != want {
		t.Errorf("%s = %v, want a %d", what, err, want.Status())
	}
}

func scopes(s ...string) accounts.CreateRequest { return accounts.CreateRequest{Scopes: s} }

func TestASecretStandsForItsUserAndScopesFromTheAnswerOfCreateUntilThatOfDelete(t *testing.T) {
	b := newBench(t, nil)
	k, secret := b.make(alice, scopes("pods:read", "endpoint:e:run"))
	if !strings.HasPrefix(secret, "py_") || len(secret) != 43 {
		t.Errorf("the secret has %d characters, want py_ and 40 hexadecimal digits", len(secret))
	}
	g, err := b.Authenticate(t.Context(), secret)
	if err != nil || g.ID != k.ID || g.User != "alice" || len(g.Scopes) != 2 || g.Scopes[1].Endpoint != "e" {
		t.Errorf("Authenticate = %+v, %v", g, err)
	}
	b.accepts("", false)
	b.accepts(secret[1:], false)
	b.accepts(k.Digest.String(), false)
	if err := b.Delete(t.Context(), alice, k.ID); err != nil {
		t.Fatal(err)
	}
	b.accepts(secret, false)
	_, err = b.Get(t.Context(), alice, k.ID)
	wantKind(t, "Get of a deleted key", err, problem.NotFound)
}

func TestAServiceStartsFromItsStoreAndTheStoreNeverHasASecret(t *testing.T) {
	store := memory.NewAccounts()
	b := bench{t, accounts.New(store, nil)}
	k, secret := b.make(alice, scopes("*"))
	bench{t, accounts.New(store, nil)}.accepts(secret, true)
	list, err := store.All(t.Context())
	text, _ := json.Marshal(list)
	if err != nil || strings.Contains(string(text), secret[3:]) || !strings.Contains(string(text), `"`+fmt.Sprintf("%x", k.Digest[:])+`"`) {
		t.Errorf("the store has %s, %v: want the digest in it and not the secret", text, err)
	}
	var back []accounts.Key
	if err := json.Unmarshal(text, &back); err != nil || back[0].Digest != k.Digest {
		t.Errorf("read back: %+v, %v", back, err)
	}
}

func TestASecretPrintsAsRedacted(t *testing.T) {
	s := accounts.Secret("hush")
	text, _ := json.Marshal(s)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("made", "secret", s)
	for _, out := range []string{fmt.Sprint(s), fmt.Sprintf("%q %d %x %#v", s, s, s, s), string(text), log.String()} {
		if strings.Contains(out, "hush") || strings.Contains(out, "68757368") || !strings.Contains(out, "[redacted]") {
			t.Errorf("printed as %s", out)
		}
	}
}

func TestAKeyEndsAtTheInstantOfItsExpiryAndBeginsAgainWithALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		r := scopes("*")
		r.Expires = time.Now().Add(time.Hour)
		k, secret := b.make(alice, r)
		time.Sleep(time.Hour - 1)
		b.accepts(secret, true)
		time.Sleep(time.Nanosecond)
		b.accepts(secret, false)
		if _, err := b.Update(t.Context(), alice, k.ID, accounts.UpdateRequest{Expires: &time.Time{}}); err != nil {
			t.Fatal(err)
		}
		b.accepts(secret, true)
	})
}

// A key that ends at noon makes, changes and rotates no key that ends after noon. Without a rule for
// each of these ways, its holder gives "*" to an endless key of the user, rotates it, and goes on.
func TestAKeyThatEndsHasNoWayToOneThatEndsLater(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	noon := now.Add(12 * time.Hour)
	star, more := []string{"*"}, []string{"pods:read", "registries:read"}
	ways := map[string]func(b bench, by accounts.Caller, k accounts.Key, end time.Time) error{
		"create": func(b bench, by accounts.Caller, k accounts.Key, end time.Time) error {
			_, _, err := b.Create(b.Context(), by, accounts.CreateRequest{User: k.User, Scopes: more, Expires: end})
			return err
		},
		"more scopes": func(b bench, by accounts.Caller, k accounts.Key, _ time.Time) error {
			_, err := b.Update(b.Context(), by, k.ID, accounts.UpdateRequest{Scopes: star})
			return err
		},
		"fewer scopes": func(b bench, by accounts.Caller, k accounts.Key, _ time.Time) error {
			_, err := b.Update(b.Context(), by, k.ID, accounts.UpdateRequest{Scopes: more[:1]})
			return err
		},
		"an end": func(b bench, by accounts.Caller, k accounts.Key, end time.Time) error {
			_, err := b.Update(b.Context(), by, k.ID, accounts.UpdateRequest{Expires: &end})
			return err
		},
		"nothing": func(b bench, by accounts.Caller, k accounts.Key, _ time.Time) error {
			_, err := b.Update(b.Context(), by, k.ID, accounts.UpdateRequest{})
			return err
		},
		"rotate": func(b bench, by accounts.Caller, k accounts.Key, _ time.Time) error {
			_, _, err := b.Rotate(b.Context(), by, k.ID, accounts.RotateRequest{})
			return err
		},
		"rotate with overlap": func(b bench, by accounts.Caller, k accounts.Key, _ time.Time) error {
			_, _, err := b.Rotate(b.Context(), by, k.ID, accounts.RotateRequest{Overlap: time.Hour})
			return err
		},
	}
	ends := func(c accounts.Caller, at time.Time) accounts.Caller { c.Expires = at; return c }
	for name, way := range ways {
		for _, row := range []struct {
			who  string
			by   accounts.Caller
			of   string
			end  time.Time
			want bool
		}{
			{"a key until noon, one that ends before", ends(alice, noon), "alice", noon.Add(-time.Hour), true},
			{"a key until noon, one that ends with it", ends(alice, noon), "alice", noon, true},
			{"a key until noon, one that ends a moment later", ends(alice, noon), "alice", noon.Add(1), false},
			{"a key until noon, an endless one", ends(alice, noon), "alice", time.Time{}, false},
			{"an endless key, an endless one", alice, "alice", time.Time{}, true},
			{"an operator until noon, one of a user until noon", ends(root, noon), "alice", noon, true},
			{"an operator until noon, an endless one of a user", ends(root, noon), "alice", time.Time{}, false},
			{"an operator until noon, an endless one of its own", ends(root, noon), "root", time.Time{}, false},
			{"an endless operator, an endless one of a user", root, "alice", time.Time{}, true},
		} {
			b := newBench(t, &accounts.Options{Clock: at(now)})
			k, _ := b.make(root, accounts.CreateRequest{User: row.of, Scopes: more, Expires: row.end})
			err := way(b, row.by, k, row.end)
			if (err == nil) != row.want || err != nil && problem.KindOf(err) != problem.Forbidden {
				t.Errorf("%s: %s = %v, want allowed: %v", row.who, name, err, row.want)
			}
			if after, err := b.Get(t.Context(), root, k.ID); !row.want && (err != nil || after.Digest != k.Digest || !after.Expires.Equal(k.Expires) || len(after.Scopes) != 2) {
				t.Errorf("%s: after %s was refused the key is %+v, %v", row.who, name, after, err)
			}
			if name == "an end" && !row.want { // of a key that ends in time
				soon, _ := b.make(root, accounts.CreateRequest{User: row.of, Scopes: more, Expires: now.Add(time.Hour)})
				wantKind(t, row.who+": a later end", way(b, row.by, soon, row.end), problem.Forbidden)
			}
		}
	}
}

// Whoever has a key that ends may revoke a longer one: nobody gains time by that.
func TestAKeyThatEndsRevokesAnEndlessOne(t *testing.T) {
	b := newBench(t, nil)
	k, secret := b.make(alice, scopes("*"))
	brief := alice
	brief.Expires = time.Now().Add(time.Hour)
	if err := b.Delete(t.Context(), brief, k.ID); err != nil {
		t.Errorf("Delete = %v", err)
	}
	b.accepts(secret, false)
}

// at is a clock that stands still.
type at time.Time

func (a at) Now() time.Time { return time.Time(a) }

func TestARotatedSecretIsAcceptedForTheOverlapAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		k, first := b.make(alice, scopes("*"))
		rotate := func(overlap time.Duration) string {
			t.Helper()
			_, secret, err := b.Rotate(t.Context(), alice, k.ID, accounts.RotateRequest{Overlap: overlap})
			if err != nil {
				t.Fatal(err)
			}
			return string(secret)
		}
		second := rotate(time.Minute)
		b.accepts(first, true)
		b.accepts(second, true)
		time.Sleep(time.Minute - 1)
		b.accepts(first, true)
		time.Sleep(time.Nanosecond)
		b.accepts(first, false)
		third := rotate(time.Minute)
		fourth := rotate(time.Minute)
		b.accepts(second, false) // only the last one overlaps
		b.accepts(third, true)
		fifth := rotate(0)
		for secret, want := range map[string]bool{first: false, second: false, third: false, fourth: false, fifth: true} {
			b.accepts(secret, want)
		}
	})
}

func TestAKeyGivesAtMostItsOwnScopes(t *testing.T) {
	narrow := caller("alice", "pods:write", "endpoint:e1:run")
	for _, row := range []struct {
		by    accounts.Caller
		scope string
		may   bool
	}{
		{alice, "*", true}, {alice, "pods:write", true}, {alice, "endpoint:*:run", true},
		{alice, "operator", false}, {alice, "endpoint:e1:work", false}, {alice, "endpoint:*:work", false},
		{narrow, "pods:read", true}, {narrow, "endpoint:e1:read", true}, {narrow, "endpoint:e2:run", false},
		{narrow, "endpoint:*:run", false}, {narrow, "*", false}, {narrow, "registries:read", false}, {narrow, "operator", false},
		{root, "operator", true}, {root, "endpoint:e1:work", true}, {root, "*", true},
		{caller("root", "operator"), "*", true},
	} {
		b := newBench(t, nil)
		_, _, err := b.Create(t.Context(), row.by, scopes(row.scope))
		if (err == nil) != row.may || err != nil && problem.KindOf(err) != problem.Forbidden {
			t.Errorf("a key with %v gives %s: %v, want allowed: %v", row.by.Scopes, row.scope, err, row.may)
		}
		k, _ := b.make(root, accounts.CreateRequest{User: row.by.User, Scopes: []string{"endpoint:e1:read"}})
		_, err = b.Update(t.Context(), row.by, k.ID, accounts.UpdateRequest{Scopes: []string{row.scope}})
		if (err == nil) != row.may {
			t.Errorf("a key with %v changes a key to %s: %v, want allowed: %v", row.by.Scopes, row.scope, err, row.may)
		}
	}
}

func TestAKeyWithMoreScopesIsManagedByNobodyWithFewer(t *testing.T) {
	b := newBench(t, nil)
	for _, scope := range []string{"operator", "endpoint:e:work"} {
		k, secret := b.make(root, accounts.CreateRequest{User: "alice", Scopes: []string{"*", scope}})
		_, _, err := b.Rotate(t.Context(), alice, k.ID, accounts.RotateRequest{})
		wantKind(t, "Rotate", err, problem.Forbidden)
		_, err = b.Update(t.Context(), alice, k.ID, accounts.UpdateRequest{Scopes: []string{"*"}})
		wantKind(t, "Update", err, problem.Forbidden)
		wantKind(t, "Delete", b.Delete(t.Context(), alice, k.ID), problem.Forbidden)
		b.accepts(secret, true)
		if _, err := b.Get(t.Context(), alice, k.ID); err != nil {
			t.Errorf("Get of a key of the own user = %v", err)
		}
	}
}

func TestKeysOfOthersAreNotThereButForOperators(t *testing.T) {
	b := newBench(t, nil)
	k, secret := b.make(alice, scopes("*"))
	_, err := b.Get(t.Context(), bob, k.ID)
	wantKind(t, "Get", err, problem.NotFound)
	_, err = b.Update(t.Context(), bob, k.ID, accounts.UpdateRequest{Scopes: []string{"pods:read"}})
	wantKind(t, "Update", err, problem.NotFound)
	_, _, err = b.Rotate(t.Context(), bob, k.ID, accounts.RotateRequest{})
	wantKind(t, "Rotate", err, problem.NotFound)
	wantKind(t, "Delete", b.Delete(t.Context(), bob, k.ID), problem.NotFound)
	_, _, err = b.Create(t.Context(), bob, accounts.CreateRequest{User: "alice", Scopes: []string{"*"}})
	wantKind(t, "Create for another user", err, problem.Forbidden)
	if list, err := b.List(t.Context(), "bob"); err != nil || len(list) != 0 {
		t.Errorf("List of bob = %v, %v", list, err)
	}
	b.accepts(secret, true)
	if _, err := b.Get(t.Context(), root, k.ID); err != nil {
		t.Errorf("Get by an operator = %v", err)
	}
	if err := b.Delete(t.Context(), root, k.ID); err != nil {
		t.Errorf("Delete by an operator = %v", err)
	}
}

func TestAllFaultsOfARequestAreNamedTogetherByField(t *testing.T) {
	b := newBench(t, nil)
	for want, r := range map[string]accounts.CreateRequest{
		"/scopes: is required":               {},
		"/scopes: must have 1 to 100 scopes": {Scopes: []string{}},
		"/user: must be the name of a user, with at most 255 bytes and without control characters":                                    {User: "*", Scopes: []string{"*"}},
		"/user: must be the name of a user, with at most 255 bytes and without control characters|/scopes: must have 1 to 100 scopes": {User: strings.Repeat("x", 256), Scopes: []string{}},
		"/scopes/1: is there twice|/expires: must be in the future":                                                                   {Scopes: []string{"*", "*"}, Expires: time.Now().Add(-time.Second)},
		`/user: must be the name of a user, with at most 255 bytes and without control characters|/scopes/0: unknown scope "pods:run": must be *, operator, read or write of pods, registries, secrets or endpoints (pods:read), or run, read or work of an endpoint (endpoint:ID:run)`: {User: "a\nb", Scopes: []string{"pods:run"}},
	} {
		_, _, err := b.Create(t.Context(), alice, r)
		if got := strings.Join(problem.Of(err).Errors, "|"); got != want || problem.KindOf(err) != problem.Invalid {
			t.Errorf("Create %+v = %s, want %s", r, got, want)
		}
	}
	k, _ := b.make(alice, scopes("*"))
	for _, overlap := range []time.Duration{-1, accounts.MaxOverlap + 1} {
		_, _, err := b.Rotate(t.Context(), alice, k.ID, accounts.RotateRequest{Overlap: overlap})
		wantKind(t, "Rotate", err, problem.Invalid)
	}
	if list, err := b.List(t.Context(), "alice"); err != nil || len(list) != 1 {
		t.Errorf("after refusals alice has %v, %v, want one key", list, err)
	}
}

func TestAKeyOfATrustedUserThatMakesPodsMustBeAnOperators(t *testing.T) {
	trusted := "root"
	b := newBench(t, &accounts.Options{Trusted: func(user string) bool { return user == trusted }})
	for _, tt := range []struct {
		user   string
		scopes []string
		taken  bool
	}{
		{"root", []string{"*"}, false},
		{"root", []string{"pods:write"}, false},
		{"root", []string{"pods:read", "endpoints:write"}, false},
		{"root", []string{"*", "operator"}, true},
		{"root", []string{"pods:read", "endpoint:*:run"}, true},
		{"alice", []string{"*"}, true},
	} {
		_, _, err := b.Create(t.Context(), root, accounts.CreateRequest{User: tt.user, Scopes: tt.scopes})
		if tt.taken == (err != nil) || err != nil && problem.KindOf(err) != problem.Conflict {
			t.Errorf("a key of %s with %q: %v, want it taken: %v", tt.user, tt.scopes, err, tt.taken)
		}
	}
	k, _ := b.make(root, scopes("pods:read"))
	_, err := b.Update(t.Context(), root, k.ID, accounts.UpdateRequest{Scopes: []string{"pods:write"}})
	wantKind(t, "more scopes", err, problem.Conflict)
	older, _ := b.make(root, accounts.CreateRequest{User: "alice", Scopes: []string{"*"}})
	if b.HandsOnTrust(older) {
		t.Error("a key of a user whom nobody trusts hands on trust")
	}
	if trusted = "alice"; !b.HandsOnTrust(older) {
		t.Error("a key that is older than the trust in its user is not named")
	}
}

func TestAnEndWhoseYearHasNoFourDigitsInUTCIsRefused(t *testing.T) {
	b := newBench(t, nil)
	end := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -12*3600))
	if _, _, err := b.Create(t.Context(), alice, accounts.CreateRequest{Scopes: []string{"*"}, Expires: end}); problem.KindOf(err) != problem.Invalid {
		t.Errorf("Create until %v = %v, want that it is refused", end, err)
	}
}

func TestAUserHasABoundedNumberOfKeys(t *testing.T) {
	b := newBench(t, nil)
	var last accounts.Key
	for range accounts.MaxKeys {
		last, _ = b.make(alice, scopes("pods:read"))
	}
	_, _, err := b.Create(t.Context(), alice, scopes("pods:read"))
	wantKind(t, "one key more", err, problem.TooManyRequests)
	b.make(bob, scopes("pods:read"))
	if err := b.Delete(t.Context(), alice, last.ID); err != nil {
		t.Fatal(err)
	}
	b.make(alice, scopes("pods:read"))
}

type fixed struct{ until time.Time }

func (f fixed) HasOperator(at time.Time) bool { return at.Before(f.until) }

func TestTheLastOperatorsKeyStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon := time.Now().Add(time.Hour)
		for name, change := range map[string]func(b bench, id string) error{
			"deleted": func(b bench, id string) error { return b.Delete(t.Context(), root, id) },
			"without the scope": func(b bench, id string) error {
				return second(b.Update(t.Context(), root, id, accounts.UpdateRequest{Scopes: []string{"*"}}))
			},
			"with an end": func(b bench, id string) error {
				return second(b.Update(t.Context(), root, id, accounts.UpdateRequest{Expires: &soon}))
			},
		} {
			b := newBench(t, nil)
			k, secret := b.make(root, scopes("operator"))
			if err := change(b, k.ID); !errors.Is(err, accounts.ErrLastOperator) {
				t.Errorf("the last operator's key %s: %v, want ErrLastOperator", name, err)
			}
			b.accepts(secret, true)
			b.make(root, accounts.CreateRequest{Scopes: []string{"operator"}, Expires: soon})
			if err := change(b, k.ID); !errors.Is(err, accounts.ErrLastOperator) {
				t.Errorf("the last lasting operator's key %s: %v, want ErrLastOperator", name, err)
			}
			b.make(root, scopes("*", "operator"))
			if err := change(b, k.ID); err != nil {
				t.Errorf("one of two operator's keys %s: %v", name, err)
			}
			configured := newBench(t, &accounts.Options{Fixed: fixed{time.Now().AddDate(5000, 0, 0)}})
			k, _ = configured.make(root, scopes("operator"))
			if err := change(configured, k.ID); err != nil {
				t.Errorf("an operator's key beside one of the configuration %s: %v", name, err)
			}
			ending := newBench(t, &accounts.Options{Fixed: fixed{soon}})
			k, _ = ending.make(root, scopes("operator"))
			if err := change(ending, k.ID); !errors.Is(err, accounts.ErrLastOperator) {
				t.Errorf("an operator's key beside one of the configuration that ends %s: %v, want ErrLastOperator", name, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestOfTwoLastOperatorsKeysDeletedAtOnceOneStays(t *testing.T) {
	for range 20 {
		b := newBench(t, nil)
		a, _ := b.make(root, scopes("operator"))
		z, _ := b.make(root, scopes("operator"))
		var kept atomic.Int32
		done := make(chan error, 2)
		for _, id := range []string{a.ID, z.ID} {
			go func() { done <- b.Delete(t.Context(), root, id) }()
		}
		for range 2 {
			if err := <-done; errors.Is(err, accounts.ErrLastOperator) {
				kept.Add(1)
			}
		}
		if kept.Load() != 1 {
			t.Fatalf("%d keys are left, want 1", kept.Load())
		}
	}
}

// An error of a store may mean that it has done the change, so what counts is what it has.
func TestAfterAnErrorOfTheStoreWhatItHasCounts(t *testing.T) {
	for kind, gone := range map[fault.Kind]bool{fault.Before: false, fault.After: true} {
		plan := fault.NewPlan(1)
		b := bench{t, accounts.New(fault.Accounts(memory.NewAccounts(), plan), nil)}
		k, secret := b.make(alice, scopes("*"))
		plan.Add(fault.Rule{Name: "delete", Call: "accounts.Delete", Kind: kind, Times: 1})
		if err := b.Delete(t.Context(), alice, k.ID); problem.KindOf(err) != problem.Unavailable {
			t.Fatalf("Delete = %v, want the fault", err)
		}
		b.accepts(secret, !gone)
	}
}

func TestKeysThatCannotBeReadAreNoRefusal(t *testing.T) {
	plan := fault.NewPlan(1, fault.Rule{Name: "all", Call: "accounts.All", Kind: fault.Before})
	s := accounts.New(fault.Accounts(memory.NewAccounts(), plan), nil)
	_, err := s.Authenticate(t.Context(), "x")
	wantKind(t, "Authenticate", err, problem.Unavailable)
}

func TestAKeyOfAnotherServiceIsKnownAtOnceAndRevokedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewAccounts()
		one, other := bench{t, accounts.New(store, nil)}, bench{t, accounts.New(store, nil)}
		first, firstSecret := one.make(alice, scopes("*"))
		other.accepts(firstSecret, true)
		second, secret := one.make(alice, scopes("*"))
		other.accepts(secret, true)
		if err := one.Delete(t.Context(), alice, second.ID); err != nil {
			t.Fatal(err)
		}
		one.accepts(secret, false)
		time.Sleep(time.Second)
		other.accepts(secret, false)
		_, rotated, err := other.Rotate(t.Context(), alice, first.ID, accounts.RotateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		one.accepts(string(rotated), true)
		one.accepts(firstSecret, false)
	})
}

func TestTheLastOperatorsKeyOfAllServicesStays(t *testing.T) {
	store := memory.NewAccounts()
	one, other := bench{t, accounts.New(store, nil)}, bench{t, accounts.New(store, nil)}
	first, _ := one.make(root, scopes("operator"))
	second, _ := other.make(root, scopes("operator"))
	if err := one.Delete(t.Context(), root, second.ID); err != nil {
		t.Fatal(err)
	}
	if err := other.Delete(t.Context(), root, first.ID); !errors.Is(err, accounts.ErrLastOperator) {
		t.Errorf("Delete = %v, want ErrLastOperator", err)
	}
}

func TestAuthenticateDoesNotAllocate(t *testing.T) {
	b := newBench(t, nil)
	_, secret := b.make(alice, scopes("*"))
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = b.Authenticate(ctx, secret) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// The names of users look different from one another, can be a part of a path, and a refusal says what
// is wrong with one.
func TestNamesOfUsersAreWhatTheySeem(t *testing.T) {
	for name, want := range map[string]string{
		"alice": "", "Alice B.": "", "alice@example.com": "", "ci-1_x": "", "größe": "", "Ελένη": "", "алиса": "", "山田太郎": "", "ユーザー": "", "علي": "", "हिन्दी": "", "o'neill+x": "", "a b c": "", "...": "", "a..b": "",

		"alice ": "blank", " alice": "blank", "a  b": "blank",
		".": "path", "..": "path", "a/b": "path", "/": "path",
		"al\u200bice": "U+200B", "\u202eecila": "U+202E", "\ufeffalice": "U+FEFF", "a\u00a0b": "U+00A0", "a\u2003b": "U+2003", "a\u2028b": "U+2028", "a\u00adb": "U+00AD", "a\u2066b": "U+2066",
		"a\u3164": "U+3164", "a\u115f": "U+115F", "a\u2800b": "U+2800", "a\ufe0f": "U+FE0F", "a\U000e0101": "U+E0101", "a\u034fb": "U+034F", "a\ue000": "U+E000", "a\u0378": "U+0378",
		"\u0301alice": "mark",
		"\u0430lice":  "mix Latin and Cyrillic", "alic\u0435": "mix Latin and Cyrillic", "\u0391lice": "mix Latin and Greek", "\u0430\u03bf": "mix Cyrillic and Greek",
		"Gro\u0308\u00dfe": "NFKC", "\uff41lice": "NFKC", "\U0001d41alice": "NFKC", "\ufb01": "NFKC",
		"*": "name of a user", "a\nb": "control characters", "\xff": "name of a user", strings.Repeat("x", 256): "255 bytes",
	} {
		b := newBench(t, nil)
		_, _, err := b.Create(t.Context(), root, accounts.CreateRequest{User: name, Scopes: []string{"pods:read"}})
		if want == "" {
			if err != nil {
				t.Errorf("the user %+q is refused: %v", name, err)
			}
			continue
		}
		faults := problem.Of(err).Errors
		if problem.KindOf(err) != problem.Invalid || len(faults) != 1 || !strings.HasPrefix(faults[0], "/user: ") || !strings.Contains(faults[0], want) {
			t.Errorf("the user %+q: %v %q, want a 422 about %s", name, err, faults, want)
		}
		if strings.ContainsFunc(strings.Join(faults, ""), func(r rune) bool { return r > '~' }) {
			t.Errorf("the refusal of %+q has the character that cannot be seen: %+q", name, faults)
		}
	}
}

// A user whose name is older than the rules for names keeps its keys, and gets others.
func TestAUserWithAnOldNameGoesOn(t *testing.T) {
	store, old := memory.NewAccounts(), "alice \u200b"
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	check(store.Create(t.Context(), accounts.Key{ID: "old", User: old, Scopes: []string{"*"}, Digest: accounts.DigestOf("secret")}))
	b := bench{t, accounts.New(store, nil)}
	b.accepts("secret", true)
	b.make(root, accounts.CreateRequest{User: old, Scopes: []string{"pods:read"}})
	b.make(caller(old, "*"), scopes("pods:read"))
	_, err := b.Update(t.Context(), root, "old", accounts.UpdateRequest{Scopes: []string{"pods:read"}})
	check(err)
	_, _, err = b.Rotate(t.Context(), root, "old", accounts.RotateRequest{})
	check(err)
	_, _, err = b.Create(t.Context(), root, accounts.CreateRequest{User: old + " ", Scopes: []string{"pods:read"}})
	wantKind(t, "a new user with such a name", err, problem.Invalid)
}
