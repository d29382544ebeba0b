package errno

import "syscall"

// The numbers of Windows sockets are not all in package syscall. Those of POSIX stand beside
// them, because programs make errors of their own with these.
var (
	addressInUse        = []syscall.Errno{10048, syscall.EADDRINUSE}
	addressNotAvailable = []syscall.Errno{10049, syscall.EADDRNOTAVAIL}
	refused             = []syscall.Errno{10061, syscall.ECONNREFUSED}
	reset               = []syscall.Errno{syscall.WSAECONNABORTED, syscall.WSAECONNRESET, syscall.ERROR_BROKEN_PIPE, syscall.ECONNRESET, syscall.EPIPE}
	noRoom              = []syscall.Errno{39, 112, syscall.ENOSPC, syscall.EDQUOT} // ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL
	noDescriptors       = []syscall.Errno{4, syscall.EMFILE, syscall.ENFILE}       // ERROR_TOO_MANY_OPEN_FILES
	notADirectory       = []syscall.Errno{syscall.ERROR_PATH_NOT_FOUND, syscall.ENOTDIR}
)
