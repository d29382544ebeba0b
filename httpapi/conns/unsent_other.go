//go:build !linux

package conns

import "net"

// limitUnsent does nothing on this system.
func limitUnsent(net.Conn) {}
