package config

import (
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// publishAt is the address of this machine on which ports of pods are published (docs/decisions.md 52).
func (p *Parts) publishAt() (netip.Addr, error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if text := p.config.Pods.Address; text != "" {
		return netip.ParseAddr(text)
	}
	tcp, ok := p.own.Addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		if p.own.PublicURL != "" {
			p.log.Warn("ports of pods are published on loopback only: pods.address says where others reach them")
		}
		return loopback, nil
	}
	if at, ok := netip.AddrFromSlice(tcp.IP); ok && !at.Unmap().IsUnspecified() {
		return at.Unmap(), nil
	}
	at, err := defaultSource()
	if err != nil {
		p.log.Warn("ports of pods are published on loopback only, because this machine has no default route: pods.address says where others reach them", "err", err)
		return loopback, nil
	}
	p.log.Info("ports of pods are published on the address of the default route", "addr", at)
	return at, nil
}

// defaultSource is the source address of the default route. It sends nothing.
func defaultSource() (netip.Addr, error) {
	c, err := net.Dial("udp4", "192.0.2.1:9") //nolint:noctx // a socket of datagrams connects at once
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = c.Close() }() // nothing was sent
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// checkAddress checks pods.address.
func (c *Pods) checkAddress() error {
	if c.Address == "" {
		return nil
	}
	at, err := netip.ParseAddr(c.Address)
	if err != nil || at.IsUnspecified() || at.IsMulticast() || at.Zone() != "" {
		return errorAt("/pods/address", "must be one IP address of this machine, not %q", c.Address)
	}
	return nil
}

// ulimits are the names that engines know.
func ulimits() []string {
	return []string{
		"core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio", "rttime", "sigpending", "stack",
	}
}

func (c *Containers) checkLimits() error {
	for _, name := range slices.Sorted(maps.Keys(c.Ulimits)) {
		place := jsontext.Pointer("/containers/ulimits").AppendToken(name)
		switch {
		case !slices.Contains(ulimits(), name):
			return errorAt(place, "is no limit of ulimit(5)")
		case c.Ulimits[name] < -1:
			return errorAt(place, "must be -1 or more")
		}
	}
	for name, n := range map[string]int64{"shmSize": c.ShmSize, "logSize": c.LogSize} {
		if n < 0 || n > 1<<30 {
			return errorAt(jsontext.Pointer("/containers").AppendToken(name), "must be 0 or more MB")
		}
	}
	if c.Pids < -1 {
		return errorAt("/containers/pids", "must be -1 or more")
	}
	return nil
}
