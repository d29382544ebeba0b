package supervise

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Command is a program that joins a pod.
type Command struct {
	Plan

	Files [3]*os.File // its input and outputs; the first may be nil
}

// ErrEnded is the error of a command for a pod that has ended.
var ErrEnded = errors.New("it has ended")

// ErrNotRoot is the error of a command for a pod in bubblewrap where the server is not root: the mounts
// belong to one user namespace, and the pod's processes are in another one inside it, so nobody else may
// enter both.
var ErrNotRoot = errors.New("only a server that is root can enter bubblewrap")

// A Joined is a command that runs in a pod.
type Joined struct {
	cmd    *exec.Cmd
	nested bool // cmd only waits for the program, which is its child
	ended  chan struct{}
	exit   Exit
}

// Ended is closed when its first process has ended. Then Exit says how.
func (j *Joined) Ended() <-chan struct{} { return j.ended }

// Exit is how it has ended.
func (j *Joined) Exit() Exit { return j.exit }

// Environment returns the environment of the first process of a start.
func (x *Proc) Environment() ([]string, error) {
	s, err := x.first()
	if err != nil {
		return nil, err
	}
	return environmentOf(s.PID)
}

// first returns the record of the first process, which runs.
func (x *Proc) first() (Status, error) {
	if x.Over() {
		return Status{}, ErrEnded
	}
	if x.inside != nil {
		return x.inside.status, nil
	}
	s, err := ReadStatus(x.pod)
	if err != nil || s.Start != x.start || s.Ended || s.PID <= 1 {
		return s, errors.Join(ErrEnded, err)
	}
	return s, nil
}

// lookUp finds a program as a shell would, by the PATH of env. Relative paths are of dir.
func lookUp(name string, env []string, dir string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	list := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			list = value
		}
	}
	for _, d := range filepath.SplitList(list) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		path := filepath.Join(d, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", &fs.PathError{Op: "exec", Path: name, Err: syscall.ENOENT} //nolint:forbidigo // as the system says it to a shell
}

// joinDirectly starts a command beside a pod that has nothing to join.
func joinDirectly(c *Command) (*exec.Cmd, error) {
	program, err := lookUp(c.Argv[0], c.Env, c.Dir)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: program, Args: c.Argv, Env: c.Env, Dir: c.Dir, SysProcAttr: newSession(c.User)}
	c.pass(cmd)
	if c.TTY {
		ownTerminal(cmd.SysProcAttr)
	}
	return cmd, cmd.Start()
}

func (c *Command) pass(cmd *exec.Cmd) {
	if c.Files[0] != nil {
		cmd.Stdin = c.Files[0]
	}
	cmd.Stdout, cmd.Stderr = c.Files[1], c.Files[2]
}

// wait notes the end of a command.
func (j *Joined) wait() {
	j.exit = childExit(j.cmd)
	close(j.ended)
}

// joinPause is between two looks for what is left of a command.
const joinPause = 5 * time.Millisecond

// Kill ends a command and what it has started, as far as it is found.
func (j *Joined) Kill() {
	for deadline := time.Now().Add(sweepLimit); ; time.Sleep(joinPause) {
		j.SignalAll()
		select {
		case <-j.ended:
			return
		default:
		}
		if time.Now().After(deadline) {
			return
		}
	}
}

// splitEnvironment reads an environment as the kernel has it.
func splitEnvironment(data []byte) (env []string) {
	for v := range bytes.SplitSeq(data, []byte{0}) {
		if i := bytes.IndexByte(v, '='); i > 0 {
			env = append(env, string(v))
		}
	}
	return slices.Clip(env)
}
