package docker

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/moby/moby/api/types/network"

	"github.com/podyard/podyard/pods"
)

// A published port is one that a pod has for as long as it exists.
type published struct {
	Private int  `json:"private"`
	UDP     bool `json:"udp,omitempty"`
	Public  int  `json:"public"`
}

// A portBook knows the public ports that pods have, running or not. They are chosen here
// and not by the engine, which would choose others at each start.
type portBook struct {
	mu    sync.Mutex
	taken map[published]bool // Private is 0
}

func (b *portBook) claim(udp bool, port int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := published{UDP: udp, Public: port}
	if b.taken[key] {
		return false
	}
	if b.taken == nil {
		b.taken = map[published]bool{}
	}
	b.taken[key] = true
	return true
}

func (b *portBook) release(ports []published) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range ports {
		delete(b.taken, published{UDP: p.UDP, Public: p.Public})
	}
}

// publish finds a public port for each of want: the one in had when it is still free.
// Ports of had that are not wanted stay with the pod.
func (b *portBook) publish(host netip.Addr, want []pods.Port, had []published) ([]published, error) {
	all := append([]published(nil), had...)
	for _, w := range want {
		udp := w.Protocol == "udp"
		i := indexPort(all, w.Private, udp)
		if i >= 0 && free(host, udp, all[i].Public) {
			continue
		}
		public, err := b.find(host, udp)
		if err != nil {
			return all, fmt.Errorf("publish port %d: %w", w.Private, err)
		}
		if i < 0 {
			all = append(all, published{Private: w.Private, UDP: udp, Public: public})
			continue
		}
		b.release(all[i : i+1])
		all[i].Public = public
	}
	return all, nil
}

func indexPort(ports []published, private int, udp bool) int {
	for i, p := range ports {
		if p.Private == private && p.UDP == udp {
			return i
		}
	}
	return -1
}

// find claims a port that nobody listens on now.
func (b *portBook) find(host netip.Addr, udp bool) (int, error) {
	for {
		port, err := probePort(host, udp, 0)
		if err != nil {
			return 0, err
		}
		if b.claim(udp, port) {
			return port, nil
		}
	}
}

func free(host netip.Addr, udp bool, port int) bool {
	_, err := probePort(host, udp, port)
	return err == nil
}

// probePort listens for a moment, on a port of the system's choice if port is 0, and says
// where.
func probePort(host netip.Addr, udp bool, port int) (int, error) {
	addr := netip.AddrPortFrom(host, uint16(port))
	if udp {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		if err != nil {
			return 0, err
		}
		return c.LocalAddr().(*net.UDPAddr).Port, c.Close()
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// taken says whether err means that a port was free when we looked and is no more.
func taken(err error) bool {
	text := err.Error()
	return strings.Contains(text, "port is already allocated") || strings.Contains(text, "address already in use")
}

// mapping is what State says of the ports of a spec.
func mapping(host netip.Addr, want []pods.Port, all []published) []pods.PortMapping {
	var m []pods.PortMapping
	for _, w := range want {
		if i := indexPort(all, w.Private, w.Protocol == "udp"); i >= 0 {
			m = append(m, pods.PortMapping{Private: w.Private, Public: all[i].Public, Protocol: w.Protocol, IP: host.String()})
		}
	}
	return m
}

// bindings are the ports of a container as the engine takes them.
func bindings(host netip.Addr, ports []pods.PortMapping) (network.PortSet, network.PortMap, error) {
	exposed, bound := network.PortSet{}, network.PortMap{}
	for _, p := range ports {
		protocol := network.TCP
		if p.Protocol == "udp" {
			protocol = network.UDP
		}
		private, ok := network.PortFrom(uint16(p.Private), protocol)
		if !ok {
			return nil, nil, fmt.Errorf("port %d/%s cannot be published", p.Private, p.Protocol)
		}
		exposed[private] = struct{}{}
		bound[private] = []network.PortBinding{{HostIP: host, HostPort: fmt.Sprint(p.Public)}}
	}
	return exposed, bound, nil
}

// portEnv tells a program how it is reached.
func portEnv(ports []pods.PortMapping) []string {
	var env []string
	for i, p := range ports {
		if i == 0 {
			env = append(env, "RUNPOD_PUBLIC_IP="+p.IP)
		}
		protocol := "TCP"
		if p.Protocol == "udp" {
			protocol = "UDP"
		}
		env = append(env, fmt.Sprintf("RUNPOD_%s_PORT_%d=%d", protocol, p.Private, p.Public))
	}
	return env
}
