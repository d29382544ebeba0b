package podstest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/podyard/podyard/pods"
)

func wantClaimed(t *testing.T, s pods.PodStore, resource string, want int64) {
	t.Helper()
	got, err := s.Claimed(t.Context(), resource)
	if err != nil || got != want {
		t.Errorf("Used(%q) = %d, %v, want %d", resource, got, err, want)
	}
}

func claim(resource string, units, limit int64) pods.Claim {
	return pods.Claim{Resource: resource, Units: units, Limit: limit}
}

// podClaiming returns a pod that claims units of a resource whose limit is four.
func podClaiming(id string, resource string, units int64) *pods.Pod {
	p := minimalPod(id, "o", 0)
	p.Placement.Claims = []pods.Claim{claim(resource, units, 4)}
	return p
}

func claimCases() []StoreCase {
	return []StoreCase{{
		"ClaimsAddUpOverPods",
		"Used is the sum of the claims of all pods; a resource that nobody claims has 0",
		func(t *testing.T, s pods.PodStore) {
			wantClaimed(t, s, "r", 0)
			two := podClaiming("c", "r", 1)
			two.Placement.Claims = append(two.Placement.Claims, claim("r2", 2, 9), claim("r", 1, 4))
			create(t, s, podClaiming("a", "r", 1), podClaiming("b", "r", 1), two)
			wantClaimed(t, s, "r", 4)
			wantClaimed(t, s, "r2", 2)
			wantClaimed(t, s, "r1", 0)
		},
	}, {
		"CreateOverALimitIsNoRoom",
		"Create that would exceed a limit is ErrNoRoom and changes nothing, other claims of the pod included",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, podClaiming("a", "r", 3))
			p := podClaiming("b", "r", 2)
			p.Placement.Claims = append([]pods.Claim{claim("first", 1, 1)}, p.Placement.Claims...)
			if err := s.Create(t.Context(), p); !errors.Is(err, pods.ErrNoCapacity) {
				t.Errorf("Create = %v, want ErrNoRoom", err)
			}
			if _, err := s.Get(t.Context(), "b"); !errors.Is(err, pods.ErrNotFound) {
				t.Errorf("Get = %v, want ErrNotFound", err)
			}
			wantClaimed(t, s, "r", 3)
			wantClaimed(t, s, "first", 0)
			create(t, s, podClaiming("b", "r", 1))
		},
	}, {
		"UpdateOverALimitIsNoRoom",
		"Update that would exceed a limit is ErrNoRoom and changes nothing",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, podClaiming("a", "r", 3), minimalPod("b", "o", 0))
			_, err := s.Update(t.Context(), "b", func(p *pods.Pod) error {
				p.Name, p.Placement = "new", podClaiming("b", "r", 2).Placement
				return nil
			})
			if !errors.Is(err, pods.ErrNoCapacity) {
				t.Errorf("Update = %v, want ErrNoRoom", err)
			}
			equal(t, "Get", minimalPod("b", "o", 0), get(t, s, "b"))
			wantClaimed(t, s, "r", 3)
		},
	}, {
		"UpdateMovesClaims",
		"a pod's own claims do not stand in the way of what replaces them, and claims that are dropped are free",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, podClaiming("a", "r", 4))
			set := func(c ...pods.Claim) {
				t.Helper()
				_, err := s.Update(t.Context(), "a", func(p *pods.Pod) error { p.Placement.Claims = c; return nil })
				if err != nil {
					t.Fatalf("Update to %+v = %v, want nil", c, err)
				}
			}
			set(claim("r", 4, 4), claim("r2", 1, 1))
			set(claim("r", 2, 4))
			wantClaimed(t, s, "r", 2)
			wantClaimed(t, s, "r2", 0)
			set()
			wantClaimed(t, s, "r", 0)
			create(t, s, podClaiming("b", "r", 4))
		},
	}, {
		"AChangeElsewhereKeepsClaims",
		"a pod over a limit that has shrunk since can be changed and can give up claims",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, podClaiming("a", "r", 4))
			_, err := s.Update(t.Context(), "a", func(p *pods.Pod) error { p.Name = "new"; return nil })
			if err != nil {
				t.Fatalf("Update of another field = %v, want nil", err)
			}
			_, err = s.Update(t.Context(), "a", func(p *pods.Pod) error {
				p.Placement.Claims = []pods.Claim{claim("r", 3, 2)}
				return nil
			})
			if err != nil {
				t.Fatalf("Update to fewer units = %v, want nil", err)
			}
			wantClaimed(t, s, "r", 3)
		},
	}, {
		"DeleteFreesClaims",
		"a deleted pod claims nothing",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, podClaiming("a", "r", 4))
			if err := s.Delete(t.Context(), "a", nil); err != nil {
				t.Fatal(err)
			}
			wantClaimed(t, s, "r", 0)
			create(t, s, podClaiming("b", "r", 4))
		},
	}, {
		"OneUnitGoesToOnePod",
		"of pods that are created at once no more get a unit than there are units",
		func(t *testing.T, s pods.PodStore) {
			var got atomic.Int64
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					switch err := s.Create(t.Context(), podClaiming(fmt.Sprint(i), "r", 1)); {
					case err == nil:
						got.Add(1)
					case !errors.Is(err, pods.ErrNoCapacity):
						t.Errorf("Create = %v, want nil or ErrNoRoom", err)
					}
				})
			}
			wg.Wait()
			if got.Load() != 4 {
				t.Errorf("%d pods got one of 4 units", got.Load())
			}
			wantClaimed(t, s, "r", 4)
		},
	}}
}
