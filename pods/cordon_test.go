package pods_test

import (
	"context"
	"errors"
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

func TestNothingIsPlacedOnACordonedHostByAnyPlacer(t *testing.T) {
	store, rt := memory.NewPods(), memory.NewRuntime(nil)
	cat, host := catalog.Local(4, 8), func(id string) pods.Host {
		return pods.Host{ID: id, DataCenter: "LOCAL-1", Runtime: rt, VCPU: map[string]int{"host": 4}, Memory: 8}
	}
	hosts := []pods.Host{host("a"), host("b")}
	s, err := pods.New(store, cat, hosts, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := pods.NewPlacer(store, cat, hosts, 0)
	if err != nil {
		t.Fatal(err)
	}
	place := func() (host string, err error) {
		w := pods.PlacementRequest{Alternatives: []pods.Requirements{{CPU: "host", VCPU: 2}}}
		err = other.Place(t.Context(), w, func(_ pods.Requirements, pl pods.Placement) error { host = pl.Host; return nil })
		return host, err
	}
	for _, step := range []struct {
		do   func(context.Context, string) error
		host string
		want string // the host that is chosen then
	}{
		{s.Cordon, "a", "b"}, {s.Cordon, "a", "b"}, {s.Cordon, "b", ""}, {s.Uncordon, "a", "a"}, {s.Uncordon, "a", "a"}, {s.Cordon, "a", ""},
	} {
		if err := step.do(t.Context(), step.host); err != nil {
			t.Fatal(err)
		}
		if got, err := place(); got != step.want || (err == nil) != (step.want != "") || err != nil && !errors.Is(err, pods.ErrNoCapacity) {
			t.Errorf("placed on %q, %v, want %q", got, err, step.want)
		}
	}
	list, err := s.Capacity(t.Context(), pods.Requirements{CPU: "host", VCPU: 2})
	if err != nil || len(list) != 2 || list[0].Free != 0 || list[0].Total == 0 {
		t.Errorf("Capacity = %+v, %v, want two hosts without room", list, err)
	}
	states, err := s.HostStates(t.Context())
	if err != nil || len(states) != 2 || !states[0].Cordoned || !states[1].Cordoned || len(states[0].Workers) > 0 {
		t.Errorf("HostStates = %+v, %v, want two that are cordoned", states, err)
	}
	for _, do := range []func(context.Context, string) error{s.Cordon, s.Uncordon} {
		if err := do(t.Context(), "c"); !errors.Is(err, pods.ErrNoHost) {
			t.Errorf("an unknown host: %v, want ErrNoHost", err)
		}
	}
	// It lasts as long as the store.
	again, err := pods.New(store, cat, hosts, nil)
	if err != nil {
		t.Fatal(err)
	}
	if states, err := again.HostStates(t.Context()); err != nil || !states[0].Cordoned {
		t.Errorf("the next service has %+v, %v, want the cordons", states, err)
	}
}
