package docker

import (
	"context"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/pods"
)

// bridges are the networks of rt that the engine has.
func bridges(t *testing.T, rt *Runtime) (names []string) {
	t.Helper()
	list, err := rt.api.NetworkList(t.Context(), client.NetworkListOptions{Filters: rt.instanceFilters()})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items {
		if n.Name != rt.defaultNetwork() {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

func joined(id, owner string) pods.Spec {
	s := spec(id, program("run"))
	s.Owner, s.NetworkAlias = owner, id+".podyard.internal"
	return s
}

func TestAPrivateNetworkGoesWithItsLastPod(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		dir := t.TempDir()
		rt := open(t, d, dir)
		for _, s := range []pods.Spec{joined("one", "alice"), joined("two", "alice"), joined("three", "bob"), spec("four", program("run"))} {
			up(t, rt, s)
		}
		if got := bridges(t, rt); len(got) != 2 {
			t.Errorf("networks of two users are %q", got)
		}
		remove := func(id string) {
			t.Helper()
			if err := rt.Remove(t.Context(), id, 0); err != nil {
				t.Fatal(err)
			}
		}
		remove("three")
		remove("one")
		alone := bridges(t, rt)
		if len(alone) != 1 {
			t.Errorf("networks with a pod of alice left are %q, want hers", alone)
		}
		// A pod that is stopped is in it still, also for the next server.
		if err := rt.Stop(t.Context(), "two", 0); err != nil {
			t.Fatal(err)
		}
		await(t, rt, "two", "end", phase(pods.PhaseExited))
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		rt = open(t, d, dir)
		if got := bridges(t, rt); !slices.Equal(got, alone) {
			t.Errorf("networks after a restart are %q, want %q", got, alone)
		}
		s := joined("two", "alice")
		s.Run = 2
		if got := up(t, rt, s); got.IP == "" {
			t.Errorf("pod is %+v, want it to have an address", got)
		}
		// One that does not join any more leaves at its next generation.
		s.Gen, s.NetworkAlias = 2, ""
		if got := up(t, rt, s); got.IP != "" {
			t.Errorf("pod is %+v, want it to have no address", got)
		}
		if got := bridges(t, rt); len(got) != 0 {
			t.Errorf("networks without a pod in one are %q", got)
		}
	})
}

// A server that dies may leave a network without pods, and somebody may remove one with.
func TestNetworksComeToWhatPodsSay(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		dir := t.TempDir()
		rt, other := open(t, d, dir), open(t, d, t.TempDir())
		up(t, other, joined("theirs", "alice"))
		theirs := bridges(t, other)
		s := joined("mine", "alice")
		up(t, rt, s)
		if err := rt.makeBridge(t.Context(), bridge{"podyard-" + rt.instance + "-user-left", "carol"}); err != nil {
			t.Fatal(err)
		}
		if err := rt.Stop(t.Context(), "mine", 0); err != nil {
			t.Fatal(err)
		}
		await(t, rt, "mine", "end", phase(pods.PhaseExited))
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d.Kind == "dockerd" { // Podman keeps a network that has containers
			for _, p := range rt.pods.All() {
				if _, err := other.api.NetworkRemove(context.WithoutCancel(t.Context()), p.rec.Network, client.NetworkRemoveOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		rt = open(t, d, dir)
		s.Run = 2
		if got := up(t, rt, s); got.IP == "" {
			t.Errorf("pod is %+v, want it to have an address", got)
		}
		if got := bridges(t, rt); len(got) != 1 {
			t.Errorf("networks are %q, want that of alice", got)
		}
		if got := bridges(t, other); !slices.Equal(got, theirs) {
			t.Errorf("networks of another server are %q, were %q", got, theirs)
		}
	})
}

// A server that ends in the middle of a repair leaves a container in a network of a user.
func TestARepairThatWasCutShortKeepsNoNetwork(t *testing.T) {
	d, dir := requireEngine(t, "podman"), t.TempDir()
	rt := open(t, d, dir)
	up(t, rt, joined("one", "alice"))
	network, image := rt.runningNetwork(t.Context())
	if err := rt.libpod(t.Context(), http.MethodPost, "/containers/create", map[string]any{
		"name": rt.repairContainer(), "image": image, "labels": map[string]string{labelInstance: rt.instance},
		"netns": map[string]string{"nsmode": "bridge"}, "networks": map[string]any{network: struct{}{}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rt = open(t, d, dir)
	if err := rt.Remove(t.Context(), "one", 0); err != nil {
		t.Fatal(err)
	}
	if got := bridges(t, rt); len(got) != 0 {
		t.Errorf("networks without a pod in one are %q", got)
	}
}

func TestNetworksStayApartWhenOneGoes(t *testing.T) {
	rt := open(t, requireEngine(t, "podman"), t.TempDir())
	for _, owner := range []string{"alice", "bob", "carol"} {
		up(t, rt, joined(owner, owner))
	}
	if err := rt.Remove(t.Context(), "carol", 0); err != nil {
		t.Fatal(err)
	}
	apart := func() bool {
		out, err := exec.CommandContext(t.Context(), "iptables", "-S", "FORWARD").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.Contains(string(out), "-j NETAVARK_ISOLATION_1")
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for late := time.After(time.Minute); !apart(); {
		select {
		case <-look.C:
		case <-late:
			t.Fatal("nothing keeps the networks of alice and bob apart")
		}
	}
	left, err := rt.api.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: rt.instanceFilters()})
	if err != nil || len(left.Items) > 3 {
		t.Errorf("containers are %+v, %v; want those of the pods", left.Items, err)
	}
}
