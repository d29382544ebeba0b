package pods

import (
	"context"
	"slices"
	"time"
)

// RuntimeInfo is the runtime block of a pod (docs/interface.md 2.6): its loads and ports now.
// Loads are percentages, 0 where they are not known.
type RuntimeInfo struct {
	Uptime time.Duration
	GPUs   []GPUSample // one for each GPU of the pod
	CPU    int
	Memory int
	Ports  []PortMapping // one for each port asked for
}

// RuntimeInfo measures p; ok is false unless it is RUNNING.
func (s *Service) RuntimeInfo(ctx context.Context, p *Pod) (l RuntimeInfo, ok bool) {
	if p.Status() != Running {
		return RuntimeInfo{}, false
	}
	l = RuntimeInfo{GPUs: []GPUSample{}, Ports: []PortMapping{}}
	l.Uptime = max(0, s.clock.Now().Sub(p.Seen.Started))
	if p.GPU != nil {
		l.GPUs = make([]GPUSample, p.GPU.Count)
	}
	if _, loads, err := s.readers(ctx, p.Placement.Host); err == nil && loads != nil {
		if sample, ok := loads.Sample(ctx, p.ID); ok {
			l.CPU, l.Memory = sample.CPU, sample.Memory
			copy(l.GPUs, sample.GPUs)
		}
	}
	for _, text := range p.Want.Applied.Ports {
		port := parsePort(text)
		l.Ports = append(l.Ports, p.portMapping(port))
	}
	return l, true
}

// portMapping returns where a port is reachable. A port that the host does not report is not
// published.
func (p *Pod) portMapping(port Port) PortMapping {
	i := slices.IndexFunc(p.Seen.Ports, func(m PortMapping) bool {
		return m.Private == port.Private && m.Protocol == port.Protocol
	})
	if i < 0 {
		return PortMapping{Private: port.Private, Protocol: port.Protocol}
	}
	return p.Seen.Ports[i]
}
