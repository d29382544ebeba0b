package podstest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/pods"
)

func networkCases() []RuntimeCase {
	return []RuntimeCase{{
		"OnlyPodsOfAPrivateNetworkHaveAnAddress",
		"State.IP is the address in the private network of the owner, its own for each pod; there is none outside of one, and none once a pod is Down",
		func(t *testing.T, h Harness) {
			h.needNetworks(t)
			one, other, outside := h.pod(t, h.Programs.Runs, joins), h.pod(t, h.Programs.Runs, joins), h.pod(t, h.Programs.Runs)
			a, b := h.up(t, one).IP, h.up(t, other).IP
			if a == "" || b == "" || a == b {
				t.Errorf("the addresses of two pods of a network are %q and %q, want two", a, b)
			}
			if ip := h.up(t, outside).IP; ip != "" {
				t.Errorf("a pod outside of every network has the address %q", ip)
			}
			h.stop(t, one.PodID, time.Second)
			if ip := h.await(t, one, pods.PhaseExited).IP; ip != "" {
				t.Errorf("a pod that is Down has the address %q", ip)
			}
		},
	}, {
		"PodsOfOneOwnerFindEachOther",
		"a pod that joined the private network of its owner is found there under its name by the others, over runs and generations, and again after the last pod has left",
		func(t *testing.T, h Harness) {
			h.needNetworks(t)
			for range 2 {
				served := h.pod(t, h.Programs.Serves, joins, publishes)
				h.up(t, served)
				asks := h.pod(t, h.Programs.Dials, joins, dialArgs(addressOf(served)))
				h.up(t, asks)
				h.wantReached(t, asks, addressOf(served))
				served.Run++
				h.up(t, served)
				asks.Gen++
				h.up(t, asks)
				h.wantReached(t, asks, addressOf(served))
				h.remove(t, served.PodID)
				h.remove(t, asks.PodID)
			}
		},
	}, {
		"NothingOfAnotherOwnerReachesAPod",
		"a pod in the private network of its owner is not found by name, and not reached by its address, from pods of another owner, in a network of their own or outside of any",
		func(t *testing.T, h Harness) {
			h.needNetworks(t)
			served := h.pod(t, h.Programs.Serves, joins, publishes)
			name, address := addressOf(served), h.up(t, served).IP+":8888"
			// The address answers a pod that may reach it.
			friend := h.pod(t, h.Programs.Dials, joins, dialArgs(address))
			h.up(t, friend)
			h.wantReached(t, friend, address)
			var strangers []pods.Spec
			for _, change := range []func(*pods.Spec){joins, func(*pods.Spec) {}} {
				s := h.pod(t, h.Programs.Dials, change, dialArgs(name, address), func(s *pods.Spec) { s.Owner = "user-2" })
				h.up(t, s)
				strangers = append(strangers, s)
			}
			for _, s := range strangers {
				for _, l := range h.answers(t, s, "tried") {
					if strings.HasPrefix(l, "reached ") {
						t.Errorf("a pod of another owner, network %q: %s", s.NetworkAlias, l)
					}
				}
			}
		},
	}, {
		"APrivateNetworkIsFoundAgain",
		"after a restart pods are in the private network in which they were, and others join it",
		func(t *testing.T, h Harness) {
			h.needNetworks(t)
			if h.Reopen == nil {
				t.Skip("this runtime does not outlive its server")
			}
			served := h.pod(t, h.Programs.Serves, joins, publishes)
			before := h.up(t, served)
			h.Runtime = h.Reopen(t)
			if after := h.await(t, served, pods.PhaseHealthy); after.IP != before.IP {
				t.Errorf("the address is %q, was %q before the restart", after.IP, before.IP)
			}
			asks := h.pod(t, h.Programs.Dials, joins, dialArgs(addressOf(served)))
			h.up(t, asks)
			h.wantReached(t, asks, addressOf(served))
		},
	}}
}

func (h Harness) needNetworks(t *testing.T) {
	t.Helper()
	if !h.Runtime.Capabilities().PrivateNetworks {
		t.Skip("this runtime joins pods in no private network")
	}
}

// joins makes a pod join the network of its owner.
func joins(s *pods.Spec) { s.NetworkAlias = s.PodID + ".podstest.internal" }

func publishes(s *pods.Spec) { s.Ports = []pods.Port{{Private: 8888, Protocol: "tcp"}} }

func dialArgs(addresses ...string) func(*pods.Spec) {
	return func(s *pods.Spec) { s.Args = append(s.Args, addresses...) }
}

// addressOf returns the address of s in the network.
func addressOf(s pods.Spec) string { return s.NetworkAlias + ":8888" }

func (h Harness) wantReached(t *testing.T, s pods.Spec, address string) {
	t.Helper()
	h.answers(t, s, "reached "+address+" port 8888")
}

// answers waits for a line of a pod of Programs.Dials, in its present generation, and
// returns what it has printed.
func (h Harness) answers(t *testing.T, s pods.Spec, line string) (got []string) {
	t.Helper()
	h.until(t, "for "+line, func() bool {
		got = texts(h.lines(t, s.PodID, pods.LogQuery{Tail: -1}))
		return slices.Contains(got, line)
	})
	return got
}
