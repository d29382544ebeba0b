//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const canSupervise = true

// newSession starts a process in its own session and group, as a user if one is given.
func newSession(id *Identity) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if id != nil {
		attr.Credential = &syscall.Credential{Uid: id.UID, Gid: id.GID}
	}
	return attr
}

// A tree is what Windows needs to end all processes of a pod. Here they are found by their group.
type tree struct{}

func newTree(int) (tree, error) { return tree{}, nil }

func (*tree) end() {}

// The group has the number of pid. It is fine if it has ended already.

func terminateGroup(pid int) {
	if pid > 1 {
		_ = syscall.Kill(-pid, syscall.SIGTERM)
	}
}

func killGroup(pid int) {
	if pid > 1 {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

func signalOf(ps *os.ProcessState) (int, bool) {
	ws, ok := ps.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return 0, false
	}
	return int(ws.Signal()), true
}

const (
	// forkTime is how long a lock may outlive a killed server: a pod that it was starting has its
	// files until the exec.
	forkTime  = time.Second
	lockPause = 5 * time.Millisecond // between two tries to get it
)

// isLocked reports whether somebody holds the lock of path.
func isLocked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// Lock locks path while the file is open. The lock ends with the process, however it ends.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for range forkTime / lockPause { // not until an instant: this process may stand still
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(lockPause)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another server uses this directory")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock: %w", err), f.Close())
	}
	return f, nil
}
