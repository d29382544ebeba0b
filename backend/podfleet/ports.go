package podfleet

import (
	"net"
	"slices"
	"strconv"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// publish publishes the ports of a worker that serves requests. Its port for requests comes
// first, because runtimes wait for the first port of a container.
func publish(s *pods.Spec, l *endpoints.Listener) {
	if l == nil {
		return
	}
	first := pods.Port{Private: l.Port, Protocol: "http"}
	if i := slices.IndexFunc(s.Ports, func(p pods.Port) bool { return p.Private == l.Port && p.Protocol != "udp" }); i >= 0 {
		first = s.Ports[i]
		s.Ports = slices.Delete(s.Ports, i, i+1)
	}
	s.Ports = slices.Insert(s.Ports, 0, first)
	if !slices.ContainsFunc(s.Ports, func(p pods.Port) bool { return p.Private == l.HealthPort && p.Protocol != "udp" }) {
		s.Ports = append(s.Ports, pods.Port{Private: l.HealthPort, Protocol: "http"})
	}
	s.PortEnv = map[string]int{endpoints.EnvPort: l.Port, endpoints.EnvHealthPort: l.HealthPort}
}

// notePorts records where the ports of a container are published.
func (f *Fleet) notePorts(st *pods.ContainerState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if st.Phase < pods.PhaseExited && len(st.Ports) > 0 {
		f.ports[st.PodID] = slices.Clone(st.Ports)
	} else {
		delete(f.ports, st.PodID)
	}
}

// WorkerAddress implements fleet.WorkerPorts.
func (f *Fleet) WorkerAddress(endpoint string, id queue.WorkerID, port int) (address string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.ports[PodID(endpoint, id)] {
		if p.Private == port && p.Protocol != "udp" {
			return net.JoinHostPort(p.IP, strconv.Itoa(p.Public)), true
		}
	}
	return "", false
}
