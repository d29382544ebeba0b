package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces are those of bubblewrap that a command joins.
var namespaces = [...]string{"mnt", "pid", "ipc", "uts"}

// Join starts a command in what a pod runs in: its cgroups, its namespaces, as its user. The goroutine
// that waits for it keeps the thread, at whose end the command would be killed.
func (x *Proc) Join(c Command) (*Joined, error) {
	s, err := x.first()
	if err != nil {
		return nil, err
	}
	j := &Joined{ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		j.cmd, err = x.join(&c, s)
		j.nested = c.Joins
		started <- err
		if err == nil {
			j.wait()
		}
	}()
	return j, <-started
}

func (x *Proc) join(c *Command, s Status) (*exec.Cmd, error) {
	if len(c.Launch) == 0 {
		return joinDirectly(c)
	}
	extra := []*os.File{}
	defer func() {
		for _, f := range extra {
			_ = f.Close() // it was only passed on
		}
	}()
	if c.Joins = apart(s.PID); c.Joins {
		if os.Geteuid() != 0 {
			return nil, ErrNotRoot
		}
		enter, err := exec.LookPath("nsenter")
		if err != nil {
			return nil, fmt.Errorf("this host lacks nsenter, of util-linux: %w", err)
		}
		c.Bwrap = []string{enter}
		for i, ns := range namespaces {
			f, err := os.Open("/proc/" + strconv.Itoa(s.PID) + "/ns/" + ns)
			if err != nil {
				return nil, errors.Join(ErrEnded, err)
			}
			extra = append(extra, f)
			c.Bwrap = append(c.Bwrap, nsenterOption[ns]+"=/proc/self/fd/"+strconv.Itoa(selfFD+1+i))
		}
		c.Keep = len(extra)
	}
	if !s.lives() { // then the namespaces are its, and not those of a later process with its number
		return nil, ErrEnded
	}
	return startStage(&c.Plan, func(cmd *exec.Cmd) {
		c.pass(cmd)
		cmd.ExtraFiles = append(cmd.ExtraFiles, extra...)
	})
}

// apart reports whether a process is in bubblewrap.
func apart(pid int) bool {
	its, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	ours, wrong := os.Readlink("/proc/self/ns/mnt")
	return err != nil || wrong != nil || its != ours
}

var nsenterOption = map[string]string{"mnt": "--mount", "pid": "--pid", "ipc": "--ipc", "uts": "--uts"}

// Signal sends a signal to the first process of a command.
func (j *Joined) Signal(name string) {
	number := unix.SignalNum("SIG" + name)
	if number == 0 {
		return
	}
	pid := j.cmd.Process.Pid
	if j.nested {
		all, err := tasks()
		i := slices.IndexFunc(all, func(t task) bool { return t.parent == pid })
		if err != nil || i < 0 {
			return
		}
		pid = all[i].pid
	}
	j.send(pid, number)
}

// send sends a signal to a process of the command: a handle is taken first, and its parent looked at
// after that.
func (j *Joined) send(pid int, number syscall.Signal) {
	if pid == j.cmd.Process.Pid {
		_ = j.cmd.Process.Signal(number) // it has ended
		return
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	if t, ok := readTask(pid); ok && t.parent == j.cmd.Process.Pid {
		_ = p.Signal(number) // it has ended
	}
	_ = p.Release() // nothing is lost
}

// SignalAll kills all processes of the command. They are stopped before the first one is killed, because
// the children of a process that has ended are not found any more.
func (j *Joined) SignalAll() {
	held := map[int]*os.Process{}
	for more := true; more; {
		more = false
		all, err := tasks()
		if err != nil {
			break
		}
		for _, t := range descendants(all, j.cmd.Process.Pid) {
			if held[t.pid] != nil {
				continue
			}
			p, err := os.FindProcess(t.pid)
			if now, ok := readTask(t.pid); err != nil || !ok || now.start != t.start {
				continue // it has ended
			}
			more, held[t.pid] = true, p
			_ = p.Signal(syscall.SIGSTOP) // it has ended
		}
	}
	for _, p := range held {
		_ = p.Kill()    // it has ended
		_ = p.Release() // nothing is lost
	}
	_ = j.cmd.Process.Kill() // it has ended
}

func environmentOf(pid int) ([]string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return splitEnvironment(data), err
}

// UserOf returns the user of the first process of a start; nil for the server's.
func (x *Proc) UserOf() (*Identity, error) {
	s, err := x.first()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID) + "/status")
	if err != nil || !s.lives() {
		return nil, errors.Join(ErrEnded, err)
	}
	var id Identity
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if name != "Uid" && name != "Gid" || len(fields) != 4 {
			continue
		}
		n, err := strconv.ParseUint(fields[1], 10, 32)
		if err != nil {
			return nil, err
		}
		if name == "Uid" {
			id.UID = uint32(n)
		} else {
			id.GID = uint32(n)
		}
	}
	if int(id.UID) == os.Geteuid() {
		return nil, nil
	}
	return &id, nil
}

// ownTerminal makes the first descriptor the terminal of the session.
func ownTerminal(a *syscall.SysProcAttr) { a.Setctty, a.Ctty = true, 0 }

// takeTerminal does the same for the calling process, which leads its session.
func takeTerminal() error {
	return os.NewSyscallError("ioctl", unix.IoctlSetInt(0, unix.TIOCSCTTY, 0))
}

// OpenTerminal makes a terminal for a user, who may open it again.
func OpenTerminal(user *Identity, columns, rows uint16) (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	var n uint32
	err = control(master, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		got, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
		n = got
		return err
	})
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(n)), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err == nil && user != nil {
		err = slave.Chown(int(user.UID), int(user.GID))
	}
	if err == nil {
		err = SetSize(master, columns, rows)
	}
	if err != nil {
		if slave != nil {
			err = errors.Join(err, slave.Close())
		}
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

// SetSize sets the size of a terminal.
func SetSize(master *os.File, columns, rows uint16) error {
	return control(master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	})
}

// control calls f with a descriptor, which stays one that does not block.
func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, os.NewSyscallError("ioctl", failed))
}
