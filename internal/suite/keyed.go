package suite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/problem/idempotency"
)

// Keyed describes creations with an Idempotency-Key to their rules.
type Keyed[S idempotency.Finder] struct {
	// Create creates something with the id, and adds r in the same commit.
	Create func(ctx context.Context, s S, id string, r idempotency.Record) error
	Get    func(ctx context.Context, s S, id string) error
	Delete func(ctx context.Context, s S, id string) error

	ErrExists   error // of Create if the id exists
	ErrNotFound error // of Get
}

// KeyedRules are the rules of idempotency.Store.
func KeyedRules[S idempotency.Finder](k Keyed[S]) (list []Rule[S]) {
	for _, r := range []struct {
		name, why string
		run       func(c *keyedCheck[S])
	}{
		{"KeyIsStoredWithWhatItCreated", "a repetition must find what the first request created", keyIsStored[S]},
		{"TakenKeyCreatesNothing", "a request that is repeated must not be made twice", takenKeyCreatesNothing[S]},
		{"RefusedCreationLeavesItsKeyFree", "a request that was refused can be made again", refusedLeavesKeyFree[S]},
		{"KeyOutlivesWhatItCreated", "a late repetition must not create again what was deleted", keyOutlives[S]},
		{"OneOfManyTwinsWins", "a client may repeat a request before it was answered", oneTwinWins[S]},
		{"KeyIsFreeAfterItsRetention", "keys are kept for 24 hours", keyIsFreeLater[S]},
	} {
		list = append(list, Rule[S]{r.name, r.why, func(t testing.TB, s S) { r.run(&keyedCheck[S]{t, s, k}) }})
	}
	return list
}

type keyedCheck[S idempotency.Finder] struct {
	testing.TB
	s S
	k Keyed[S]
}

// keyRecord returns the record of a request with a key.
func keyRecord(key, id string, at time.Time) idempotency.Record {
	r := idempotency.NewRequest(key, []string{"alice", "create"}, []byte("body"))
	return idempotency.Record{Request: *r, ID: id, At: at}
}

func (c *keyedCheck[S]) create(key, id string, at time.Time) error {
	return c.k.Create(c.Context(), c.s, id, keyRecord(key, id, at))
}

func (c *keyedCheck[S]) mustCreate(key, id string, at time.Time) {
	c.Helper()
	if err := c.create(key, id, at); err != nil {
		c.Fatalf("creation of %s with the key %s = %v, want nil", id, key, err)
	}
}

func (c *keyedCheck[S]) wantTaken(key, id string, at time.Time) {
	c.Helper()
	if err := c.create(key, id, at); !errors.Is(err, idempotency.ErrTaken) {
		c.Errorf("creation of %s with the key %s = %v, want ErrTaken", id, key, err)
	}
	if err := c.k.Get(c.Context(), c.s, id); !errors.Is(err, c.k.ErrNotFound) {
		c.Errorf("Get of %s, which was not created = %v, want %v", id, err, c.k.ErrNotFound)
	}
}

func (c *keyedCheck[S]) wantKey(want idempotency.Record) {
	c.Helper()
	got, err := c.s.FindKey(c.Context(), want.Key)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		c.Errorf("FindKey = %v (-want +got):\n%s", err, diff)
	}
}

func (c *keyedCheck[S]) wantNoKey(key string) {
	c.Helper()
	if got, err := c.s.FindKey(c.Context(), keyRecord(key, "", start).Key); !errors.Is(err, idempotency.ErrNotFound) {
		c.Errorf("FindKey of %s = %+v, %v; want ErrNotFound", key, got, err)
	}
}

func keyIsStored[S idempotency.Finder](c *keyedCheck[S]) {
	c.wantNoKey("a")
	c.mustCreate("a", id(1), start)
	c.mustCreate("b", id(2), start.Add(time.Second))
	c.wantKey(keyRecord("a", id(1), start))
	c.wantKey(keyRecord("b", id(2), start.Add(time.Second)))
	c.wantNoKey("c")
	if err := c.k.Get(c.Context(), c.s, id(1)); err != nil {
		c.Errorf("Get of what was created = %v, want nil", err)
	}
}

func takenKeyCreatesNothing[S idempotency.Finder](c *keyedCheck[S]) {
	c.mustCreate("a", id(1), start)
	c.wantTaken("a", id(2), start.Add(time.Minute))
	c.wantKey(keyRecord("a", id(1), start))
}

func refusedLeavesKeyFree[S idempotency.Finder](c *keyedCheck[S]) {
	c.mustCreate("a", id(1), start)
	if err := c.create("b", id(1), start); !errors.Is(err, c.k.ErrExists) {
		c.Errorf("creation of %s, which exists = %v, want %v", id(1), err, c.k.ErrExists)
	}
	c.wantNoKey("b")
	c.mustCreate("b", id(2), start)
}

func keyOutlives[S idempotency.Finder](c *keyedCheck[S]) {
	c.mustCreate("a", id(1), start)
	if err := c.k.Delete(c.Context(), c.s, id(1)); err != nil {
		c.Fatal(err)
	}
	c.wantKey(keyRecord("a", id(1), start))
	c.wantTaken("a", id(2), start.Add(time.Minute))
}

func oneTwinWins[S idempotency.Finder](c *keyedCheck[S]) {
	var n atomic.Int32
	won := Winners(c, idempotency.ErrTaken, func(context.Context) error {
		return c.create("a", id(int(n.Add(1))), start)
	})
	if won != 1 {
		c.Errorf("%d of the requests with one key succeeded, want 1", won)
	}
	r, err := c.s.FindKey(c.Context(), keyRecord("a", "", start).Key)
	if err != nil {
		c.Fatal(err)
	}
	for i := range int(n.Load()) {
		switch err := c.k.Get(c.Context(), c.s, id(i+1)); {
		case id(i+1) == r.ID && err != nil:
			c.Errorf("Get of %s, which the key names = %v, want nil", r.ID, err)
		case id(i+1) != r.ID && !errors.Is(err, c.k.ErrNotFound):
			c.Errorf("Get of %s, which lost = %v, want %v", id(i+1), err, c.k.ErrNotFound)
		}
	}
}

func keyIsFreeLater[S idempotency.Finder](c *keyedCheck[S]) {
	c.mustCreate("a", id(1), start)
	over := start.Add(idempotency.Retention)
	c.wantTaken("a", id(2), over.Add(-time.Millisecond))
	for i := range 100 { // so that the store has something to clean up
		c.mustCreate(fmt.Sprint("other", i), id(100+i), over)
	}
	c.mustCreate("a", id(3), over)
	c.wantKey(keyRecord("a", id(3), over))
	c.wantTaken("a", id(4), over.Add(idempotency.Retention-time.Millisecond))
}

// recordKeys describes a store of records to KeyedRules.
func recordKeys[S Store[R], R any](k Records[R]) Keyed[S] {
	return Keyed[S]{
		Create: func(ctx context.Context, s S, id string, r idempotency.Record) error {
			return s.CreateKeyed(ctx, k.New(id, "alice", r.At), r)
		},
		Get: func(ctx context.Context, s S, id string) error {
			_, err := s.Get(ctx, id)
			return err
		},
		Delete:    func(ctx context.Context, s S, id string) error { return s.Delete(ctx, id) },
		ErrExists: k.ErrExists, ErrNotFound: k.ErrNotFound,
	}
}
