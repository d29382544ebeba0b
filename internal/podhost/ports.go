package podhost

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/podyard/podyard/pods"
)

// A Port is a port of a pod with its public port. The pod keeps the public port until
// another program takes it while the pod does not run. Runtimes write Ports to their
// records.
type Port struct {
	Private int  `json:"private"`
	UDP     bool `json:"udp,omitempty"`
	Public  int  `json:"public"`
}

var errNoPort = errors.New("the pods of this host have all its public ports")

// A PortAllocator tracks the public ports of pods, running or not, so that no two pods get
// the same one. In the zero value no port is taken. It is safe for concurrent use.
type PortAllocator struct {
	mu    sync.Mutex
	taken map[Port]bool // with Private 0
}

// Reserve reserves a public port. It returns false if the port was reserved already.
func (a *PortAllocator) Reserve(udp bool, port int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := Port{UDP: udp, Public: port}
	if a.taken[key] {
		return false
	}
	if a.taken == nil {
		a.taken = map[Port]bool{}
	}
	a.taken[key] = true
	return true
}

// Release releases the public ports of ports.
func (a *PortAllocator) Release(ports []Port) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range ports {
		delete(a.taken, Port{UDP: p.UDP, Public: p.Public})
	}
}

// Taken returns the reserved public ports. Private is 0 in them.
func (a *PortAllocator) Taken() []Port {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.taken))
}

// A Publication says at which address of this machine the ports of a pod are. Runtimes write it to
// their records.
type Publication struct {
	LocalHTTP bool `json:"localHttp,omitempty"` // http ports are on loopback: the proxy reaches them
	LocalAll  bool `json:"localAll,omitempty"`
}

// Publish returns the publication of a container.
func Publish(s *pods.Spec) Publication {
	return Publication{LocalHTTP: s.ExposeHTTP != pods.ExposeOpen, LocalAll: s.LocalPorts}
}

// At is the address of a port, where host is that of ports which are not local.
func (p Publication) At(host string, port pods.Port) string {
	if p.LocalAll || p.LocalHTTP && port.Protocol == "http" {
		return loopback
	}
	return host
}

const loopback = "127.0.0.1"

// Allocate returns a public port at an address of this machine for each port of want. It is
// the one in had, unless another program has taken it. The pod keeps ports of had that are
// not in want, so that an update and its reversal change nothing. The pod owns the returned
// ports also if there is an error.
//
// Replaced public ports stay reserved. The caller must record the result of Allocate and
// then release [Replaced]. Otherwise another pod could record such a port first, and after
// a crash the records of both pods would have it.
func (a *PortAllocator) Allocate(host string, at Publication, want []pods.Port, had []Port) ([]Port, error) {
	all := slices.Clone(had)
	for _, w := range want {
		host := at.At(host, w)
		udp := w.Protocol == "udp"
		i := indexPort(all, w.Private, udp)
		if i >= 0 && isFree(host, udp, all[i].Public) {
			continue
		}
		public, err := a.find(host, udp)
		if err != nil {
			return all, fmt.Errorf("publish port %d: %w", w.Private, err)
		}
		if i < 0 {
			all = append(all, Port{Private: w.Private, UDP: udp, Public: public})
			continue
		}
		all[i].Public = public
	}
	return all, nil
}

// Replaced returns the ports of had that are not in now.
func Replaced(had, now []Port) []Port {
	return slices.DeleteFunc(slices.Clone(had), func(p Port) bool { return slices.Contains(now, p) })
}

func indexPort(ports []Port, private int, udp bool) int {
	for i, p := range ports {
		if p.Private == private && p.UDP == udp {
			return i
		}
	}
	return -1
}

// maxProbes is how many free ports of the system are tried. If pods have reserved all of
// these, few others are left.
const maxProbes = 1000

// find reserves a port on which no program listens now.
func (a *PortAllocator) find(host string, udp bool) (int, error) {
	for range maxProbes {
		port, err := tryListen(host, udp, 0)
		if err != nil {
			return 0, err
		}
		if a.Reserve(udp, port) {
			return port, nil
		}
	}
	return 0, errNoPort
}

func isFree(host string, udp bool, port int) bool {
	_, err := tryListen(host, udp, port)
	return err == nil
}

// tryListen listens for a moment and returns the port. If port is 0, the system chooses it.
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

// Mapping returns the mappings of the wanted ports that have a public port.
func Mapping(host string, at Publication, want []pods.Port, allocated []Port) []pods.PortMapping {
	var mappings []pods.PortMapping
	for _, w := range want {
		if i := indexPort(allocated, w.Private, w.Protocol == "udp"); i >= 0 {
			mappings = append(mappings, pods.PortMapping{Private: w.Private, Public: allocated[i].Public, Protocol: w.Protocol, IP: at.At(host, w)})
		}
	}
	return mappings
}
