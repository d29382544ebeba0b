package podstest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem/idempotency"
)

// A StoreCase is one rule of pods.PodStore.
type StoreCase struct {
	Name string
	Why  string // the rule, printed when it is broken
	Run  func(t *testing.T, s pods.PodStore)
}

// TestStore runs every case on a store of its own, which is empty.
func TestStore(t *testing.T, store func(t *testing.T) pods.PodStore) {
	for _, c := range StoreCases() {
		suite.Run(t, c.Name, c.Why, func(t *testing.T) { c.Run(t, store(t)) })
	}
}

// StoreCases are the rules.
func StoreCases() []StoreCase {
	return slices.Concat(recordCases(), keyedCases(), listCases(), claimCases(), togetherCases(), reservationCases(), hintCases())
}

// created is the creation time of pods, in a precision that every store has.
var created = time.Date(2026, 3, 4, 5, 6, 7, 890_000_000, time.UTC)

// minimalPod returns a pod with only the required fields.
func minimalPod(id, owner string, age time.Duration) *pods.Pod {
	return &pods.Pod{ID: id, Owner: owner, Created: created.Add(age)}
}

// fullPod returns a pod with a value in every field.
func fullPod(id string) *pods.Pod {
	config := func(image string) pods.Config {
		return pods.Config{
			Image: image, Args: "a 'b c'", Disk: 7, Ports: []string{"80/http", "22/tcp"},
			Env: map[string]string{"A": "1", "Ü": "\t=\""}, Registry: "r1",
			Mounts: pods.Mounts{
				Persistent: &pods.PersistentMount{Size: 10, Path: "/p"},
				Network:    []pods.NetworkMount{{VolumeID: "v", Path: "/n"}},
			},
			GlobalNetworking: true,
			Extras:           pods.Extras{StopGrace: -1, ShmSize: 64, User: "1:2", Restart: pods.RestartAlways, MaxRestarts: 7, StopAfter: time.Hour, Idle: &pods.Idle{For: time.Minute, GPU: 1, CPU: 2}, ExposeHTTP: pods.ExposeKey},
		}
	}
	return &pods.Pod{
		ID: id, Owner: "owner", Name: "näme", Cloud: pods.Community, Template: "t",
		GPU: &pods.GPU{ID: "gpu", Count: 2}, CPU: &pods.CPU{ID: "cpu", VCPU: 4, Memory: 8},
		MinShare: catalog.Share{VCPU: 2, Memory: 16}, Locked: true, Created: created, Config: config("new"),
		Cluster: &pods.Membership{ID: "c", Rank: 1, Size: 2, Type: pods.TrainingCluster, Name: "näme"}, DataCenters: []string{"D1", "D2"},
		Placement: pods.Placement{
			Host: "host", DataCenter: "D1", Claims: []pods.Claim{claim("gpu/host/a", 1, 1), claim("memory/host", 8, 64)},
			Devices: []string{"a"}, Price: 1.25, Share: catalog.Share{VCPU: 4, Memory: 32},
		},
		Want: pods.DesiredState{Power: pods.PowerOn, Gen: 3, Run: 4, Pull: true, Grace: time.Second, Applied: config("old")},
		Seen: pods.ObservedState{
			Status: pods.Running, Gen: 2, Run: 3, Phase: pods.PhaseHealthy, Started: created.Add(time.Second), Reason: "why",
			Ports: []pods.PortMapping{{Private: 80, Public: 10001, Protocol: "http", IP: "192.0.2.1"}}, CUDA: "12.8", IP: "10.0.0.1",
			Tries: 2, RetryAt: created.Add(time.Minute),
		},
		Told:    pods.CostNotice{Month: created, Limit: 0.5, Level: 2},
		Journal: []pods.LogLine{{At: created, Seq: 1, Text: "one"}, {At: created, Seq: 2, Text: "two"}},
	}
}

// equal compares pods. A store need not distinguish an empty list from nil.
func equal(t *testing.T, what string, want, got *pods.Pod) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func create(t *testing.T, s pods.PodStore, list ...*pods.Pod) {
	t.Helper()
	for _, p := range list {
		if err := s.Create(t.Context(), p); err != nil {
			t.Fatalf("Create(%s) = %v, want nil", p.ID, err)
		}
	}
}

func get(t *testing.T, s pods.PodStore, id string) *pods.Pod {
	t.Helper()
	p, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("Get(%s) = %v, want nil", id, err)
	}
	return p
}

// keyedCases are the rules of a creation with an Idempotency-Key.
func keyedCases() (list []StoreCase) {
	for _, r := range suite.KeyedRules(suite.Keyed[pods.PodStore]{
		Create: func(ctx context.Context, s pods.PodStore, id string, r idempotency.Record) error {
			return s.CreateKeyed(ctx, minimalPod(id, "o", 0), r)
		},
		Get: func(ctx context.Context, s pods.PodStore, id string) error {
			_, err := s.Get(ctx, id)
			return err
		},
		Delete:    func(ctx context.Context, s pods.PodStore, id string) error { return s.Delete(ctx, id, nil) },
		ErrExists: pods.ErrExists, ErrNotFound: pods.ErrNotFound,
	}) {
		list = append(list, StoreCase{r.Name, r.Why, func(t *testing.T, s pods.PodStore) { r.Run(t, s) }})
	}
	return append(list, StoreCase{
		"ClaimThatIsRefusedLeavesTheKeyFree",
		"CreateKeyed that returns ErrNoCapacity adds no record, so that the request can be made again",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, podClaiming("a", "r", 4))
			r := idempotency.Record{Request: *idempotency.NewRequest("key", nil), ID: "b", At: created}
			if err := s.CreateKeyed(t.Context(), podClaiming("b", "r", 1), r); !errors.Is(err, pods.ErrNoCapacity) {
				t.Errorf("CreateKeyed without capacity = %v, want ErrNoCapacity", err)
			}
			if _, err := s.FindKey(t.Context(), r.Key); !errors.Is(err, idempotency.ErrNotFound) {
				t.Errorf("FindKey = %v, want ErrNotFound", err)
			}
		},
	})
}

func recordCases() []StoreCase {
	return []StoreCase{{
		"WhatWasCreatedIsRead",
		"Get returns every field of the pod that Create was given",
		func(t *testing.T, s pods.PodStore) {
			for _, p := range []*pods.Pod{fullPod("full"), minimalPod("bare", "o", 0)} {
				create(t, s, p.Clone())
				equal(t, "Get", p, get(t, s, p.ID))
			}
		},
	}, {
		"PodsAreCopied",
		"what a caller does with a pod that it gave or was given changes nothing in the store",
		func(t *testing.T, s pods.PodStore) {
			p := fullPod("a")
			create(t, s, p)
			mutate(p)
			equal(t, "after changing what Create was given", fullPod("a"), get(t, s, "a"))
			mutate(get(t, s, "a"))
			equal(t, "after changing what Get returned", fullPod("a"), get(t, s, "a"))
			for p, err := range s.List(t.Context(), pods.Filter{}) {
				if err != nil {
					t.Fatal(err)
				}
				mutate(p)
			}
			equal(t, "after changing what List yielded", fullPod("a"), get(t, s, "a"))
			var kept *pods.Pod
			p, err := s.Update(t.Context(), "a", func(p *pods.Pod) error { kept = p; return nil })
			if err != nil {
				t.Fatal(err)
			}
			mutate(p)
			mutate(kept)
			equal(t, "after changing what Update returned", fullPod("a"), get(t, s, "a"))
		},
	}, {
		"AnIDIsTakenOnce",
		"Create of an ID that is there is ErrExists and changes nothing, claims included",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, minimalPod("a", "o", 0))
			if err := s.Create(t.Context(), fullPod("a")); !errors.Is(err, pods.ErrExists) {
				t.Errorf("second Create = %v, want ErrExists", err)
			}
			equal(t, "Get", minimalPod("a", "o", 0), get(t, s, "a"))
			wantClaimed(t, s, "memory/host", 0)
		},
	}, {
		"AbsentPodsAreNotFound",
		"Get, Update and Delete of a pod that is not there are ErrNotFound, also after Delete",
		func(t *testing.T, s pods.PodStore) {
			ctx := t.Context()
			create(t, s, minimalPod("a", "o", 0))
			if err := s.Delete(ctx, "a", nil); err != nil {
				t.Fatalf("Delete = %v, want nil", err)
			}
			for _, id := range []string{"a", "never", ""} {
				if _, err := s.Get(ctx, id); !errors.Is(err, pods.ErrNotFound) {
					t.Errorf("Get(%q) = %v, want ErrNotFound", id, err)
				}
				called := false
				_, err := s.Update(ctx, id, func(*pods.Pod) error { called = true; return nil })
				if !errors.Is(err, pods.ErrNotFound) || called {
					t.Errorf("Update(%q) = %v, called %t, want ErrNotFound and no call", id, err, called)
				}
				if err := s.Delete(ctx, id, nil); !errors.Is(err, pods.ErrNotFound) {
					t.Errorf("Delete(%q) = %v, want ErrNotFound", id, err)
				}
			}
			create(t, s, minimalPod("a", "o", 0))
		},
	}, {
		"UpdateStoresWhatIsLeft",
		"Update stores what fn leaves and returns it",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, minimalPod("a", "owner", 0))
			want := fullPod("a")
			got, err := s.Update(t.Context(), "a", func(p *pods.Pod) error { *p = *fullPod("a"); return nil })
			if err != nil {
				t.Fatalf("Update = %v, want nil", err)
			}
			equal(t, "Update returns", want, got)
			equal(t, "Get", want, get(t, s, "a"))
		},
	}, {
		"AnErrorOfAnUpdateChangesNothing",
		"what fn returns comes out of Update, and then nothing was changed",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, fullPod("a"))
			mine := errors.New("mine")
			_, err := s.Update(t.Context(), "a", func(p *pods.Pod) error { mutate(p); p.Placement.Claims = nil; return mine })
			if !errors.Is(err, mine) {
				t.Errorf("Update = %v, want the error of fn", err)
			}
			equal(t, "Get", fullPod("a"), get(t, s, "a"))
			wantClaimed(t, s, "memory/host", 8)
		},
	}, {
		"UpdatesOfOnePodFollowEachOther",
		"updates at once are as if one came after the other: none is lost",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, minimalPod("a", "o", 0))
			const callers, each = 8, 10
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range each {
						if _, err := s.Update(t.Context(), "a", func(p *pods.Pod) error { p.Want.Run++; return nil }); err != nil {
							t.Errorf("Update = %v, want nil", err)
						}
					}
				})
			}
			wg.Wait()
			if got := get(t, s, "a").Want.Run; got != callers*each {
				t.Errorf("%d updates are left of %d", got, callers*each)
			}
		},
	}, {
		"ADeleteThatIsRefusedChangesNothing",
		"Delete calls fn with the pod as it is stored; what fn returns comes out of Delete, and then nothing was changed",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, fullPod("a"))
			mine := errors.New("mine")
			err := s.Delete(t.Context(), "a", func(p *pods.Pod) error {
				equal(t, "fn gets", fullPod("a"), p)
				mutate(p)
				return mine
			})
			if !errors.Is(err, mine) {
				t.Errorf("Delete = %v, want the error of fn", err)
			}
			equal(t, "Get", fullPod("a"), get(t, s, "a"))
			wantClaimed(t, s, "memory/host", 8)
			if err := s.Delete(t.Context(), "a", func(*pods.Pod) error { return nil }); err != nil {
				t.Errorf("Delete = %v, want nil", err)
			}
			wantClaimed(t, s, "memory/host", 0)
		},
	}, {
		"ADeleteSeesEveryUpdateBeforeIt",
		"of an Update and a Delete at once that refuses a pod which was updated, exactly one succeeds: this fences a server whose host another one has got",
		updateOrDelete,
	}, {
		"AContextThatHasEndedChangesNothing",
		"a call with a context that has ended returns its error and changes nothing",
		func(t *testing.T, s pods.PodStore) {
			create(t, s, fullPod("a"))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			calls := map[string]func() error{
				"Create": func() error { return s.Create(ctx, minimalPod("b", "o", 0)) },
				"Update": func() error {
					_, err := s.Update(ctx, "a", func(p *pods.Pod) error { p.Name = "other"; return nil })
					return err
				},
				"Delete": func() error { return s.Delete(ctx, "a", nil) },
				"Get":    func() error { _, err := s.Get(ctx, "a"); return err },
				"Hold":   func() error { return s.Reserve(ctx, newReservation("w", claim("r", 1, 1))) },
			}
			for name, call := range calls {
				if err := call(); !errors.Is(err, context.Canceled) {
					t.Errorf("%s = %v, want context.Canceled", name, err)
				}
			}
			equal(t, "Get", fullPod("a"), get(t, s, "a"))
			if _, err := s.Get(t.Context(), "b"); !errors.Is(err, pods.ErrNotFound) {
				t.Errorf("Get of a pod whose Create was called off = %v, want ErrNotFound", err)
			}
			wantClaimed(t, s, "r", 0)
		},
	}}
}

// updateOrDelete runs an Update and a Delete at once, some times.
func updateOrDelete(t *testing.T, s pods.PodStore) {
	later := errors.New("a later server has written")
	for range 20 {
		create(t, s, minimalPod("a", "o", 0))
		var updated, deleted error
		var both sync.WaitGroup
		both.Go(func() {
			_, updated = s.Update(t.Context(), "a", func(p *pods.Pod) error { p.Seen.Epoch = 2; return nil })
		})
		both.Go(func() {
			deleted = s.Delete(t.Context(), "a", func(p *pods.Pod) error {
				if p.Seen.Epoch > 1 {
					return later
				}
				return nil
			})
		})
		both.Wait()
		_, err := s.Get(t.Context(), "a")
		switch {
		case updated == nil && errors.Is(deleted, later) && err == nil:
			if err := s.Delete(t.Context(), "a", nil); err != nil {
				t.Fatalf("Delete = %v, want nil", err)
			}
		case errors.Is(updated, pods.ErrNotFound) && deleted == nil && errors.Is(err, pods.ErrNotFound):
		default:
			t.Fatalf("Update = %v and Delete = %v, then Get = %v, want that one of them succeeds", updated, deleted, err)
		}
	}
}

// mutate changes everything that a shallow copy shares.
func mutate(p *pods.Pod) {
	p.Name = "scribbled"
	for _, c := range []*pods.Config{&p.Config, &p.Want.Applied} {
		for i := range c.Ports {
			c.Ports[i] = "1/tcp"
		}
		for k := range c.Env {
			c.Env[k] = "scribbled"
		}
		if c.Mounts.Persistent != nil {
			c.Mounts.Persistent.Size++
		}
		for i := range c.Mounts.Network {
			c.Mounts.Network[i].Path = "/scribbled"
		}
	}
	if p.GPU != nil {
		p.GPU.Count++
	}
	if p.CPU != nil {
		p.CPU.VCPU++
	}
	for i := range p.DataCenters {
		p.DataCenters[i] = "scribbled"
	}
	for i := range p.Placement.Claims {
		p.Placement.Claims[i].Units = 99
	}
	for i := range p.Placement.Devices {
		p.Placement.Devices[i] = "scribbled"
	}
	for i := range p.Seen.Ports {
		p.Seen.Ports[i].Public = 99
	}
	for i := range p.Journal {
		p.Journal[i].Text = "scribbled"
	}
}
