package config

import (
	"cmp"
	"net/netip"

	"github.com/podyard/podyard/httpapi/conns"
)

// Connections are limits of connections, as those of conns.Options. 0 is the default, and a
// negative number is no limit.
type Connections struct {
	Total      int `json:"total"`      // in all
	PerAddress int `json:"perAddress"` // of an address, with a key
	WithoutKey int `json:"withoutKey"` // of an address, without one
}

// limiter limits the connections of the server. Without a number it leaves a quarter of the
// descriptors that the process may have to files, workers and webhooks.
func (c *Config) limiter(trusted []netip.Prefix) *conns.Limiter {
	total := conns.DefaultTotal
	if n := descriptors(); n > 0 {
		total = min(total, n/4*3)
	}
	o := conns.Options{
		Total: cmp.Or(c.Connections.Total, total), PerAddress: c.Connections.PerAddress, WithoutKey: c.Connections.WithoutKey, Trusted: trusted,
	}
	return conns.New(&o)
}
