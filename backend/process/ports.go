package process

import (
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/podyard/podyard/pods"
)

// A published port is one that a pod has for as long as it exists.
type published struct {
	Private int  `json:"private"`
	UDP     bool `json:"udp,omitempty"`
	Public  int  `json:"public"`
}

// A portBook knows the public ports that pods have, running or not, so that no two get
// the same.
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
// Ports of had that are not wanted stay with the pod, so that an update there and back
// changes nothing.
func (b *portBook) publish(host string, want []pods.Port, had []published) ([]published, error) {
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
func (b *portBook) find(host string, udp bool) (int, error) {
	for {
		port, err := probe(host, udp, 0)
		if err != nil {
			return 0, err
		}
		if b.claim(udp, port) {
			return port, nil
		}
	}
}

func free(host string, udp bool, port int) bool {
	_, err := probe(host, udp, port)
	return err == nil
}

// probe listens for a moment, on a port of the system's choice if port is 0, and says
// where.
func probe(host string, udp bool, port int) (int, error) {
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	if udp {
		c, err := net.ListenPacket("udp", addr)
		if err != nil {
			return 0, err
		}
		return c.LocalAddr().(*net.UDPAddr).Port, c.Close()
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// mapping is what State says of the ports of a spec.
func mapping(host string, want []pods.Port, all []published) []pods.PortMapping {
	var m []pods.PortMapping
	for _, w := range want {
		if i := indexPort(all, w.Private, w.Protocol == "udp"); i >= 0 {
			m = append(m, pods.PortMapping{Private: w.Private, Public: all[i].Public, Protocol: w.Protocol, IP: host})
		}
	}
	return m
}

// portEnv tells a process where to listen.
func portEnv(host string, ports []pods.PortMapping) []string {
	if len(ports) == 0 {
		return nil
	}
	first := ports[0]
	if i := firstTCP(ports); i >= 0 {
		first = ports[i]
	}
	env := []string{"RUNPOD_PUBLIC_IP=" + host, "PORT=" + strconv.Itoa(first.Public)}
	for _, p := range ports {
		if p.Protocol == "udp" {
			env = append(env, fmt.Sprintf("PODYARD_UDP_PORT_%d=%d", p.Private, p.Public))
			continue
		}
		env = append(env,
			fmt.Sprintf("PODYARD_TCP_PORT_%d=%d", p.Private, p.Public),
			fmt.Sprintf("RUNPOD_TCP_PORT_%d=%d", p.Private, p.Public))
	}
	return env
}

func firstTCP(ports []pods.PortMapping) int {
	for i, p := range ports {
		if p.Protocol != "udp" {
			return i
		}
	}
	return -1
}
