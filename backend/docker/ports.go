package docker

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/moby/moby/api/types/network"

	"github.com/podyard/podyard/pods"
)

// isPortTaken reports whether err says that another program took a port after it was found
// free.
func isPortTaken(err error) bool {
	text := err.Error()
	return strings.Contains(text, "port is already allocated") || strings.Contains(text, "address already in use")
}

// bindings converts ports to the types of the Docker API.
func bindings(ports []pods.PortMapping) (network.PortSet, network.PortMap, error) {
	exposed, bound := network.PortSet{}, network.PortMap{}
	for _, p := range ports {
		protocol := network.TCP
		if p.Protocol == "udp" {
			protocol = network.UDP
		}
		private, ok := network.PortFrom(uint16(p.Inside()), protocol)
		if !ok {
			return nil, nil, fmt.Errorf("port %d/%s cannot be published", p.Private, p.Protocol)
		}
		host, err := netip.ParseAddr(p.IP)
		if err != nil {
			return nil, nil, fmt.Errorf("port %d/%s cannot be published: %w", p.Private, p.Protocol, err)
		}
		exposed[private] = struct{}{}
		bound[private] = append(bound[private], network.PortBinding{HostIP: host, HostPort: fmt.Sprint(p.Public)})
	}
	return exposed, bound, nil
}

// portEnv returns the variables with the public address and ports of a program.
func portEnv(host string, ports []pods.PortMapping) []string {
	var env []string
	for i, p := range ports {
		if i == 0 {
			env = append(env, "RUNPOD_PUBLIC_IP="+host)
		}
		protocol := "TCP"
		if p.Protocol == "udp" {
			protocol = "UDP"
		}
		env = append(env, fmt.Sprintf("RUNPOD_%s_PORT_%d=%d", protocol, p.Private, p.Public))
	}
	return env
}
