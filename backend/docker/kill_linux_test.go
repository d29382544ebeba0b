package docker

import (
	"syscall"
	"testing"
)

// kill kills a container without the engine.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
