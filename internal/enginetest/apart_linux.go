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

// apartEnv marks a process that is apart, and those that it starts.
const apartEnv = "PODYARD_ENGINE_APART"

// namedNetworks is where Podman mounts the networks of containers, wherever else it has all
// that is its own.
const namedNetworks = "/run/netns"

// apart gives this process a network and mounts of its own, if it may start engines at all,
// and begins anew in there. Engines write rules into the firewall, which are the whole
// machine's: a second dockerd empties the tables of the first, and the rules of an engine
// that was killed go on leading ports of the machine astray. Here all of it ends with the
// last process of the tests.
func apart() error {
	able := slices.ContainsFunc(Kinds, func(kind string) bool {
		_, err := exec.LookPath(kind)
		return err == nil
	})
	if os.Getenv(apartEnv) != "" || os.Getuid() != 0 || !able {
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
		os.MkdirAll(namedNetworks, 0o755), //nolint:gosec // as the system makes it
		syscall.Mount("podyard", namedNetworks, "tmpfs", 0, ""),
		exec.Command("ip", "link", "set", "lo", "up").Run(),
	)
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, append(os.Environ(), apartEnv+"=1")) //nolint:gosec // this very program
}
