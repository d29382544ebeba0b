package pods

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/podyard/podyard/problem"
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

// ErrNotRunning is the error of a port of a pod that does not run.
var ErrNotRunning = problem.New(problem.Conflict, "the pod does not run")

// errPortElsewhere is the error of a port on a host of another server.
var errPortElsewhere = problem.New(problem.BadGateway, "the pod is on a host of another server, whose ports are reached there")

// Exposure returns what a pod says of who reaches its HTTP ports; empty: nothing, or there is no such
// pod.
func (s *Service) Exposure(ctx context.Context, id string) (Exposure, error) {
	p, err := s.store.Get(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	case p.checkVisible(p.Owner) != nil:
		return "", nil //nolint:nilerr // who asks is told that there is no such pod elsewhere
	}
	return p.Config.Extras.ExposeHTTP, nil
}

// HTTPPort returns whose a pod is, whoever asks, and the address on this machine at which one of its
// HTTP ports is published. Errors: ErrNotFound without the pod or the port, ErrNotRunning.
func (s *Service) HTTPPort(ctx context.Context, id string, port int) (owner, address string, err error) {
	p, err := s.store.Get(ctx, id)
	if err != nil {
		return "", "", err
	}
	if !slices.Contains(p.Want.Applied.Ports, strconv.Itoa(port)+"/http") || p.checkVisible(p.Owner) != nil {
		return "", "", ErrNotFound
	}
	if p.Status() != Running {
		return p.Owner, "", ErrNotRunning
	}
	if _, here := s.hosts[p.Placement.Host]; !here {
		return p.Owner, "", errPortElsewhere
	}
	m := p.portMapping(Port{Private: port, Protocol: "http"})
	if m.Public == 0 {
		return p.Owner, "", ErrNotRunning
	}
	return p.Owner, net.JoinHostPort(m.IP, strconv.Itoa(m.Public)), nil
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
