package supervise

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	canSupervise = false
	lockPause    = 5 * time.Millisecond
)

func newSession(*Identity) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// terminateGroup does nothing: there is no signal that every program understands, so a stop
// waits for the grace and then kills.
func terminateGroup(int) {}

func killGroup(pid int) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	_ = p.Kill() // it has ended
	_ = p.Release()
}

func signalOf(*os.ProcessState) (int, bool) { return 0, false }

// isLocked reports false: a server of this system takes its pods along.
func isLocked(string) bool { return false }

// Lock opens a file that nobody else can open while it is open.
func Lock(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	const sharingViolation = syscall.Errno(32)
	if errors.Is(err, sharingViolation) {
		err = errors.New("another server uses this directory")
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return os.NewFile(uintptr(h), path), nil
}
