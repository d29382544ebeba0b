package docker

import (
	"syscall"
	"testing"
)

// kill ends a container behind the back of its engine.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
