package supervise

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Where struct kinfo_proc of sys/user.h has its size, the process and the start, on systems with 64
// bits. Its size says whether it is that struct.
const (
	kinfoSize  = 1088
	kinfoPID   = 72
	kinfoStart = 336 // a timeval
)

// startTimeOf returns a text that distinguishes the process from others with the same number;
// empty when there is no process.
func startTimeOf(pid int) string {
	b, err := unix.SysctlRaw("kern.proc.pid", pid)
	word := binary.NativeEndian
	if err != nil || len(b) != kinfoSize || word.Uint32(b) != kinfoSize || int(word.Uint32(b[kinfoPID:])) != pid {
		return ""
	}
	return fmt.Sprintf("%d.%06d", word.Uint64(b[kinfoStart:]), word.Uint64(b[kinfoStart+8:]))
}
