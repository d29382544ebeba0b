package pods

import (
	"maps"
	"slices"
)

// Clone returns a copy of p that shares nothing with it.
func (p *Pod) Clone() *Pod {
	c := *p
	if p.GPU != nil {
		gpu := *p.GPU
		c.GPU = &gpu
	}
	if p.CPU != nil {
		cpu := *p.CPU
		c.CPU = &cpu
	}
	c.Config = p.Config.Clone()
	c.DataCenters = slices.Clone(p.DataCenters)
	c.CUDA.Allowed = slices.Clone(p.CUDA.Allowed)
	c.Injected = maps.Clone(p.Injected)
	c.Placement.Claims = slices.Clone(p.Placement.Claims)
	c.Placement.Devices = slices.Clone(p.Placement.Devices)
	c.Want.Applied = p.Want.Applied.Clone()
	c.Seen.Ports = slices.Clone(p.Seen.Ports)
	c.Used = slices.Clone(p.Used)
	c.Journal = slices.Clone(p.Journal)
	return &c
}

// Clone returns a copy of c that shares nothing with it.
func (c Config) Clone() Config {
	c.Ports = slices.Clone(c.Ports)
	c.Env = maps.Clone(c.Env)
	c.Mounts.Network = slices.Clone(c.Mounts.Network)
	if c.Mounts.Persistent != nil {
		m := *c.Mounts.Persistent
		c.Mounts.Persistent = &m
	}
	return c
}

// Equal reports whether c and d make the same container.
func (c Config) Equal(d Config) bool {
	a, b := c.Mounts.Persistent, d.Mounts.Persistent
	return c.Image == d.Image && c.Args == d.Args && c.Disk == d.Disk &&
		slices.Equal(c.Ports, d.Ports) && maps.Equal(c.Env, d.Env) && c.Registry == d.Registry &&
		(a == nil) == (b == nil) && (a == nil || *a == *b) &&
		slices.Equal(c.Mounts.Network, d.Mounts.Network) && c.GlobalNetworking == d.GlobalNetworking
}
