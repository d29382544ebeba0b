package listen

import "syscall"

// anyAddress lets a listener have an address that this machine does not have yet: a bridge
// of Podman comes with its first container.
func anyAddress(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_IP, syscall.IP_FREEBIND, 1)
	})
	if err != nil {
		return err
	}
	return failed
}
