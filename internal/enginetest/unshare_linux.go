package enginetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
)

// unshareEnv marks a process that is apart, and those that it starts.
const unshareEnv = "PODYARD_ENGINE_APART"

// hostPaths are what Podman has in one place of the machine, wherever else it has all that is
// its own: the networks of containers where it mounts them, and in /run/containers which
// addresses are given and which process answers for the names of containers. Two engines that
// share the second tell of each other's names, in the network of one of them only.
var hostPaths = []string{"/run/netns", "/run/containers"}

// unshareNetwork gives this process a network and mounts of its own, if it may start engines at all,
// and begins anew in there. Engines write rules into the firewall, which are the whole
// machine's: a second dockerd empties the tables of the first, and the rules of an engine
// that was killed go on leading ports of the machine astray. Here all of it ends with the
// last process of the tests.
func unshareNetwork() error {
	able := slices.ContainsFunc(Kinds, func(kind string) bool {
		_, err := exec.LookPath(kind)
		return err == nil
	})
	if os.Getenv(unshareEnv) != "" || os.Getuid() != 0 || !able {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // a namespace is a thread's; the others end with the exec
	if err := syscall.Unshare(syscall.CLONE_NEWNET | syscall.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	err = errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		exec.Command("ip", "link", "set", "lo", "up").Run(),
	)
	for _, path := range hostPaths {
		err = errors.Join(err,
			os.MkdirAll(path, 0o755), //nolint:gosec // as the system makes it
			syscall.Mount("podyard", path, "tmpfs", 0, ""))
	}
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, append(os.Environ(), unshareEnv+"=1")) //nolint:gosec // this very program
}
