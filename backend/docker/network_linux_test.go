package docker

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/pods"
)

// networks returns the engine's networks of rt.
func networks(t *testing.T, rt *Runtime) []engineNetwork {
	t.Helper()
	all, err := rt.engineNetworks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(n engineNetwork) bool { return !n.ours(rt) })
}

// bridges returns their names.
func bridges(t *testing.T, rt *Runtime) (names []string) {
	t.Helper()
	for _, n := range networks(t, rt) {
		names = append(names, n.name)
	}
	slices.Sort(names)
	return names
}

func joined(id, owner string) pods.Spec {
	s := spec(id, program("run"))
	s.Owner, s.NetworkAlias = owner, id+".podyard.internal"
	return s
}

// Every owner has one network, also if the pods have no names in it.
func TestANetworkOfAnOwnerGoesWithTheLastPod(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		dir, subnet := t.TempDir(), netip.MustParsePrefix(ofEngine(d, 202, 20))
		within := func(o *Options) { o.Subnet = subnet }
		rt := open(t, d, dir, within)
		unnamed := spec("three", program("run"))
		unnamed.Owner = "bob"
		for _, s := range []pods.Spec{joined("one", "alice"), joined("two", "alice"), unnamed} {
			if got := up(t, rt, s); (got.IP != "") != (s.NetworkAlias != "") {
				t.Errorf("pod is %+v, want an address only of one that has a name", got)
			}
		}
		if got := bridges(t, rt); len(got) != 2 {
			t.Errorf("networks of two users are %q", got)
		}
		for _, block := range subnets(t, rt) {
			if block.Bits() != blockBits || !subnet.Contains(block.Addr()) {
				t.Errorf("a network has %s, want a block of %d bits of %s", block, blockBits, subnet)
			}
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
		// A stopped pod stays in the network, also for the next server.
		if err := rt.Stop(t.Context(), "two", 0); err != nil {
			t.Fatal(err)
		}
		await(t, rt, "two", "end", phase(pods.PhaseExited))
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		rt = open(t, d, dir, within)
		if got := bridges(t, rt); !slices.Equal(got, alone) {
			t.Errorf("networks after a restart are %q, want %q", got, alone)
		}
		s := joined("two", "alice")
		s.Run = 2
		if got := up(t, rt, s); got.IP == "" {
			t.Errorf("pod is %+v, want it to have an address", got)
		}
		s.Gen, s.NetworkAlias = 2, ""
		if got := up(t, rt, s); got.IP != "" {
			t.Errorf("pod is %+v, want it to have no address", got)
		}
		remove("two")
		if got := bridges(t, rt); len(got) != 0 {
			t.Errorf("networks without a pod in one are %q", got)
		}
	})
}

// subnets returns the address blocks of rt's networks.
func subnets(t *testing.T, rt *Runtime) (all []netip.Prefix) {
	t.Helper()
	for _, n := range networks(t, rt) {
		all = append(all, n.blocks...)
	}
	return all
}

// ofEngine returns a block that tests of other engines, which share the routes of the machine, do
// not use.
func ofEngine(d *enginetest.Engine, second, bits int) string {
	return fmt.Sprintf("10.%d.0.0/%d", second+slices.Index(enginetest.Kinds, d.Kind), bits)
}

func TestASubnetWithoutRoomIsRefusedAtOpen(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		other := open(t, d, t.TempDir())
		large := bridge{other.networkPrefix() + "owner-large", "carol"}
		taken := ofEngine(d, 240, 23)
		if err := other.createBridge(t.Context(), large, netip.MustParsePrefix(taken)); err != nil {
			t.Fatal(err)
		}
		defer other.dropBridge(t.Context(), large.name)
		for subnet, want := range map[string]string{
			taken:           "overlaps 10.24",
			"8.8.0.0/16":    "private use",
			"10.202.0.1/16": "has bits after its prefix",
			"10.202.0.0/24": "8 to 23 bits",
		} {
			_, err := Open(t.Context(), t.TempDir(), &Options{Engine: d.Address(), Subnet: netip.MustParsePrefix(subnet)})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Open with %s = %v, want %q in it", subnet, err, want)
			}
		}
	})
}

// A crashed server may leave a network without pods, and somebody may remove a network with
// pods.
func TestNetworksComeToWhatPodsSay(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		dir := t.TempDir()
		rt, other := open(t, d, dir), open(t, d, t.TempDir())
		up(t, other, joined("theirs", "alice"))
		theirs := bridges(t, other)
		s := joined("mine", "alice")
		up(t, rt, s)
		if err := rt.makeBridge(t.Context(), bridge{rt.networkPrefix() + "owner-left", "carol"}); err != nil {
			t.Fatal(err)
		}
		if err := rt.Stop(t.Context(), "mine", 0); err != nil {
			t.Fatal(err)
		}
		await(t, rt, "mine", "end", phase(pods.PhaseExited))
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d.Kind == "dockerd" { // Podman does not remove a network that has containers
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

// A server that stops during a repair leaves a container in a user's network.
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
		out, err := exec.CommandContext(t.Context(), "iptables", "-w", "-S", "FORWARD").CombinedOutput()
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

// An older version used the engine's default network.
func TestAStoppedContainerInAnotherNetworkStartsInThatOfItsOwner(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		s := joined("moved", "alice")
		up(t, rt, s)
		if err := rt.Stop(t.Context(), "moved", 0); err != nil {
			t.Fatal(err)
		}
		await(t, rt, "moved", "end", phase(pods.PhaseExited))
		other := map[string]string{"dockerd": "bridge", "podman": "podman"}[d.Kind]
		name := rt.pods.Find("moved").name()
		if _, err := rt.api.NetworkConnect(t.Context(), other, client.NetworkConnectOptions{Container: name}); err != nil {
			t.Fatal(err)
		}
		s.Run = 2
		up(t, rt, s)
		c, err := rt.pods.Find("moved").inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Collect(maps.Keys(c.NetworkSettings.Networks)); len(got) != 1 || got[0] != bridges(t, rt)[0] {
			t.Errorf("the container is in %q, want the network of its owner only", got)
		}
	})
}
