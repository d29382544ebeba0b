package podhost

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/podyard/podyard/pods"
)

// A Port is a port of a pod with the public one that it has for as long as the pod exists.
// It is part of what runtimes write to their records.
type Port struct {
	Private int  `json:"private"`
	UDP     bool `json:"udp,omitempty"`
	Public  int  `json:"public"`
}

var errNoPort = errors.New("the pods of this host have all its public ports")

// A PortAllocator knows the public ports that pods have, running or not, so that no two get the
// same. The zero value is empty. It is safe for concurrent use.
type PortAllocator struct {
	mu    sync.Mutex
	taken map[Port]bool // Private is 0
}

// Reserve takes a public port, and says whether it was free of pods.
func (b *PortAllocator) Reserve(udp bool, port int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := Port{UDP: udp, Public: port}
	if b.taken[key] {
		return false
	}
	if b.taken == nil {
		b.taken = map[Port]bool{}
	}
	b.taken[key] = true
	return true
}

// Release gives ports back.
func (b *PortAllocator) Release(ports []Port) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range ports {
		delete(b.taken, Port{UDP: p.UDP, Public: p.Public})
	}
}

// Allocate finds a public port at an address of this machine for each of want: the one in
// had when no other program has taken it meanwhile. Ports of had that are not wanted stay
// with the pod, so that an update there and back changes nothing. What it returns is the
// pod's also when there is an error.
func (b *PortAllocator) Allocate(host string, want []pods.Port, had []Port) ([]Port, error) {
	all := append([]Port(nil), had...)
	for _, w := range want {
		udp := w.Protocol == "udp"
		i := indexPort(all, w.Private, udp)
		if i >= 0 && isFree(host, udp, all[i].Public) {
			continue
		}
		public, err := b.find(host, udp)
		if err != nil {
			return all, fmt.Errorf("publish port %d: %w", w.Private, err)
		}
		if i < 0 {
			all = append(all, Port{Private: w.Private, UDP: udp, Public: public})
			continue
		}
		b.Release(all[i : i+1])
		all[i].Public = public
	}
	return all, nil
}

func indexPort(ports []Port, private int, udp bool) int {
	for i, p := range ports {
		if p.Private == private && p.UDP == udp {
			return i
		}
	}
	return -1
}

// maxProbes is how many ports of the system's choice are tried: with as many in vain, nearly
// all that it chooses from are pods'.
const maxProbes = 1000

// find claims a port that nobody listens on now.
func (b *PortAllocator) find(host string, udp bool) (int, error) {
	for range maxProbes {
		port, err := tryListen(host, udp, 0)
		if err != nil {
			return 0, err
		}
		if b.Reserve(udp, port) {
			return port, nil
		}
	}
	return 0, errNoPort
}

func isFree(host string, udp bool, port int) bool {
	_, err := tryListen(host, udp, port)
	return err == nil
}

// tryListen listens for a moment, on a port of the system's choice if port is 0, and says
// where.
func tryListen(host string, udp bool, port int) (int, error) {
	name := net.JoinHostPort(host, strconv.Itoa(port))
	if udp {
		addr, err := net.ResolveUDPAddr("udp", name)
		if err != nil {
			return 0, err
		}
		c, err := net.ListenUDP("udp", addr)
		if err != nil {
			return 0, err
		}
		return c.LocalAddr().(*net.UDPAddr).Port, c.Close()
	}
	addr, err := net.ResolveTCPAddr("tcp", name)
	if err != nil {
		return 0, err
	}
	l, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// Mapping is what State says of the ports of a spec.
func Mapping(host string, want []pods.Port, all []Port) []pods.PortMapping {
	var m []pods.PortMapping
	for _, w := range want {
		if i := indexPort(all, w.Private, w.Protocol == "udp"); i >= 0 {
			m = append(m, pods.PortMapping{Private: w.Private, Public: all[i].Public, Protocol: w.Protocol, IP: host})
		}
	}
	return m
}
