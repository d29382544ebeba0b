package memory

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/podyard/podyard/pods"
)

var _ pods.Executor = (*Runtime)(nil)

// A Reply is what a simulated container answers to a command.
type Reply struct {
	// Command is a pattern for the words of the command, with a space between two, in which '*' matches
	// any text. For a connection it is "dial host:port". The first reply that matches applies, then
	// those of DefaultReplies.
	Command string
	Stdout  string
	Stderr  string
	// Echo copies the input to the output, to its end.
	Echo bool
	// Runs makes the command run on after that, until it gets a signal.
	Runs     bool
	ExitCode int
}

// DefaultReplies are those of every script: true and false, cat and every connection, which echo, and
// sh and bash, which echo without running anything.
func DefaultReplies() []Reply {
	return []Reply{
		{Command: "true"},
		{Command: "false", ExitCode: 1},
		{Command: "cat", Echo: true},
		{Command: "dial *", Echo: true},
		{Command: "sh", Stdout: "a simulated pod\r\n$ ", Echo: true},
		{Command: "bash", Stdout: "a simulated pod\r\n$ ", Echo: true},
	}
}

// Exec implements pods.Executor by the replies of the container's script. A command without one ends
// with 127.
func (r *Runtime) Exec(ctx context.Context, podID string, c pods.Command, s pods.Streams) (int, error) {
	r.mu.Lock()
	sim := r.containers[podID]
	if sim == nil || sim.state.Phase != pods.PhaseStarting && sim.state.Phase != pods.PhaseHealthy {
		r.mu.Unlock()
		return 0, pods.ErrNotRunning
	}
	reply, ok := sim.script.reply(c)
	gone := sim.gone()
	r.mu.Unlock()
	if !ok {
		_, err := fmt.Fprintf(s.Stderr, "%s: not in the script of the simulation\n", c.Argv[0])
		return 127, err
	}
	return reply.play(ctx, gone, s)
}

// gone returns a channel that is closed when this run ends. The caller holds the lock.
func (c *simContainer) gone() <-chan struct{} {
	if c.over == nil {
		c.over = make(chan struct{})
	}
	return c.over
}

func (s *Script) reply(c pods.Command) (Reply, bool) {
	text := strings.Join(c.Argv, " ")
	if c.Dial != "" {
		text = "dial " + c.Dial
	}
	all := append(slices.Clone(s.Replies), DefaultReplies()...)
	i := slices.IndexFunc(all, func(r Reply) bool { return simMatch(r.Command, text) })
	if i < 0 {
		return Reply{}, false
	}
	return all[i], true
}

// play writes the reply.
func (r Reply) play(ctx context.Context, gone <-chan struct{}, s pods.Streams) (int, error) {
	if err := r.say(s); err != nil {
		return 0, err
	}
	copied := make(chan error, 1)
	if r.Echo && s.Stdin != nil {
		out := &gate{to: s.Stdout}
		defer out.close()
		go func() { // the caller ends it: see pods.Streams
			_, err := io.Copy(out, s.Stdin)
			copied <- err
		}()
	} else if !r.Runs {
		return r.ExitCode, nil
	}
	events := s.Events
	for {
		select {
		case err := <-copied:
			if err != nil || !r.Runs {
				return r.ExitCode, err
			}
		case e, ok := <-events:
			if !ok {
				events = nil
			}
			if n := simSignals[e.Signal]; n != 0 {
				return 128 + int(n), nil
			}
		case <-gone:
			return 128 + int(syscall.SIGKILL), nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (r Reply) say(s pods.Streams) error {
	if _, err := io.WriteString(s.Stdout, r.Stdout); r.Stdout != "" && err != nil {
		return err
	}
	_, err := io.WriteString(s.Stderr, r.Stderr)
	if r.Stderr == "" {
		return nil
	}
	return err
}

var simSignals = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM,
}

// A gate is a writer that refuses when it is closed. It is closed when no write is in progress.
type gate struct {
	mu     sync.Mutex
	to     io.Writer
	closed bool
}

func (g *gate) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0, io.ErrClosedPipe
	}
	return g.to.Write(b)
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
