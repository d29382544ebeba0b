package pods

import (
	"context"
	"io"
	"net"
	"path"
	"strconv"
	"strings"

	"github.com/podyard/podyard/problem"
)

// An Executor is an optional interface of a Runtime that runs commands inside its containers.
type Executor interface {
	// Exec runs a command inside the container of a pod, as the pod's user and with the
	// environment of its first process, and returns when it has ended and its output was written.
	// The result is its exit code: 128+n after signal n, 127 for a program that is not there and
	// 126 for one that cannot be started, with a line that says so. Some engines say 126 for both,
	// and have the line at Stdout.
	//
	// When ctx ends, the command and what it has started are ended, and the error is ctx's. The
	// error is ErrNotRunning where the container does not run, and a [problem.Error] for what this
	// runtime cannot do.
	Exec(ctx context.Context, podID string, c Command, s Streams) (code int, err error)
}

// A Command is what an Executor runs.
type Command struct {
	// Argv is the program and its arguments. The program is found as the pod's first process would.
	Argv []string
	// Env are variables, each NAME=value, in addition to those of the first process.
	Env []string
	// Dir is where it begins, absolute and inside the container. Default: where the first process did.
	Dir string
	// TTY gives it a terminal, of this size. Its output is then all at Stdout.
	TTY  bool
	Size WindowSize
	// Dial is a connection instead of a program: host:port over TCP, in the pod's own network.
	// Stdin and Stdout are the two directions of it, and the exit code is 0. A pod that shares the
	// network of its host is reached at the ports of its Spec only.
	Dial string
}

// A WindowSize is the size of a terminal in characters. Zeros: not known.
type WindowSize struct {
	Columns, Rows uint16
}

// Streams are what a command reads and writes, in the hands of its caller.
type Streams struct {
	// Stdin may be nil, which is empty. One Read may still wait when Exec returns; the caller ends it.
	Stdin io.Reader
	// Stdout and Stderr get the output. They are not written to at the same time, or after Exec has
	// returned. An error of Write ends the command.
	Stdout, Stderr io.Writer
	// Events change the command while it runs; nil for none.
	Events <-chan ExecEvent
}

// An ExecEvent is either a new size of the terminal, or a signal for the command.
type ExecEvent struct {
	Size   WindowSize // zero: not changed
	Signal string     // TERM, INT and others, without SIG; empty: none
}

// ErrNoExec is the error of a command for a pod whose host cannot run any.
var ErrNoExec = problem.New(problem.NotImplemented, "the host of this pod cannot run commands inside it")

// Limits of a Command.
const (
	maxExecArgs = 1024
	maxExecText = 128 << 10 // bytes of all arguments and variables
)

// check adds a fault for each part of c that cannot be run.
func (c *Command) check(faults *problem.Violations) {
	size := 0
	for i, a := range c.Argv {
		size += len(a) + 1
		if strings.ContainsRune(a, 0) {
			faults.Add(problem.Invalid, "/command/"+strconv.Itoa(i), "must not have a zero byte")
		}
	}
	for i, v := range c.Env {
		size += len(v) + 1
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.ContainsRune(v, 0) {
			faults.Add(problem.Invalid, "/env/"+strconv.Itoa(i), "must be NAME=value without a zero byte")
		}
	}
	switch {
	case c.Dial != "":
		c.checkDial(faults)
	case len(c.Argv) == 0 || c.Argv[0] == "":
		faults.Add(problem.Invalid, "/command", "must have a program")
	case len(c.Argv) > maxExecArgs:
		faults.Add(problem.Invalid, "/command", "must have at most %d entries", maxExecArgs)
	}
	if size > maxExecText {
		faults.Add(problem.Invalid, "/command", "must have at most %d bytes, with the environment", maxExecText)
	}
	if c.Dir != "" && (!path.IsAbs(c.Dir) || strings.ContainsRune(c.Dir, 0)) {
		faults.Add(problem.Invalid, "/dir", "must be an absolute path")
	}
}

func (c *Command) checkDial(faults *problem.Violations) {
	host, port, err := net.SplitHostPort(c.Dial)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n == 0 || host == "" {
		faults.Add(problem.Invalid, "/dial", "must be host:port")
	}
	if len(c.Argv) > 0 || c.TTY {
		faults.Add(problem.BadRequest, "/dial", "a connection has no command and no terminal")
	}
}

// Exec runs a command inside a pod of owner, at whichever server has its host. See [Executor.Exec].
// Errors: ErrNotFound, ErrNotRunning, ErrNoExec, ErrHostAway, the faults of c.
func (s *Service) Exec(ctx context.Context, owner, id string, c Command, st Streams) (int, error) {
	p, err := s.Get(ctx, owner, id)
	if err != nil {
		return 0, err
	}
	var faults problem.Violations
	c.check(&faults)
	if err := faults.Err([]string{"command", "env", "dir", "dial"}); err != nil {
		return 0, err
	}
	if p.Status() != Running {
		return 0, ErrNotRunning
	}
	x, err := s.executor(ctx, p.Placement.Host)
	if err != nil {
		return 0, err
	}
	return x.Exec(ctx, p.ID, c, st)
}

// executor returns what runs commands at a host.
func (s *Service) executor(ctx context.Context, host string) (Executor, error) {
	if h, ok := s.shared.lookUp(ctx, s.clock.Now(), host); ok {
		if s.reach == nil || h.row.Address == "" {
			return nil, ErrNoExec
		}
		if _, _, x := s.reach(h.row.Server, h.row.Address); x != nil {
			return x, nil
		}
		return nil, ErrNoExec
	}
	h, ok := s.hosts[host]
	switch {
	case ok:
		if x, ok := As[Executor](h.Runtime); ok {
			return x, nil
		}
		return nil, ErrNoExec
	case s.shared != nil && host != "":
		return nil, ErrHostAway
	}
	return nil, ErrNotRunning
}

// HostExec is Exec for a pod on one of the hosts of New, for another server as HostLogs is.
func (s *Service) HostExec(ctx context.Context, id string, c Command, st Streams) (int, error) {
	h, err := s.hostOf(ctx, id)
	if err != nil {
		return 0, err
	}
	if x, ok := As[Executor](h.Runtime); ok {
		return x.Exec(ctx, id, c, st)
	}
	return 0, ErrNoExec
}
