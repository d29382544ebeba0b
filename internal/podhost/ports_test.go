package podhost

import (
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
)

func publish(t *testing.T, a *PortAllocator, had []Port, want ...pods.Port) []Port {
	t.Helper()
	got, err := a.Allocate(loopback, Publication{}, want, had)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAPodKeepsItsPorts(t *testing.T) {
	var a PortAllocator
	web, dns := pods.Port{Private: 80, Protocol: "http"}, pods.Port{Private: 53, Protocol: "udp"}
	first := publish(t, &a, nil, web, dns)
	if diff := cmp.Diff(first, publish(t, &a, first, dns)); diff != "" {
		t.Errorf("ports after one is not wanted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(first, publish(t, &a, first, web, dns)); diff != "" {
		t.Errorf("ports after it is wanted again (-want +got):\n%s", diff)
	}
	want := []pods.PortMapping{
		{Private: 53, Public: first[1].Public, Protocol: "udp", IP: loopback},
		{Private: 80, Public: first[0].Public, Protocol: "http", IP: loopback},
	}
	if diff := cmp.Diff(want, Mapping(loopback, Publication{}, []pods.Port{dns, web}, first)); diff != "" {
		t.Errorf("Mapping (-want +got):\n%s", diff)
	}
}

func TestAPortThatAnotherProgramTookIsReplaced(t *testing.T) {
	for _, protocol := range []string{"tcp", "udp"} {
		t.Run(protocol, func(t *testing.T) {
			var a PortAllocator
			want := pods.Port{Private: 80, Protocol: protocol}
			had := publish(t, &a, nil, want)
			listen(t, protocol, had[0].Public)
			got := publish(t, &a, had, want)
			if len(got) != 1 || got[0].Public == had[0].Public {
				t.Errorf("ports = %v after %v, want another public one", got, had)
			}
			if a.Reserve(protocol == "udp", had[0].Public) {
				t.Error("the old port is free before the new one is on record: after a crash two pods could have it")
			}
			a.Release(Replaced(had, got))
			if !a.Reserve(protocol == "udp", had[0].Public) {
				t.Error("the port that the pod has no more is still reserved")
			}
		})
	}
}

func listen(t *testing.T, protocol string, port int) {
	t.Helper()
	addr := net.JoinHostPort(loopback, strconv.Itoa(port))
	var c interface{ Close() error }
	var err error
	if protocol == "udp" {
		c, err = net.ListenPacket("udp", addr)
	} else {
		c, err = net.Listen("tcp", addr)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
}

func TestNoTwoPodsHaveOnePort(t *testing.T) {
	var a PortAllocator
	var taken []Port
	for private := range 50 {
		taken = append(taken, publish(t, &a, nil, pods.Port{Private: private, Protocol: "tcp"})...)
	}
	slices.SortFunc(taken, func(x, y Port) int { return x.Public - y.Public })
	if u := slices.CompactFunc(slices.Clone(taken), func(x, y Port) bool { return x.Public == y.Public }); len(u) != len(taken) {
		t.Errorf("%d different ports of %d", len(u), len(taken))
	}
	if a.Reserve(false, taken[0].Public) {
		t.Error("Reserve of a port that a pod has = true, want false")
	}
	if !a.Reserve(true, taken[0].Public) {
		t.Error("Reserve of the same port of the other protocol = false, want true")
	}
	a.Release(taken[:1])
	if !a.Reserve(false, taken[0].Public) {
		t.Error("Reserve of a port that was given back = false, want true")
	}
}

func TestPortsThatWereFoundAreReturnedWithTheError(t *testing.T) {
	var a PortAllocator
	had := publish(t, &a, nil, pods.Port{Private: 80, Protocol: "tcp"})
	got, err := a.Allocate("192.0.2.1", Publication{}, []pods.Port{{Private: 81, Protocol: "tcp"}}, had)
	if err == nil {
		t.Skip("this machine has an address of the block for documentation")
	}
	if diff := cmp.Diff(had, got); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

func TestAHostWithoutAFreePortSaysSo(t *testing.T) {
	var a PortAllocator
	for port := range 1 << 16 {
		a.Reserve(false, port)
	}
	if got, err := a.Allocate(loopback, Publication{}, []pods.Port{{Private: 80, Protocol: "http"}}, nil); err == nil {
		t.Errorf("Allocate with all ports taken = %v, want an error", got)
	}
}

func TestAnHTTPPortIsOnLoopbackUnlessItsPodOpensIt(t *testing.T) {
	ports := []pods.Port{{Private: 80, Protocol: "http"}, {Private: 22, Protocol: "tcp"}, {Private: 53, Protocol: "udp"}}
	for name, c := range map[string]struct {
		spec pods.Spec
		want [3]string
	}{
		"a pod":          {pods.Spec{}, [3]string{loopback, "192.0.2.1", "192.0.2.1"}},
		"one with a key": {pods.Spec{ExposeHTTP: pods.ExposeKey}, [3]string{loopback, "192.0.2.1", "192.0.2.1"}},
		"an open one":    {pods.Spec{ExposeHTTP: pods.ExposeOpen}, [3]string{"192.0.2.1", "192.0.2.1", "192.0.2.1"}},
		"a worker":       {pods.Spec{LocalPorts: true}, [3]string{loopback, loopback, loopback}},
		"a worker, open": {pods.Spec{LocalPorts: true, ExposeHTTP: pods.ExposeOpen}, [3]string{loopback, loopback, loopback}},
	} {
		had := []Port{{Private: 80, Public: 1000}, {Private: 22, Public: 1001}, {Private: 53, UDP: true, Public: 1002}}
		for i, m := range Mapping("192.0.2.1", Publish(&c.spec), ports, had) {
			if m.IP != c.want[i] || m.Public != 1000+i {
				t.Errorf("%s: port %d/%s is at %s:%d, want %s:%d", name, m.Private, m.Protocol, m.IP, m.Public, c.want[i], 1000+i)
			}
		}
	}
}
