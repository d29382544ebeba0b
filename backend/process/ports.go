package process

import (
	"fmt"
	"strconv"

	"github.com/podyard/podyard/pods"
)

// portEnv returns the variables that say where a process listens.
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

// listenEnv returns the variables of s.PortEnv: a process listens on the public port itself.
func listenEnv(names map[string]int, ports []pods.PortMapping) (env []string) {
	for name, private := range names {
		for _, p := range ports {
			if p.Private == private && p.Protocol != "udp" {
				env = append(env, name+"="+strconv.Itoa(p.Public))
			}
		}
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
