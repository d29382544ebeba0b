package conns

import (
	"net"
	"syscall"
)

// notSentLowat is TCP_NOTSENT_LOWAT of linux/tcp.h, which the package syscall does not have.
const notSentLowat = 25

// maxUnsent is how many bytes the kernel takes for a client that has no room for them.
const maxUnsent = 128 << 10

// limitUnsent bounds what the kernel holds for a client that does not read. Otherwise it is up to
// 4 MB, which nobody counts, and of which a third must be read before the next write goes on: for a
// slow client that takes longer than a write may.
func limitUnsent(c net.Conn) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return // it is closed already
	}
	// Not every connection is of TCP: then it stays as it is.
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, notSentLowat, maxUnsent)
	})
}
