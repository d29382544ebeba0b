package postgrestest

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// immediate is the signal after which the server ends as after a crash.
const immediate = syscall.SIGQUIT

// A process is the running server. It ends with the test process, however that ends.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// start starts a program from a thread that lives as long as the program: the system ends the
// program together with the thread.
func start(cmd *exec.Cmd, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the program has it open
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr.Pdeathsig = immediate
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
		close(p.exited)
	}()
	return p, <-started
}

// stop ends the process with a signal and waits for it. Nil is no process.
func (p *process) stop(how os.Signal) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(how) // it may have ended
	<-p.exited
}

// command is a program of the installation, which runs as nobody if this process is root's.
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return s.commandAt(ctx, filepath.Join(s.bin, name), args...)
}

// commandAt is command for a program anywhere.
func (s *Server) commandAt(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{}
	if uid, gid, err := nobody(); err == nil && os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
	return cmd
}

func nobody() (uid, gid uint32, err error) {
	u, err := user.Lookup("nobody")
	if err != nil {
		return 0, 0, err
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	g, err := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(n), uint32(g), err
}

// ownDir makes a directory of the user that the server runs as.
func ownDir() (string, error) {
	dir, err := os.MkdirTemp("", "podyard-postgres")
	if err != nil || os.Getuid() != 0 {
		return dir, err
	}
	uid, gid, err := nobody()
	if err != nil {
		return dir, err
	}
	return dir, os.Chown(dir, int(uid), int(gid))
}
