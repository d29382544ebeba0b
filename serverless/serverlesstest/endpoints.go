package serverlesstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// An EndpointCase is one rule of endpoints.Store.
type EndpointCase struct {
	Name string
	Why  string // the rule, printed when it is broken
	Run  func(t *testing.T, s endpoints.Store)
}

// TestEndpointStore runs every case on an empty store of its own. store returns a new one.
func TestEndpointStore(t *testing.T, store func(t *testing.T) endpoints.Store) {
	for _, c := range EndpointCases() {
		suite.Run(t, c.Name, c.Why, func(t *testing.T) { c.Run(t, store(t)) })
	}
}

// createdAt is when the endpoints of the suite are made: in a precision that every store has.
var createdAt = time.Date(2026, 3, 4, 5, 6, 7, 890_000_000, time.UTC)

// bareEndpoint returns an endpoint with as few fields set as possible.
func bareEndpoint(id string, age time.Duration) *endpoints.Endpoint {
	return &endpoints.Endpoint{ID: id, Created: createdAt.Add(age)}
}

// fullEndpoint returns an endpoint with every field set.
func fullEndpoint(id string) *endpoints.Endpoint {
	return &endpoints.Endpoint{
		ID: id, Owner: "owner", Name: "näme", Created: createdAt,
		Container: endpoints.Container{
			Image: "image", Args: "a 'b c'", Disk: 7, Ports: []string{"80/http", "22/tcp"},
			Env: map[string]string{"A": "1", "Ü": "\t=\""}, Registry: "r1",
		},
		GPU:           &endpoints.GPU{Pools: []string{"p"}, ExcludedTypes: []string{"x"}, Count: 2, AllowedCUDAVersions: []string{"12.8"}, MinCUDAVersion: "12.4"},
		CPU:           []endpoints.CPU{{ID: "cpu", VCPU: 4, Memory: 8}},
		DataCenterIDs: []string{"D1", "D2"}, NetworkVolumes: []string{"v"},
		Workers: endpoints.WorkerLimits{Min: 1, Max: 3, Idle: 5 * time.Second},
		Scaling: endpoints.Scaling{Type: endpoints.QueueDelay, Delay: 1500 * time.Millisecond, Count: 4},
		Queue: &endpoints.QueueSettings{
			PerKey: 1, PerUser: 2, Total: 3, Ageing: time.Second, DeadLetter: time.Hour, Paused: true,
			Retry: queue.RetryPolicy{Attempts: 4, Timeouts: true, Factor: 1.1, Jitter: 0.1, Delay: time.Second, MaxDelay: time.Minute},
		},
		ExecTimeout: 90 * time.Second, FlashBoot: endpoints.FlashBootOn, Version: 2,
		Releases: []endpoints.Release{
			{ID: "1", Version: 1, Created: createdAt},
			{ID: "2", Version: 2, User: "u", Created: createdAt.Add(time.Hour), Diff: []endpoints.Change{{Field: "name", Old: []byte(`"a"`), New: []byte(`{ "b": 1.0 }`)}, {Field: "new", New: []byte("1")}}},
		},
	}
}

// sameEndpoint compares two endpoints. A store may return an empty list as nil.
func sameEndpoint(t *testing.T, what string, want, got *endpoints.Endpoint) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func createEndpoints(t *testing.T, s endpoints.Store, list ...*endpoints.Endpoint) {
	t.Helper()
	for _, e := range list {
		if err := s.Create(t.Context(), e); err != nil {
			t.Fatalf("Create(%q) = %v, want nil", e.ID, err)
		}
	}
}

func getEndpoint(t *testing.T, s endpoints.Store, id string) *endpoints.Endpoint {
	t.Helper()
	e, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("Get(%q) = %v, want nil", id, err)
	}
	return e
}

func endpointIDs(t *testing.T, s endpoints.Store) (ids []string) {
	t.Helper()
	for e, err := range s.List(t.Context()) {
		if err != nil {
			t.Fatalf("List = %v, want no error", err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// mutate changes what the fields of an endpoint refer to.
func mutate(e *endpoints.Endpoint) {
	e.Name = "spoilt"
	e.Container.Ports[0], e.Container.Env["A"] = "spoilt", "spoilt"
	e.GPU.Pools[0], e.GPU.Count = "spoilt", 99
	e.CPU[0].VCPU = 99
	e.DataCenterIDs[0], e.NetworkVolumes[0] = "spoilt", "spoilt"
	e.Releases[0].User = "spoilt"
}

// EndpointCases returns the rules of an endpoint store.
func EndpointCases() []EndpointCase {
	return slices.Concat(endpointRecordCases(), endpointKeyedCases(), endpointUpdateCases())
}

// endpointKeyedCases are the rules of a creation with an Idempotency-Key.
func endpointKeyedCases() (list []EndpointCase) {
	for _, r := range suite.KeyedRules(suite.Keyed[endpoints.Store]{
		Create: func(ctx context.Context, s endpoints.Store, id string, r idempotency.Record) error {
			return s.CreateKeyed(ctx, bareEndpoint(id, 0), r)
		},
		Get: func(ctx context.Context, s endpoints.Store, id string) error {
			_, err := s.Get(ctx, id)
			return err
		},
		Delete:    func(ctx context.Context, s endpoints.Store, id string) error { return s.Delete(ctx, id) },
		ErrExists: endpoints.ErrExists, ErrNotFound: endpoints.ErrNotFound,
	}) {
		list = append(list, EndpointCase{r.Name, r.Why, func(t *testing.T, s endpoints.Store) { r.Run(t, s) }})
	}
	return list
}

func endpointRecordCases() []EndpointCase {
	return []EndpointCase{{
		"WhatWasCreatedIsRead",
		"Get returns every field of the endpoint that Create was given",
		func(t *testing.T, s endpoints.Store) {
			for _, e := range []*endpoints.Endpoint{fullEndpoint("full"), bareEndpoint("bare", 0)} {
				createEndpoints(t, s, e.Clone())
				sameEndpoint(t, "Get", e, getEndpoint(t, s, e.ID))
			}
		},
	}, {
		"EndpointsAreCopied",
		"a change of an endpoint that was passed to the store, or returned by it, changes nothing in the store",
		func(t *testing.T, s endpoints.Store) {
			given := fullEndpoint("e")
			createEndpoints(t, s, given)
			mutate(given)
			mutate(getEndpoint(t, s, "e"))
			for e, err := range s.List(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				mutate(e)
			}
			var kept *endpoints.Endpoint
			e, err := s.Update(t.Context(), "e", func(e *endpoints.Endpoint) error { kept = e; return nil })
			if err != nil {
				t.Fatalf("Update = %v, want nil", err)
			}
			mutate(e)
			if kept != e {
				mutate(kept)
			}
			sameEndpoint(t, "Get", fullEndpoint("e"), getEndpoint(t, s, "e"))
		},
	}, {
		"AnIdIsTakenOnce",
		"Create of an id that is in use returns ErrExists and changes nothing",
		func(t *testing.T, s endpoints.Store) {
			createEndpoints(t, s, fullEndpoint("e"))
			if err := s.Create(t.Context(), bareEndpoint("e", time.Hour)); !errors.Is(err, endpoints.ErrExists) {
				t.Errorf("second Create = %v, want ErrEndpointExists", err)
			}
			sameEndpoint(t, "Get", fullEndpoint("e"), getEndpoint(t, s, "e"))
		},
	}, {
		"OneIdOneEndpoint",
		"when several callers create the same id at once, one succeeds",
		func(t *testing.T, s endpoints.Store) {
			var mu sync.Mutex
			created := 0
			inParallel(16, func(int) {
				err := s.Create(t.Context(), bareEndpoint("e", 0))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					created++
				} else if !errors.Is(err, endpoints.ErrExists) {
					t.Errorf("Create = %v, want nil or ErrEndpointExists", err)
				}
			})
			if created != 1 {
				t.Errorf("%d callers created the endpoint, want 1", created)
			}
		},
	}, {
		"UnknownEndpoints",
		"Get, Update and Delete of an unknown id return ErrNotFound; fn is not called",
		func(t *testing.T, s endpoints.Store) {
			createEndpoints(t, s, bareEndpoint("known", 0))
			for _, id := range []string{"unknown", "know", "known2", "KNOWN", ""} {
				_, get := s.Get(t.Context(), id)
				_, update := s.Update(t.Context(), id, func(*endpoints.Endpoint) error {
					t.Errorf("Update(%q) called fn", id)
					return nil
				})
				for what, err := range map[string]error{"Get": get, "Update": update, "Delete": s.Delete(t.Context(), id)} {
					if !errors.Is(err, endpoints.ErrNotFound) {
						t.Errorf("%s(%q) = %v, want ErrNoEndpoint", what, id, err)
					}
				}
			}
		},
	}, {
		"ListIsByCreatedAndId",
		"List yields every endpoint once, by Created and then ID, as Get does",
		func(t *testing.T, s endpoints.Store) {
			if ids := endpointIDs(t, s); len(ids) != 0 {
				t.Errorf("List of an empty store = %q, want nothing", ids)
			}
			createEndpoints(t, s, bareEndpoint("d", time.Hour), bareEndpoint("b", 2*time.Hour), bareEndpoint("c", time.Hour), bareEndpoint("a", 3*time.Hour), fullEndpoint("z"))
			if diff := cmp.Diff([]string{"z", "c", "d", "b", "a"}, endpointIDs(t, s)); diff != "" {
				t.Errorf("List (-want +got):\n%s", diff)
			}
			for e, err := range s.List(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				sameEndpoint(t, "List", getEndpoint(t, s, e.ID), e)
			}
		},
	}, {
		"ListMayBeLeft",
		"a caller may stop listing after any endpoint, and change the store while it lists",
		func(t *testing.T, s endpoints.Store) {
			for i := range 10 {
				createEndpoints(t, s, bareEndpoint(fmt.Sprint("e", i), time.Duration(i)*time.Hour))
			}
			n := 0
			for e, err := range s.List(t.Context()) {
				if err != nil {
					t.Fatalf("List = %v, want no error", err)
				}
				if err := s.Delete(t.Context(), e.ID); err != nil {
					t.Fatalf("Delete(%q) while listing = %v, want nil", e.ID, err)
				}
				if n++; n == 4 {
					break
				}
			}
			if diff := cmp.Diff([]string{"e4", "e5", "e6", "e7", "e8", "e9"}, endpointIDs(t, s)); diff != "" {
				t.Errorf("List after 4 deletions (-want +got):\n%s", diff)
			}
		},
	}, {
		"DeletedIsGone",
		"a deleted endpoint is not found, and its id is free",
		func(t *testing.T, s endpoints.Store) {
			createEndpoints(t, s, fullEndpoint("e"), bareEndpoint("other", 0))
			if err := s.Delete(t.Context(), "e"); err != nil {
				t.Fatalf("Delete = %v, want nil", err)
			}
			if _, err := s.Get(t.Context(), "e"); !errors.Is(err, endpoints.ErrNotFound) {
				t.Errorf("Get after Delete = %v, want ErrNoEndpoint", err)
			}
			if diff := cmp.Diff([]string{"other"}, endpointIDs(t, s)); diff != "" {
				t.Errorf("List after Delete (-want +got):\n%s", diff)
			}
			createEndpoints(t, s, bareEndpoint("e", time.Hour))
			sameEndpoint(t, "Get", bareEndpoint("e", time.Hour), getEndpoint(t, s, "e"))
		},
	}}
}

func endpointUpdateCases() []EndpointCase {
	return []EndpointCase{{
		"UpdateStoresWhatFnLeaves",
		"Update calls fn with the current endpoint, stores the result and returns it",
		func(t *testing.T, s endpoints.Store) {
			createEndpoints(t, s, fullEndpoint("e"))
			want := bareEndpoint("e", time.Hour)
			want.Workers.Max = 7
			got, err := s.Update(t.Context(), "e", func(e *endpoints.Endpoint) error {
				sameEndpoint(t, "what fn is given", fullEndpoint("e"), e)
				*e = *want.Clone()
				return nil
			})
			if err != nil {
				t.Fatalf("Update = %v, want nil", err)
			}
			sameEndpoint(t, "Update", want, got)
			sameEndpoint(t, "Get", want, getEndpoint(t, s, "e"))
		},
	}, {
		"AnErrorOfFnChangesNothing",
		"when fn returns an error, Update returns it and stores nothing",
		func(t *testing.T, s endpoints.Store) {
			createEndpoints(t, s, fullEndpoint("e"))
			no := errors.New("no")
			if _, err := s.Update(t.Context(), "e", func(e *endpoints.Endpoint) error { mutate(e); return no }); !errors.Is(err, no) {
				t.Errorf("Update = %v, want the error of fn", err)
			}
			sameEndpoint(t, "Get", fullEndpoint("e"), getEndpoint(t, s, "e"))
		},
	}, {
		"UpdatesAreAtomic",
		"concurrent updates are all kept",
		func(t *testing.T, s endpoints.Store) {
			createEndpoints(t, s, bareEndpoint("e", 0))
			const callers, each = 16, 10
			inParallel(callers, func(int) {
				for range each {
					if _, err := s.Update(t.Context(), "e", func(e *endpoints.Endpoint) error { e.Version++; return nil }); err != nil {
						t.Errorf("Update = %v, want nil", err)
					}
				}
			})
			if got := getEndpoint(t, s, "e").Version; got != callers*each {
				t.Errorf("Version after %d increments = %d", callers*each, got)
			}
		},
	}}
}
