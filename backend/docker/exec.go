package docker

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

var _ pods.Executor = (*Runtime)(nil)

// execVariable marks the processes of a command with an id, so that they are found when the command
// has to end: engines cannot end one.
const execVariable = "PODYARD_EXEC"

// execEnd is how long the engine may take to note that a command has ended, and to end one.
const execEnd = 10 * time.Second

// Exec implements pods.Executor with the engine's own commands.
func (r *Runtime) Exec(ctx context.Context, podID string, c pods.Command, s pods.Streams) (int, error) {
	p := r.pods.Find(podID)
	if p == nil {
		return 0, pods.ErrNotRunning
	}
	if st, ok := p.currentState(); !ok || st.Phase != pods.PhaseStarting && st.Phase != pods.PhaseHealthy {
		return 0, pods.ErrNotRunning
	}
	if c.Dial != "" {
		return 0, p.dial(ctx, c.Dial, s)
	}
	x := &execution{p: p, tty: c.TTY, mark: rand.Text()}
	code, err := x.run(ctx, c, s)
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errdefs.IsNotFound(err), errdefs.IsConflict(err):
		return 0, pods.ErrNotRunning
	case err != nil:
		return 0, fmt.Errorf("docker: exec in %q: %w", podID, err)
	}
	return code, nil
}

// An execution is one command.
type execution struct {
	p    *pod
	id   string // the engine's
	mark string
	tty  bool
}

func (x *execution) run(ctx context.Context, c pods.Command, s pods.Streams) (int, error) {
	api := x.p.r.api
	size := client.ConsoleSize{Height: uint(c.Size.Rows), Width: uint(c.Size.Columns)}
	made, err := api.ExecCreate(ctx, x.p.name(), client.ExecCreateOptions{
		Cmd: c.Argv, Env: append(slices.Clone(c.Env), execVariable+"="+x.mark), WorkingDir: c.Dir,
		TTY: c.TTY, ConsoleSize: size, AttachStdin: s.Stdin != nil, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, err
	}
	x.id = made.ID
	conn, err := api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{TTY: c.TTY, ConsoleSize: size})
	if err != nil {
		return x.refused(ctx, err, s)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, conn.Close)()
	if s.Stdin != nil {
		go func() { // the caller ends it: see pods.Streams
			_, _ = io.Copy(conn.Conn, s.Stdin) // the command has ended, or reads no more
			_ = conn.CloseWrite()
		}()
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		x.begin(ctx, c.Size, over)
		x.follow(ctx, s.Events, over)
	}()
	if c.TTY {
		_, err = io.Copy(s.Stdout, conn.Reader)
	} else {
		err = splitFrames(conn.Reader, s.Stdout, s.Stderr)
	}
	if ctx.Err() != nil || err != nil && !isConnectionError(err) {
		x.end(context.WithoutCancel(ctx))
		return 0, err
	}
	return x.exitCode(ctx)
}

// refused is the result of a command that the engine could not start.
func (x *execution) refused(ctx context.Context, err error, s pods.Streams) (int, error) {
	end, gone := x.p.r.api.ExecInspect(ctx, x.id, client.ExecInspectOptions{})
	if gone != nil || end.Running || end.ExitCode != 126 && end.ExitCode != 127 {
		return 0, err
	}
	to := s.Stderr
	if x.tty {
		to = s.Stdout
	}
	_, err = fmt.Fprintln(to, errorText(err))
	return end.ExitCode, err
}

// exitCode waits until the engine knows how the command has ended: its output ends a moment before. A
// command that has closed its output goes on.
func (x *execution) exitCode(ctx context.Context) (int, error) {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	code := 0
	err := backoff.Retry(func() error {
		end, err := x.p.r.api.ExecInspect(ctx, x.id, client.ExecInspectOptions{})
		if err != nil {
			return backoff.Permanent(err)
		}
		if code = end.ExitCode; end.Running {
			return errStillRuns
		}
		return nil
	}, backoff.WithContext(wait, ctx))
	if ctx.Err() != nil {
		x.end(context.WithoutCancel(ctx))
	}
	return code, err
}

var errStillRuns = errors.New("it still runs")

// begin sets the first size of the terminal. Engines take it only once the command runs, and some of them
// ignore the one that it was made with.
func (x *execution) begin(ctx context.Context, size pods.WindowSize, over <-chan struct{}) {
	if !x.tty || size == (pods.WindowSize{}) {
		return
	}
	for wait := time.Millisecond; x.resize(ctx, size) != nil; wait = min(2*wait, 100*time.Millisecond) {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-over:
			t.Stop()
			return
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

func (x *execution) resize(ctx context.Context, size pods.WindowSize) error {
	_, err := x.p.r.api.ExecResize(ctx, x.id, client.ExecResizeOptions{Height: uint(size.Rows), Width: uint(size.Columns)})
	return err
}

// follow does what comes while the command runs.
func (x *execution) follow(ctx context.Context, events <-chan pods.ExecEvent, over <-chan struct{}) {
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			if e.Size != (pods.WindowSize{}) && x.tty {
				_ = x.resize(ctx, e.Size) // it has ended
			}
			if e.Signal != "" {
				x.signal(ctx, e.Signal, false)
			}
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// end kills what the command has started, as far as it is found.
func (x *execution) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, execEnd)
	defer cancel()
	x.signal(ctx, "KILL", true)
}

// signal sends a signal to the command, or to all of its processes. Where they are not processes of
// this machine, a shell of the image does it, if it has one.
func (x *execution) signal(ctx context.Context, name string, all bool) {
	if signalMarked(execVariable+"="+x.mark, name, all) {
		return
	}
	stop := "break"
	if all {
		stop = ":"
	}
	script := `for d in /proc/[0-9]*; do if tr '\0' '\n' <$d/environ 2>/dev/null | grep -qx "$0"; then kill -` + name + ` ${d#/proc/}; ` + stop + `; fi; done`
	if !x.p.execSucceeds(ctx, []string{"sh", "-c", script, execVariable + "=" + x.mark}, execEnd) {
		x.p.r.opts.Logger.Debug("docker: a command in a pod could not be signalled", "pod", x.p.id)
	}
}

// maxFrame is the size of a frame that no engine exceeds.
const maxFrame = 16 << 20

// splitFrames writes the frames of a command's output to where they belong.
func splitFrames(r io.Reader, stdout, stderr io.Writer) error {
	for {
		var header [8]byte
		if _, err := io.ReadFull(r, header[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		to, size := stdout, int64(binary.BigEndian.Uint32(header[4:]))
		if header[0] == 2 {
			to = stderr
		}
		if header[0] > 2 || size > maxFrame {
			return errors.New("output of a command is not in frames: stream " + strconv.Itoa(int(header[0])))
		}
		if _, err := io.CopyN(to, r, size); err != nil {
			return err
		}
	}
}
