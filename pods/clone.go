package pods

import (
	"maps"
	"slices"
)

// Clone returns a copy of p that shares nothing with it.
func (p *Pod) Clone() *Pod {
	c := *p
	c.GPU, c.CPU, c.Cluster = clonePointer(p.GPU), clonePointer(p.CPU), clonePointer(p.Cluster)
	c.Config = p.Config.Clone()
	c.DataCenters = slices.Clone(p.DataCenters)
	c.CUDA.Allowed = slices.Clone(p.CUDA.Allowed)
	c.Injected = maps.Clone(p.Injected)
	c.Placement = p.Placement.clone()
	c.Want.Applied = p.Want.Applied.Clone()
	c.Seen.Ports = slices.Clone(p.Seen.Ports)
	c.Used = slices.Clone(p.Used)
	c.Journal = slices.Clone(p.Journal)
	return &c
}

// Clone returns a copy of h that shares nothing with it.
func (h Reservation) Clone() Reservation {
	h.GPU, h.CPU, h.Placement = clonePointer(h.GPU), clonePointer(h.CPU), h.Placement.clone()
	h.Volumes = slices.Clone(h.Volumes)
	return h
}

func (p Placement) clone() Placement {
	p.Claims, p.Devices = slices.Clone(p.Claims), slices.Clone(p.Devices)
	return p
}

// clonePointer is a pointer to a copy of what p points to.
func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
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
	c.Extras = c.Extras.Clone()
	return c
}

// Equal reports whether c and d make the same container.
func (c Config) Equal(d Config) bool {
	a, b := c.Mounts.Persistent, d.Mounts.Persistent
	return c.Image == d.Image && c.Args == d.Args && c.Disk == d.Disk &&
		slices.Equal(c.Ports, d.Ports) && maps.Equal(c.Env, d.Env) && c.Registry == d.Registry &&
		(a == nil) == (b == nil) && (a == nil || *a == *b) &&
		slices.Equal(c.Mounts.Network, d.Mounts.Network) && c.GlobalNetworking == d.GlobalNetworking &&
		c.Extras.sameContainer(&d.Extras)
}
