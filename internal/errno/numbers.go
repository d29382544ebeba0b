//go:build !windows

package errno

import "syscall"

var (
	addressInUse        = []syscall.Errno{syscall.EADDRINUSE}
	addressNotAvailable = []syscall.Errno{syscall.EADDRNOTAVAIL}
	refused             = []syscall.Errno{syscall.ECONNREFUSED}
	reset               = []syscall.Errno{syscall.ECONNRESET, syscall.EPIPE}
	noRoom              = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
	noDescriptors       = []syscall.Errno{syscall.EMFILE, syscall.ENFILE}
	notADirectory       = []syscall.Errno{syscall.ENOTDIR}
)
