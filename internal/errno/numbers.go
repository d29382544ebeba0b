//go:build !windows

package errno

import "syscall"

var (
	addressInUse        = []syscall.Errno{syscall.EADDRINUSE}
	addressNotAvailable = []syscall.Errno{syscall.EADDRNOTAVAIL}
	refused             = []syscall.Errno{syscall.ECONNREFUSED}
	reset               = []syscall.Errno{syscall.ECONNRESET, syscall.EPIPE}
	notADirectory       = []syscall.Errno{syscall.ENOTDIR}
)
