//go:build !linux

package docker

import "net/netip"

// hostRoutes returns nil: here, engines run in a virtual machine whose routes are not
// known.
func hostRoutes() []netip.Prefix { return nil }
