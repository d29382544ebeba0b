package supervise

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// startTimeOf returns a text that distinguishes the process from others with the same number;
// empty when there is no process.
func startTimeOf(pid int) string {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		return ""
	}
	at := info.Proc.P_starttime
	return fmt.Sprintf("%d.%06d", at.Sec, at.Usec)
}
