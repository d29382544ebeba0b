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

// unshareEnv marks a process with its own namespaces, and its children.
const unshareEnv = "PODYARD_ENGINE_APART"

// hostPaths are directories that all Podman engines of a machine share: the mounts of
// container network namespaces, and in /run/containers the assigned addresses and the name
// server process. If two engines share the second one, each resolves the other's names, but
// in the network of only one of them.
var hostPaths = []string{"/run/netns", "/run/containers"}

// unshareNetwork calls Apart if this process may start engines. Engines write firewall rules,
// which apply to the whole machine: a second dockerd clears the tables of the first one, and the
// rules of a killed engine continue to redirect ports.
func unshareNetwork() error {
	able := slices.ContainsFunc(Kinds, func(kind string) bool {
		_, err := exec.LookPath(kind)
		return err == nil
	})
	if !able {
		return nil
	}
	return Apart()
}

// Apart gives this process its own network and mount namespaces, where it is root, and executes
// the program again. It does nothing the second time. Firewall rules end with the last process
// of the tests then.
func Apart() error {
	if os.Getenv(unshareEnv) != "" || os.Getuid() != 0 {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // namespaces belong to a thread; exec ends the other threads
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
