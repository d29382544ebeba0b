package enginetest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"github.com/podyard/podyard/internal/sweeptest"
)

// unshareEnv marks a process with its own namespaces, and its children.
const unshareEnv = "PODYARD_ENGINE_APART"

// hostPaths are directories that all Podman engines of a machine share: the mounts of
// container network namespaces, and in /run/containers the assigned addresses and the name
// server process. If two engines share the second one, each resolves the other's names, but
// in the network of only one of them.
var hostPaths = []string{"/run/netns", "/run/containers"}

// Main runs the tests of a package, as [sweeptest.Main] does, and then stops the engines that they
// started. Pass its result to os.Exit.
func Main(m interface{ Run() int }) int {
	running.together = unshareNetwork()
	return sweeptest.Main(engineTests{m})
}

type engineTests struct{ tests interface{ Run() int } }

// Run runs the tests and stops the engines.
func (e engineTests) Run() int {
	// Tests mostly wait for engines. A flag on the command line is parsed later and
	// overrides this value.
	_ = flag.Set("test.parallel", "4")
	code := e.tests.Run()
	running.Lock()
	defer running.Unlock()
	for _, e := range running.engines {
		e.stop()
	}
	return code
}

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
