package postgres

import (
	"context"
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of Linux, which package syscall does not have on every processor.
const tcpUserTimeout = 0x12

// limitSilence ends a connection whose peer has acknowledged nothing for silentTime. Without it the
// system repeats what was sent for about 15 minutes.
func limitSilence(_ context.Context, network, _ string, c syscall.RawConn) (err error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	failed := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(silentTime.Milliseconds()))
	})
	if failed != nil {
		return failed
	}
	return err
}
