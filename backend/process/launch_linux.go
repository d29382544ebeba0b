package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// LaunchPod makes this process a pod. The main function of a program that was started with the
// arguments of Isolation.Launch calls it before anything else. It returns only with an error,
// which it has already reported to the server; the caller exits.
func LaunchPod() error {
	// Only the thread that becomes the program matters: the others end then.
	runtime.LockOSThread()
	for _, fd := range []int{planFD, answerFD} {
		// Somebody who calls the program by hand has no such descriptors.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return fmt.Errorf("process: this is for the server to start a pod with: %w", err)
		}
	}
	in, out := os.NewFile(planFD, "plan"), os.NewFile(answerFD, "answer")
	var p plan
	err := json.NewDecoder(in).Decode(&p)
	if err == nil && p.Probe {
		return json.NewEncoder(out).Encode(probeHost(&p))
	}
	if err == nil {
		err = p.become()
	}
	return errors.Join(fmt.Errorf("process: launch a pod: %w", err), json.NewEncoder(out).Encode(answerFor(err)))
}

// become returns only with an error. The order matters: each step needs rights or paths that a
// later one takes away.
func (p *plan) become() error {
	if err := joinCgroups(p.Cgroups); err != nil {
		return err
	}
	program, err := p.open()
	if err != nil {
		return err
	}
	if p.Mounts {
		if err := p.hideMounts(); err != nil {
			return err
		}
	}
	rules := -1
	if p.Landlock > 0 {
		if rules, err = p.ruleset(); err != nil {
			return err
		}
	}
	if err := p.limit(); err != nil {
		return err
	}
	if err := p.dropPrivileges(); err != nil {
		return err
	}
	if rules >= 0 {
		if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
			return os.NewSyscallError("landlock_restrict_self", errno)
		}
	}
	if err := os.Chdir(p.Dir); err != nil {
		return err
	}
	return &fs.PathError{Op: "exec", Path: p.Argv[0], Err: syscall.Exec(program, p.Argv, p.Env)}
}

// open returns the path by which the program is run. This program itself is run by a descriptor
// that was opened before anything was hidden, because it may be in a directory that the pod's
// user cannot reach.
func (p *plan) open() (path string, err error) {
	if p.Program != "" {
		return p.Program, nil
	}
	fd, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: "/proc/self/exe", Err: err}
	}
	return "/proc/self/fd/" + strconv.Itoa(fd), nil
}

// limit sets the limits that processes inherit.
func (p *plan) limit() error {
	limits := map[int]uint64{unix.RLIMIT_CORE: 0}
	if p.Processes > 0 {
		limits[unix.RLIMIT_NPROC] = uint64(p.Processes)
	}
	for resource, n := range limits {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	return nil
}

// dropPrivileges gives up all privileges for good.
func (p *plan) dropPrivileges() error {
	if p.DropCaps {
		if err := dropBoundingSet(); err != nil {
			return err
		}
	}
	if p.User != nil {
		if err := setUser(*p.User); err != nil {
			return err
		}
	}
	if err := clearCaps(); err != nil {
		return err
	}
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// dropBoundingSet makes sure that no later program of this thread gets capabilities from its
// file or from being root.
func dropBoundingSet() error {
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			return nil // the kernel knows no more capabilities
		}
		if err != nil {
			return os.NewSyscallError("prctl", err)
		}
	}
}

func setUser(id identity) error {
	if err := unix.Setgroups(nil); err != nil {
		return os.NewSyscallError("setgroups", err)
	}
	if err := unix.Setresgid(int(id.GID), int(id.GID), int(id.GID)); err != nil {
		return os.NewSyscallError("setresgid", err)
	}
	return os.NewSyscallError("setresuid", unix.Setresuid(int(id.UID), int(id.UID), int(id.UID)))
}

// clearCaps empties the sets of this thread, the ambient one included.
func clearCaps() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return os.NewSyscallError("capset", unix.Capset(&head, &none[0]))
}

// joinCgroups moves this process into cgroups: 0 means the writing process.
func joinCgroups(dirs []string) error {
	for _, dir := range dirs {
		if err := writeCgroup(dir, "cgroup.procs", "0"); err != nil {
			return err
		}
	}
	return nil
}

// probeHost tries all steps that a plan may have.
func probeHost(p *plan) answer {
	a := answer{Probed: true, Lacks: lacks{}}
	note := func(name string, err error) {
		if err != nil {
			a.Lacks[name] = err.Error()
		}
	}
	mounts := p.hideMounts()
	note(lacksMounts, mounts)
	if mounts == nil {
		note(lacksHiddenPIDs, hidePIDs())
	} else {
		note(lacksHiddenPIDs, mounts)
	}
	version, err := landlockVersion()
	note(lacksLandlock, err)
	a.Landlock = version
	if version < landlockScopes {
		note(lacksSignals, fmt.Errorf("version %d of Landlock; %d has them", version, landlockScopes))
	}
	if os.Geteuid() == 0 { // other users have none and can get none
		note(lacksCaps, dropBoundingSet())
	}
	if p.User != nil {
		note(lacksUser, setUser(*p.User))
	}
	return a
}
