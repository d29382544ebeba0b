package podstest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/pods"
)

// newReservation returns a reservation with a value in every field.
func newReservation(holder string, claims ...pods.Claim) pods.Reservation {
	return pods.Reservation{
		Holder: holder, Image: "img", GPU: &pods.GPU{ID: "gpu", Count: 1}, CPU: &pods.CPU{ID: "cpu", VCPU: 2, Memory: 4}, Volumes: []string{"v"},
		Placement: pods.Placement{Host: "host", DataCenter: "D1", Claims: claims, Devices: []string{"a"}, Price: 1.25, Since: created},
	}
}

func reserve(t *testing.T, s pods.PodStore, h pods.Reservation) {
	t.Helper()
	if err := s.Reserve(t.Context(), h); err != nil {
		t.Fatalf("Hold(%s) = %v, want nil", h.Holder, err)
	}
}

func release(t *testing.T, s pods.PodStore, holder string) {
	t.Helper()
	if err := s.Release(t.Context(), holder); err != nil {
		t.Fatalf("Release(%s) = %v, want nil", holder, err)
	}
}

func wantReservations(t *testing.T, s pods.PodStore, want ...pods.Reservation) {
	t.Helper()
	var got []pods.Reservation
	for h, err := range s.Reservations(t.Context()) {
		if err != nil {
			t.Fatalf("Holds = %v, want nil", err)
		}
		got = append(got, h)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Holds (-want +got):\n%s", diff)
	}
}

func reservationCases() []StoreCase {
	return []StoreCase{{
		"WhatIsHeldIsListed",
		"Holds yields every field of every hold, by holder; a hold is no pod",
		func(t *testing.T, s pods.PodStore) {
			wantReservations(t, s)
			list := []pods.Reservation{newReservation("a", claim("r", 1, 4)), newReservation("ab"), newReservation("b", claim("r", 2, 4), claim("r2", 1, 1)), {Holder: "bare"}}
			for _, i := range []int{2, 0, 3, 1} {
				reserve(t, s, list[i].Clone())
			}
			wantReservations(t, s, list...)
			wantClaimed(t, s, "r", 3)
			wantClaimed(t, s, "r2", 1)
			if _, err := s.Get(t.Context(), "a"); !errors.Is(err, pods.ErrNotFound) {
				t.Errorf("Get of a holder = %v, want ErrNotFound", err)
			}
			for p, err := range s.List(t.Context(), pods.Filter{}) {
				t.Errorf("List yields %+v, %v, want nothing", p, err)
			}
			create(t, s, minimalPod("a", "o", 0)) // its id is not taken
			wantReservations(t, s, list...)
		},
	}, {
		"HoldsAreCopied",
		"what a caller does with a hold that it gave or was given changes nothing in the store",
		func(t *testing.T, s pods.PodStore) {
			spoil := func(h *pods.Reservation) {
				h.GPU.Count, h.CPU.VCPU, h.Placement.Claims[0].Units = 9, 9, 9
				h.Placement.Devices[0], h.Volumes[0] = "spoilt", "spoilt"
			}
			h := newReservation("a", claim("r", 1, 4))
			reserve(t, s, h)
			spoil(&h)
			wantReservations(t, s, newReservation("a", claim("r", 1, 4)))
			for h, err := range s.Reservations(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				spoil(&h)
			}
			wantReservations(t, s, newReservation("a", claim("r", 1, 4)))
		},
	}, {
		"PodsAndHoldsShareWhatThereIs",
		"a pod has no room for what is held, nor a hold for what a pod claims, and then nothing is changed",
		func(t *testing.T, s pods.PodStore) {
			reserve(t, s, newReservation("w", claim("r", 3, 4)))
			if err := s.Create(t.Context(), podClaiming("a", "r", 2)); !errors.Is(err, pods.ErrNoCapacity) {
				t.Errorf("Create = %v, want ErrNoRoom", err)
			}
			create(t, s, podClaiming("b", "r", 1))
			if err := s.Reserve(t.Context(), newReservation("x", claim("first", 1, 1), claim("r", 1, 4))); !errors.Is(err, pods.ErrNoCapacity) {
				t.Errorf("Hold = %v, want ErrNoRoom", err)
			}
			wantReservations(t, s, newReservation("w", claim("r", 3, 4)))
			wantClaimed(t, s, "r", 4)
			wantClaimed(t, s, "first", 0)
			if err := s.Delete(t.Context(), "b", nil); err != nil {
				t.Fatal(err)
			}
			reserve(t, s, newReservation("x", claim("r", 1, 4)))
		},
	}, {
		"AHoldTakesThePlaceOfTheOneBefore",
		"a second Hold of a holder replaces the first: its own claims do not stand in the way, and without room the first stays",
		func(t *testing.T, s pods.PodStore) {
			for range 2 {
				reserve(t, s, newReservation("w", claim("r", 4, 4)))
			}
			wantClaimed(t, s, "r", 4)
			reserve(t, s, newReservation("w", claim("r", 2, 4), claim("r2", 1, 1)))
			wantClaimed(t, s, "r", 2)
			reserve(t, s, newReservation("x", claim("r", 2, 4)))
			if err := s.Reserve(t.Context(), newReservation("w", claim("r", 3, 4))); !errors.Is(err, pods.ErrNoCapacity) {
				t.Errorf("Hold of more = %v, want ErrNoRoom", err)
			}
			wantReservations(t, s, newReservation("w", claim("r", 2, 4), claim("r2", 1, 1)), newReservation("x", claim("r", 2, 4)))
			reserve(t, s, newReservation("w"))
			wantClaimed(t, s, "r", 2)
			wantClaimed(t, s, "r2", 0)
		},
	}, {
		"WhatIsReleasedIsFree",
		"Release removes a hold and its claims; of a holder that has nothing it is nil",
		func(t *testing.T, s pods.PodStore) {
			reserve(t, s, newReservation("w", claim("r", 4, 4)))
			reserve(t, s, newReservation("x"))
			for range 2 {
				release(t, s, "w")
				wantClaimed(t, s, "r", 0)
				wantReservations(t, s, newReservation("x"))
			}
			release(t, s, "never")
			create(t, s, podClaiming("a", "r", 4))
			release(t, s, "a") // a pod's claims are the pod's
			wantClaimed(t, s, "r", 4)
		},
	}, {
		"OneUnitGoesToAPodOrToAHold",
		"of pods that are created and holds that are stored at once no more get a unit than there are units",
		func(t *testing.T, s pods.PodStore) {
			var got atomic.Int64
			var wg sync.WaitGroup
			take := func(what string, do func() error) {
				wg.Go(func() {
					switch err := do(); {
					case err == nil:
						got.Add(1)
					case !errors.Is(err, pods.ErrNoCapacity):
						t.Errorf("%s = %v, want nil or ErrNoRoom", what, err)
					}
				})
			}
			for i := range 8 {
				take("Create", func() error { return s.Create(t.Context(), podClaiming(fmt.Sprint(i), "r", 1)) })
				take("Hold", func() error { return s.Reserve(t.Context(), newReservation(fmt.Sprint("w", i), claim("r", 1, 4))) })
			}
			wg.Wait()
			if got.Load() != 4 {
				t.Errorf("%d pods and holders got one of 4 units", got.Load())
			}
			wantClaimed(t, s, "r", 4)
		},
	}}
}
