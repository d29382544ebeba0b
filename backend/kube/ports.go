package kube

import (
	"errors"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// From firstNamed on, the private number of a port is a name, see [pods.Port].
const firstNamed = 70000

// namedInside is where named ports begin in a pod that has no host ports.
const namedInside = 20000

// inside is the number of a port inside the container.
func inside(p pods.Port, ports []podhost.Port) int {
	if p.Private < firstNamed {
		return p.Private
	}
	if public := publicOf(p, ports); public != 0 {
		return public
	}
	return namedInside + (p.Private-firstNamed)%namedInside
}

// portVariable is the variable with the public number of a port. The address is in RUNPOD_PUBLIC_IP.
func portVariable(p pods.Port) string {
	protocol := "TCP"
	if p.Protocol == "udp" {
		protocol = "UDP"
	}
	return "RUNPOD_" + protocol + "_PORT_" + strconv.Itoa(p.Private)
}

// publicOf is the host port of p, 0 without one.
func publicOf(p pods.Port, ports []podhost.Port) int {
	for _, h := range ports {
		if h.Private == p.Private && h.UDP == (p.Protocol == "udp") {
			return h.Public
		}
	}
	return 0
}

func (o *Options) containerPorts(s *pods.Spec, ports []podhost.Port) []corev1.ContainerPort {
	var list []corev1.ContainerPort
	for _, p := range s.Ports {
		c := corev1.ContainerPort{ContainerPort: int32(inside(p, ports)), Protocol: corev1.ProtocolTCP}
		if p.Protocol == "udp" {
			c.Protocol = corev1.ProtocolUDP
		}
		c.HostPort = int32(publicOf(p, ports))
		list = append(list, c)
	}
	return list
}

// mappings are the ports of a Pod that runs.
func (o *Options) mappings(want []pods.Port, ports []podhost.Port, status *corev1.PodStatus) []pods.PortMapping {
	var list []pods.PortMapping
	for _, p := range want {
		m := pods.PortMapping{Private: p.Private, Protocol: p.Protocol, Public: inside(p, ports), IP: status.PodIP}
		if public := publicOf(p, ports); public != 0 {
			m.Public, m.IP = public, status.HostIP
		}
		list = append(list, m)
	}
	return list
}

var errNoPort = errors.New("the pods of this host have all its public ports")

// allocate gives each port of s a host port and keeps those of had. Local ports have none: only the server
// needs them, and it reaches them in the cluster. The pod owns what is returned, also with an error.
func (r *Runtime) allocate(s *pods.Spec, had []podhost.Port) ([]podhost.Port, error) {
	ports := slices.Clone(had)
	if r.opts.HostPorts.empty() || s.LocalPorts {
		return ports, nil
	}
	for _, p := range s.Ports {
		if publicOf(p, ports) != 0 {
			continue
		}
		public, ok := r.freePort(p.Protocol == "udp")
		if !ok {
			return ports, errNoPort
		}
		ports = append(ports, podhost.Port{Private: p.Private, UDP: p.Protocol == "udp", Public: public})
	}
	return ports, nil
}

func (r *Runtime) freePort(udp bool) (int, bool) {
	for n := r.opts.HostPorts.First; n <= r.opts.HostPorts.Last; n++ {
		if r.ports.Reserve(udp, n) {
			return n, true
		}
	}
	return 0, false
}
