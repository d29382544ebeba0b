package supervise

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

const (
	canSupervise = false
	lockPause    = 5 * time.Millisecond
)

// newSession starts a process that runs no instruction before newTree has it.
func newSession(*Identity) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED}
}

// A tree is a job object: a process and all that it starts. Windows ends them when the last handle
// of the object is closed, so they also end with a server that is killed.
type tree struct{ job windows.Handle }

var resume = windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")

// newTree makes a tree of a process that newSession holds, and lets it run.
func newTree(pid int) (t tree, err error) {
	if t.job, err = windows.CreateJobObject(nil, nil); err != nil {
		return t, os.NewSyscallError("CreateJobObject", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	_, err = windows.SetInformationJobObject(t.job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err == nil {
		err = t.take(pid)
	}
	if err != nil {
		t.end()
	}
	return t, err
}

func (t tree) take(pid int) error {
	p, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE|windows.PROCESS_SUSPEND_RESUME, false, uint32(pid))
	if err != nil {
		return os.NewSyscallError("OpenProcess", err)
	}
	defer windows.CloseHandle(p)
	if err := windows.AssignProcessToJobObject(t.job, p); err != nil {
		return os.NewSyscallError("AssignProcessToJobObject", err)
	}
	if status, _, _ := resume.Call(uintptr(p)); status != 0 {
		return os.NewSyscallError("NtResumeProcess", windows.NTStatus(status))
	}
	return nil
}

// end ends every process of the tree. It may be called again.
func (t *tree) end() {
	if t.job != 0 {
		_ = windows.CloseHandle(t.job) // there is nobody to tell
		t.job = 0
	}
}

// terminateGroup sends CTRL_BREAK, which a program without a console does not get: a stop then waits
// for the grace and kills.
func terminateGroup(pid int) {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(pid))
}

// killGroup kills one process. The others end with its tree.
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
