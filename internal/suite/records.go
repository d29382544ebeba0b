package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/problem/idempotency"
)

// A Store keeps records, each with an id, an owner and the instant of its creation. All
// small stores have these methods.
type Store[R any] interface {
	idempotency.Store[R]
	Get(ctx context.Context, id string) (R, error)
	List(ctx context.Context, owner string) ([]R, error)
	All(ctx context.Context) ([]R, error)
	Delete(ctx context.Context, id string) error
}

// Records describes the records of a store to its rules.
type Records[R any] struct {
	// New returns a valid record with a value in every field. Calls with the same arguments
	// return equal records that share no memory.
	New func(id, owner string, created time.Time) R
	// Bare returns a valid record with as few values as possible. Default: New.
	Bare func(id, owner string, created time.Time) R
	// ID returns the id of a record.
	ID func(R) string
	// Listed returns what List returns of a record. Default: all of it.
	Listed func(R) R
	// Spoil changes everything that a record refers to. Default: nothing, for records
	// without pointers, slices and maps.
	Spoil func(*R)
	// Change makes a valid update. Stores without updates do not need it.
	Change func(*R)
	// Count increments a number in the record. Stores without updates do not need it.
	Count func(*R)

	ErrExists   error // of Create if the id exists
	ErrNotFound error // of other methods if the record does not exist
}

// RecordRules are the rules of every store of records.
func RecordRules[S Store[R], R any](k Records[R]) []Rule[S] {
	return append(KeyedRules(recordKeys[S](k)), rulesOf(k.defaults(), []rule[S, R]{
		{"CreatedIsReadBackWhole", "whoever needs a record years later needs exactly what was stored", createdIsReadBack[S, R]},
		{"TakenIDIsRefusedAndChangesNothing", "two users must never share a record", takenIDIsRefused[S, R]},
		{"UnknownIsNotFound", "callers branch on ErrNotFound", unknownIsNotFound[S, R]},
		{"ListIsByCreationThenID", "a listing must not change its order from call to call", listIsByCreation[S, R]},
		{"ListHasOneOwnerOnly", "a user must not learn of another's records", listHasOneOwner[S, R]},
		{"AllHasEveryOwnerByCreationThenID", "an operator must find what nobody else does", allHasEveryOwner[S, R]},
		{"DeletedIsGone", "what was deleted must not be used again", deletedIsGone[S, R]},
		{"OneOfManyCreatesOfAnIDWins", "ids are unique under contention too", oneCreateWins[S, R]},
		{"OneOfManyDeletesSucceeds", "a delete is reported once", oneDeleteSucceeds[S, R]},
		{"NothingIsSharedWithCallers", "callers change what they gave and what they get", nothingIsShared[S, R]},
	})...)
}

// UpdateRules are the rules of a store that also changes records, besides RecordRules.
func UpdateRules[S idempotency.Records[R], R any](k Records[R]) []Rule[S] {
	return rulesOf(k.defaults(), []rule[S, R]{
		{"UpdateStoresWhatFnLeavesAndReturnsIt", "a change must stay", updateStores[S, R]},
		{"UpdateThatFailsChangesNothing", "a refused request changes nothing", failedUpdate[S, R]},
		{"UpdateOfAnUnknownIsNotFound", "there is nothing that fn could change", unknownUpdate[S, R]},
		{"UpdatesAtOnceAllCount", "an update must not be lost to another", updatesAllCount[S, R]},
		{"NothingOfAnUpdateIsShared", "callers change what fn was given and what they get", nothingOfAnUpdateIsShared[S, R]},
	})
}

// A rule is a Rule without its Records.
type rule[S Store[R], R any] struct {
	name, why string
	run       func(c *check[S, R])
}

func rulesOf[S Store[R], R any](k Records[R], rules []rule[S, R]) (list []Rule[S]) {
	for _, r := range rules {
		list = append(list, Rule[S]{r.name, r.why, func(t testing.TB, s S) { r.run(&check[S, R]{t, s, k}) }})
	}
	return list
}

func (k Records[R]) defaults() Records[R] {
	if k.Bare == nil {
		k.Bare = k.New
	}
	if k.Listed == nil {
		k.Listed = func(r R) R { return r }
	}
	if k.Spoil == nil {
		k.Spoil = func(*R) {}
	}
	return k
}

// A check is one run of a rule on a store.
type check[S Store[R], R any] struct {
	testing.TB
	s S
	k Records[R]
}

// start is the first creation time of records, in a precision that every store keeps.
var start = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

func id(n int) string { return fmt.Sprintf("record%08d", n) }

// record returns the nth record, created n seconds after start.
func (c *check[S, R]) record(n int, owner string) R { return c.recordAt(n, owner, n) }

func (c *check[S, R]) recordAt(n int, owner string, second int) R {
	return c.k.New(id(n), owner, start.Add(time.Duration(second)*time.Second))
}

func (c *check[S, R]) create(records ...R) {
	c.Helper()
	for _, r := range records {
		if err := c.s.Create(c.Context(), r); err != nil {
			c.Fatalf("Create %s: %v", c.k.ID(r), err)
		}
	}
}

func (c *check[S, R]) get(id string) R {
	c.Helper()
	got, err := c.s.Get(c.Context(), id)
	if err != nil {
		c.Fatalf("Get %q: %v", id, err)
	}
	return got
}

func (c *check[S, R]) list(owner string) []R {
	c.Helper()
	got, err := c.s.List(c.Context(), owner)
	if err != nil {
		c.Fatalf("List %q: %v", owner, err)
	}
	return got
}

func (c *check[S, R]) want(want R) {
	c.Helper()
	if diff := cmp.Diff(want, c.get(c.k.ID(want))); diff != "" {
		c.Errorf("Get (-want +got):\n%s", diff)
	}
}

func (c *check[S, R]) wantList(owner string, want ...R) {
	c.Helper()
	shown := []R{}
	for _, r := range want {
		shown = append(shown, c.k.Listed(r))
	}
	if diff := cmp.Diff(shown, append([]R{}, c.list(owner)...)); diff != "" {
		c.Errorf("List %q (-want +got):\n%s", owner, diff)
	}
}

func (c *check[S, R]) wantNotFound(what, id string, err error) {
	c.Helper()
	if !errors.Is(err, c.k.ErrNotFound) {
		c.Errorf("%s %q = %v, want ErrNotFound", what, id, err)
	}
}

func createdIsReadBack[S Store[R], R any](c *check[S, R]) {
	whole, bare := c.record(1, "alice"), c.k.Bare(id(2), "alice", start)
	c.create(whole, bare)
	c.want(whole)
	c.want(bare)
}

func takenIDIsRefused[S Store[R], R any](c *check[S, R]) {
	first, second := c.record(1, "alice"), c.recordAt(1, "bob", 2)
	c.create(first)
	if err := c.s.Create(c.Context(), second); !errors.Is(err, c.k.ErrExists) {
		c.Errorf("second Create of %s = %v, want ErrExists", id(1), err)
	}
	c.want(first)
	c.wantList("bob")
}

// unknownIDs are ids that do not exist. Some are similar to the id of record 1.
var unknownIDs = []string{"unknown0000000", "", "a/b", "..", "%00", id(1) + "\x00", id(1)[:13], "RECORD00000001"}

func unknownIsNotFound[S Store[R], R any](c *check[S, R]) {
	known := c.record(1, "alice")
	c.create(known)
	for _, id := range unknownIDs {
		_, err := c.s.Get(c.Context(), id)
		c.wantNotFound("Get", id, err)
		c.wantNotFound("Delete", id, c.s.Delete(c.Context(), id))
	}
	c.wantList("nobody")
	c.wantList("")
	c.wantList("alice", known)
}

func listIsByCreation[S Store[R], R any](c *check[S, R]) {
	a, b, x := c.record(1, "alice"), c.recordAt(2, "alice", 3), c.recordAt(3, "alice", 2)
	twin := c.recordAt(4, "alice", 1) // of the same instant as a
	c.create(twin, b, x, a)
	c.wantList("alice", a, twin, x, b)
}

func listHasOneOwner[S Store[R], R any](c *check[S, R]) {
	a, b, other := c.record(1, "al"), c.record(2, "al"), c.record(3, "alice")
	c.create(b, other, a)
	c.wantList("al", a, b)
	c.wantList("alice", other)
	for _, owner := range []string{"a", "", "al/", "AL"} {
		c.wantList(owner)
	}
}

func allHasEveryOwner[S Store[R], R any](c *check[S, R]) {
	first, second, third := c.record(3, "bob"), c.recordAt(1, "alice", 5), c.recordAt(2, "bob", 5)
	c.create(third, first, second)
	got, err := c.s.All(c.Context())
	if err != nil {
		c.Fatalf("All: %v", err)
	}
	if diff := cmp.Diff([]R{c.k.Listed(first), c.k.Listed(second), c.k.Listed(third)}, got); diff != "" {
		c.Errorf("All (-want +got):\n%s", diff)
	}
}

func deletedIsGone[S Store[R], R any](c *check[S, R]) {
	a, b := c.record(1, "alice"), c.record(2, "alice")
	c.create(a, b)
	if err := c.s.Delete(c.Context(), id(1)); err != nil {
		c.Fatal(err)
	}
	_, err := c.s.Get(c.Context(), id(1))
	c.wantNotFound("Get of a deleted", id(1), err)
	c.wantNotFound("second Delete of", id(1), c.s.Delete(c.Context(), id(1)))
	c.wantList("alice", b)
}

func oneCreateWins[S Store[R], R any](c *check[S, R]) {
	r := c.record(1, "alice")
	if won := Winners(c, c.k.ErrExists, func(ctx context.Context) error { return c.s.Create(ctx, c.record(1, "alice")) }); won != 1 {
		c.Errorf("%d Creates of one id succeeded, want 1", won)
	}
	c.wantList("alice", r)
}

func oneDeleteSucceeds[S Store[R], R any](c *check[S, R]) {
	r, other := c.record(1, "alice"), c.record(2, "alice")
	c.create(r, other)
	if won := Winners(c, c.k.ErrNotFound, func(ctx context.Context) error { return c.s.Delete(ctx, id(1)) }); won != 1 {
		c.Errorf("%d Deletes of one record succeeded, want 1", won)
	}
	c.wantList("alice", other)
}

func nothingIsShared[S Store[R], R any](c *check[S, R]) {
	given := c.record(1, "alice")
	c.create(given)
	c.k.Spoil(&given)
	got := c.get(id(1))
	c.k.Spoil(&got)
	list := c.list("alice")
	for i := range list {
		c.k.Spoil(&list[i])
	}
	clear(list)
	c.want(c.record(1, "alice"))
	c.wantList("alice", c.record(1, "alice"))
}

func updateStores[S idempotency.Records[R], R any](c *check[S, R]) {
	want := c.record(1, "alice")
	c.create(c.record(1, "alice"))
	got, err := c.s.Update(c.Context(), id(1), func(r *R) error {
		if diff := cmp.Diff(c.record(1, "alice"), *r); diff != "" {
			c.Errorf("what fn is given (-want +got):\n%s", diff)
		}
		c.k.Change(r)
		return nil
	})
	if err != nil {
		c.Fatal(err)
	}
	c.k.Change(&want)
	if diff := cmp.Diff(want, got); diff != "" {
		c.Errorf("Update (-want +got):\n%s", diff)
	}
	c.want(want)
	c.wantList("alice", want)
}

func failedUpdate[S idempotency.Records[R], R any](c *check[S, R]) {
	c.create(c.record(1, "alice"))
	no := errors.New("no")
	_, err := c.s.Update(c.Context(), id(1), func(r *R) error {
		c.k.Spoil(r)
		c.k.Change(r)
		return no
	})
	if !errors.Is(err, no) {
		c.Errorf("Update = %v, want the error of fn", err)
	}
	c.want(c.record(1, "alice"))
}

func unknownUpdate[S idempotency.Records[R], R any](c *check[S, R]) {
	c.create(c.record(1, "alice"))
	for _, id := range unknownIDs {
		_, err := c.s.Update(c.Context(), id, func(*R) error {
			c.Errorf("Update %q called fn", id)
			return nil
		})
		c.wantNotFound("Update", id, err)
	}
	c.want(c.record(1, "alice"))
}

func updatesAllCount[S idempotency.Records[R], R any](c *check[S, R]) {
	want := c.record(1, "alice")
	c.create(c.record(1, "alice"))
	const many = 16
	Together(many, func(int) {
		if _, err := c.s.Update(c.Context(), id(1), func(r *R) error { c.k.Count(r); return nil }); err != nil {
			c.Error(err)
		}
	})
	for range many {
		c.k.Count(&want)
	}
	c.want(want)
}

func nothingOfAnUpdateIsShared[S idempotency.Records[R], R any](c *check[S, R]) {
	c.create(c.record(1, "alice"))
	var kept *R
	got, err := c.s.Update(c.Context(), id(1), func(r *R) error { kept = r; return nil })
	if err != nil {
		c.Fatal(err)
	}
	c.k.Spoil(&got)
	c.k.Spoil(kept)
	c.want(c.record(1, "alice"))
}
