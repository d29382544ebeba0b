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
	PerOwner   int `json:"perOwner"`   // of a user, and of the workers of a user
	PerAddress int `json:"perAddress"` // of an address, with keys of users
	WithoutKey int `json:"withoutKey"` // of an address, without a key
}

// limiter limits the connections of the server. Without a number it takes half of the descriptors
// that the process may have. The others are for the listeners apart (conns.Limiter.Apart), for files
// and for webhooks.
func (c *Config) limiter(trusted []netip.Prefix) *conns.Limiter {
	total := conns.DefaultTotal
	if n := descriptors(); n > 0 {
		total = min(total, n/2)
	}
	o := conns.Options{
		Total: cmp.Or(c.Connections.Total, total), PerOwner: c.Connections.PerOwner,
		PerAddress: c.Connections.PerAddress, WithoutKey: c.Connections.WithoutKey, Trusted: trusted,
	}
	return conns.New(&o)
}
