package podstest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem/idempotency"
)

// wantNone fails the test if one of these pods is there.
func wantNone(t *testing.T, s pods.PodStore, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := s.Get(t.Context(), id); !errors.Is(err, pods.ErrNotFound) {
			t.Errorf("Get(%s) = %v, want ErrNotFound", id, err)
		}
	}
}

// togetherCases are the rules of pods that are created in one write.
func togetherCases() []StoreCase {
	list := func(units int64, ids ...string) (list []*pods.Pod) {
		for _, id := range ids {
			list = append(list, podClaiming(id, "r", units))
		}
		return list
	}
	return []StoreCase{{
		"WhatIsCreatedTogetherIsThere",
		"CreateAll adds each pod with its claims",
		func(t *testing.T, s pods.PodStore) {
			if err := s.CreateAll(t.Context(), []*pods.Pod{fullPod("a"), podClaiming("b", "r", 4)}, nil); err != nil {
				t.Fatal(err)
			}
			equal(t, "a", fullPod("a"), get(t, s, "a"))
			equal(t, "b", podClaiming("b", "r", 4), get(t, s, "b"))
			wantClaimed(t, s, "r", 4)
			wantClaimed(t, s, "memory/host", 8)
		},
	}, {
		"PodsTogetherOverALimitAreNoRoom",
		"CreateAll whose pods fit alone and not together is ErrNoCapacity and changes nothing, and leaves the key free",
		func(t *testing.T, s pods.PodStore) {
			r := idempotency.Record{Request: *idempotency.NewRequest("key", nil), ID: "a", At: created}
			if err := s.CreateAll(t.Context(), list(2, "a", "b", "c"), &r); !errors.Is(err, pods.ErrNoCapacity) {
				t.Errorf("CreateAll = %v, want ErrNoCapacity", err)
			}
			wantNone(t, s, "a", "b", "c")
			wantClaimed(t, s, "r", 0)
			if err := s.CreateAll(t.Context(), list(2, "a", "b"), &r); err != nil {
				t.Errorf("CreateAll of what fits = %v", err)
			}
			wantClaimed(t, s, "r", 4)
		},
	}, {
		"OneTakenIDLeavesNone",
		"CreateAll with an id that is taken is ErrExists and changes nothing",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, minimalPod("b", "o", 0))
			if err := s.CreateAll(t.Context(), list(1, "a", "b"), nil); !errors.Is(err, pods.ErrExists) {
				t.Errorf("CreateAll = %v, want ErrExists", err)
			}
			wantNone(t, s, "a")
			wantClaimed(t, s, "r", 0)
		},
	}, {
		"AKeyMakesPodsTogetherOnce",
		"CreateAll with a key that was used is ErrTaken and changes nothing",
		func(t *testing.T, s pods.PodStore) {
			r := idempotency.Record{Request: *idempotency.NewRequest("key", nil), ID: "a", At: created}
			if err := s.CreateAll(t.Context(), list(1, "a", "b"), &r); err != nil {
				t.Fatal(err)
			}
			if err := s.CreateAll(t.Context(), list(1, "c", "d"), &r); !errors.Is(err, idempotency.ErrTaken) {
				t.Errorf("CreateAll again = %v, want ErrTaken", err)
			}
			wantNone(t, s, "c", "d")
			wantClaimed(t, s, "r", 2)
		},
	}, {
		"PodsTogetherAndAloneShareTheUnits",
		"of creations at once no more units are given than there are, and each gets all of its pods or none",
		func(t *testing.T, s pods.PodStore) {
			var got atomic.Int64
			var wg sync.WaitGroup
			for i := range 16 {
				a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
				wg.Go(func() {
					many := list(1, a, b)[:1+i%2]
					switch err := s.CreateAll(t.Context(), many, nil); {
					case err == nil:
						got.Add(int64(len(many)))
						for _, p := range many {
							if _, err := s.Get(t.Context(), p.ID); err != nil {
								t.Errorf("Get(%s) = %v, want nil", p.ID, err)
							}
						}
					case errors.Is(err, pods.ErrNoCapacity):
						wantNone(t, s, a, b)
					default:
						t.Errorf("CreateAll = %v, want nil or ErrNoCapacity", err)
					}
				})
			}
			wg.Wait()
			if n := got.Load(); n < 3 || n > 4 {
				t.Errorf("%d of 4 units were given", n)
			}
			wantClaimed(t, s, "r", got.Load())
		},
	}}
}
