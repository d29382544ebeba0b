//go:build !linux

package docker

import "net/netip"

// hostRoutes are not known: an engine is in a virtual machine here.
func hostRoutes() []netip.Prefix { return nil }
