package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

var _ pods.Executor = (*Runtime)(nil)

// A beginning is how a pod's program was started, for commands that join it.
type beginning struct {
	env  []string
	dir  string
	user *supervise.Identity
}

// Exec implements pods.Executor. A command runs as a descendant of the server, in the cgroups and the
// namespaces of the pod.
func (r *Runtime) Exec(ctx context.Context, podID string, c pods.Command, s pods.Streams) (int, error) {
	p := r.pods.Find(podID)
	if p == nil {
		return 0, pods.ErrNotRunning
	}
	p.mu.Lock()
	x, ports := p.published, slices.Clone(p.state.Ports)
	p.mu.Unlock()
	if x == nil || x.Over() {
		return 0, pods.ErrNotRunning
	}
	if c.Dial != "" {
		return 0, dial(ctx, c.Dial, ports, s)
	}
	code, err := p.exec(ctx, x, c, s)
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.Is(err, supervise.ErrEnded):
		return 0, pods.ErrNotRunning
	case err != nil:
		return 0, fmt.Errorf("process: exec in %q: %w", podID, err)
	}
	return code, nil
}

// beginning returns how the program of x was started.
func (x *proc) beginning(disk string) (*beginning, error) {
	if x.begun != nil {
		return x.begun, nil
	}
	env, err := x.Environment()
	if err != nil {
		return nil, err
	}
	user, err := x.UserOf()
	return &beginning{env, disk, user}, err
}

func (p *pod) exec(ctx context.Context, x *proc, c pods.Command, s pods.Streams) (int, error) {
	b, err := x.beginning(p.r.root.disk(p.id))
	if err != nil {
		return 0, err
	}
	t, err := openTransfer(&c, b.user)
	if err != nil {
		return 0, err
	}
	defer t.close()
	plan := supervise.Plan{
		Argv: c.Argv, Env: lastOnes(slices.Concat(b.env, c.Env)), Dir: cmp.Or(c.Dir, b.dir), User: b.user, Cgroups: x.Cgroups, TTY: c.TTY,
	}
	if i := p.r.policy.Load().isolator; i != nil {
		plan.Launch = i.opts.Launch
	}
	j, err := x.Join(supervise.Command{Plan: plan, Files: t.theirs})
	t.closeTheirs()
	if errors.Is(err, supervise.ErrNotRoot) {
		return 0, fmt.Errorf("%w: %w", pods.ErrNoExec, err)
	}
	if err != nil {
		return notStarted(err, &c, s)
	}
	return t.run(ctx, x, j, s)
}

// notStarted is the result of a command that could not be started.
func notStarted(err error, c *pods.Command, s pods.Streams) (int, error) {
	failed, ok := errors.AsType[*fs.PathError](err)
	if !ok || failed.Op != "exec" && failed.Op != "chdir" && failed.Op != "fork/exec" {
		return 0, err
	}
	to, what := s.Stderr, c.Argv[0]
	if c.TTY {
		to = s.Stdout
	}
	if failed.Op == "chdir" {
		what = cmp.Or(c.Dir, "its directory")
	}
	_, err = fmt.Fprintf(to, "%s: %v\n", what, failed.Err)
	if failed.Op != "chdir" && errors.Is(failed, fs.ErrNotExist) {
		return 127, err
	}
	return 126, err
}

// A transfer has the two ends of what a command reads and writes.
type transfer struct {
	theirs  [3]*os.File
	ours    [3]*os.File // of a terminal the first two are the same
	exited  atomic.Bool
	failure chan error
}

func openTransfer(c *pods.Command, user *supervise.Identity) (t *transfer, err error) {
	t = &transfer{failure: make(chan error, 3)}
	if c.TTY {
		master, slave, err := supervise.OpenTerminal(user, c.Size.Columns, c.Size.Rows)
		if err != nil {
			return nil, problem.Newf(problem.NotImplemented, "there is no terminal for this pod: %w", err)
		}
		t.ours, t.theirs = [3]*os.File{master, master}, [3]*os.File{slave, slave, slave}
		return t, nil
	}
	var errs [3]error
	t.theirs[0], t.ours[0], errs[0] = os.Pipe()
	for i := 1; i < 3; i++ {
		t.ours[i], t.theirs[i], errs[i] = os.Pipe()
	}
	if err := errors.Join(errs[:]...); err != nil {
		t.close()
		return nil, err
	}
	if err := give(t.theirs[1:], user); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// give lets a user open its output again, at /dev/stdout.
func give(files []*os.File, user *supervise.Identity) error {
	if user == nil {
		return nil
	}
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Chown(int(user.UID), int(user.GID)))
	}
	return errors.Join(errs...)
}

func (t *transfer) closeTheirs() { closeAll(t.theirs[:]) }

// close may close a file again, which does nothing.
func (t *transfer) close() {
	closeAll(t.theirs[:])
	closeAll(t.ours[:])
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // what was written has been read, or nobody reads it
		}
	}
}

// run passes everything on until the command has ended.
func (t *transfer) run(ctx context.Context, x *proc, j *supervise.Joined, s pods.Streams) (int, error) {
	tty := t.ours[2] == nil
	go t.input(s.Stdin, tty) // the caller ends it: see pods.Streams
	outputs := make(chan struct{})
	go func() {
		defer close(outputs)
		t.output(tty, s)
	}()
	events := s.Events
	for {
		select {
		case <-j.Ended():
			t.exited.Store(true)
			for _, f := range t.ours[1:] {
				if f != nil {
					_ = f.SetReadDeadline(time.Now().Add(outputGrace)) // wakes what waits for more
				}
			}
			select {
			case <-outputs:
			case <-ctx.Done():
				t.close()
				<-outputs
				return 0, ctx.Err()
			}
			return j.Exit().Code, t.failed()
		case err := <-t.failure:
			j.Kill()
			t.close()
			<-outputs
			return 0, err
		case <-ctx.Done():
			j.Kill()
			t.close()
			<-outputs
			return 0, ctx.Err()
		case <-x.Ended:
			j.Kill()
			x = &proc{Proc: &supervise.Proc{}} // its end was seen
		case e, ok := <-events:
			if !ok {
				events = nil
			}
			t.event(e, j, tty)
		}
	}
}

func (t *transfer) failed() error {
	select {
	case err := <-t.failure:
		return err
	default:
		return nil
	}
}

func (t *transfer) event(e pods.ExecEvent, j *supervise.Joined, tty bool) {
	if e.Size != (pods.WindowSize{}) && tty {
		_ = supervise.SetSize(t.ours[0], e.Size.Columns, e.Size.Rows) // the terminal is gone
	}
	if e.Signal != "" {
		j.Signal(e.Signal)
	}
}

// endOfText ends the input of a terminal, at the beginning of a line.
const endOfText = "\x04"

func (t *transfer) input(from io.Reader, tty bool) {
	if from != nil {
		_, _ = io.Copy(t.ours[0], from) // the command reads no more
	}
	if !tty {
		_ = t.ours[0].Close() // the same
	} else if from != nil {
		_, _ = io.WriteString(t.ours[0], endOfText)
	}
}

// outputGrace is how long the output of a command that has ended is awaited from what it has left
// running, after the last that came.
const outputGrace = 200 * time.Millisecond

// output passes on what the command writes, one write at a time.
func (t *transfer) output(tty bool, s pods.Streams) {
	if tty {
		t.copy(s.Stdout, t.ours[1])
		return
	}
	turn := make(chan struct{}, 1)
	errs := make(chan struct{})
	go func() {
		defer close(errs)
		t.copy(turns{s.Stderr, turn}, t.ours[2])
	}()
	t.copy(turns{s.Stdout, turn}, t.ours[1])
	<-errs
}

// turns is a writer that writes when no other one does.
type turns struct {
	io.Writer
	turn chan struct{}
}

func (w turns) Write(b []byte) (int, error) {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	return w.Writer.Write(b)
}

func (t *transfer) copy(to io.Writer, from *os.File) {
	buf := make([]byte, 32<<10)
	for {
		if t.exited.Load() {
			_ = from.SetReadDeadline(time.Now().Add(outputGrace)) // it is closed
		}
		n, err := from.Read(buf)
		if n > 0 {
			if _, failed := to.Write(buf[:n]); failed != nil {
				t.failure <- failed
				return
			}
		}
		if err != nil {
			return // the end: of a terminal it is an error
		}
	}
}

var (
	errPortNotListed = problem.New(problem.Forbidden, "a pod that shares the network of its host is reached at its listed ports only")
	errPortSilent    = problem.New(problem.BadGateway, "nothing answers at this port of the pod")
)

// dialTime is how long a connection to a pod may take.
const dialTime = 10 * time.Second

// dial connects to a listed port of a pod: everything else that listens on this machine is not its.
func dial(ctx context.Context, address string, ports []pods.PortMapping, s pods.Streams) error {
	host, text, err := net.SplitHostPort(address)
	port, wrong := strconv.Atoi(text)
	local := host == "localhost" || net.ParseIP(host) != nil && net.ParseIP(host).IsLoopback()
	i := slices.IndexFunc(ports, func(m pods.PortMapping) bool {
		return m.Protocol != "udp" && (m.Private == port || m.Public == port) && m.Public != 0
	})
	if err != nil || wrong != nil || !local || i < 0 {
		return errPortNotListed
	}
	conn, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", net.JoinHostPort(ports[i].IP, strconv.Itoa(ports[i].Public)))
	if err != nil {
		return errPortSilent
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() { // the caller ends it: see pods.Streams
		if s.Stdin != nil {
			_, _ = io.Copy(conn, s.Stdin) // the pod has closed
		}
		if half, ok := conn.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
	}()
	_, err = io.Copy(s.Stdout, conn)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ended := errors.AsType[*net.OpError](err); ended {
		return nil
	}
	return err
}
