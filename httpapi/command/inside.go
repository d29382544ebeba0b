package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/podyard/podyard/httpapi/client"
)

func insideCommands() []Command {
	return []Command{
		{
			Name: "exec", Args: "POD [COMMAND...]", Remote: true, Summary: "run a command inside a pod, or a shell where a terminal is",
			Help:    "Write -- before a command with flags of its own. Without a command, or with -t, it has a terminal. The exit code is that of the command. Without a terminal each output is printed to 1 MB, once the command has ended.",
			Example: "exec 19dl... -- ls -l /workspace", New: execInside,
		},
		{
			Name: "cp", Args: "FROM TO", Remote: true, Summary: "copy a file or a directory into a pod, or out of it",
			Help:    "One of the two is POD:/PATH. A name that ends with a slash, or a local directory that exists, takes the copy by its old name. The image needs tar, or busybox.",
			Example: "cp train.py 19dl...:/workspace/", New: copyInside,
		},
		{
			Name: "ssh", Args: "POD [COMMAND...]", Remote: true, Summary: "run the ssh of this machine for a pod",
			Help:    "The server needs an SSH front, and one of your keys must be among those of the account. Write -- before flags of ssh: they may stand here, too. The exit code is that of ssh.",
			Example: "ssh 19dl... -- -L 8080:localhost:80", New: sshInside,
		},
	}
}

func execInside(f *flag.FlagSet) func(context.Context, *Call) error {
	tty := f.Bool("t", false, "have a terminal")
	input := f.Bool("i", false, "pass on standard input, to 1 MB, or to its end in a terminal")
	timeout := f.Duration("timeout", time.Minute, "how `long` a command without a terminal may take, 10m at most")
	return func(ctx context.Context, c *Call) error {
		pod, argv := c.Args[0], c.Args[1:]
		if *tty || len(argv) == 0 {
			return c.openTerminal(ctx, pod, argv)
		}
		cmd := client.PodCommand{Command: argv, Timeout: *timeout}
		if *input && c.Stdin != nil {
			b, err := io.ReadAll(io.LimitReader(c.Stdin, maxExecStdin+1))
			if err != nil {
				return err
			}
			if len(b) > maxExecStdin {
				return usagef("standard input has more than 1 MB: copy it with cp")
			}
			cmd.Stdin = string(b)
		}
		res, err := c.Client.Pods.Exec(ctx, pod, cmd)
		if err != nil {
			return err
		}
		_, err = io.WriteString(c.Stdout, res.Stdout)
		_, err2 := io.WriteString(c.Stderr, res.Stderr)
		if err = errors.Join(err, err2); err == nil && res.Truncated {
			_, err = fmt.Fprintln(c.Stderr, "podyard: the output was cut after 1 MB")
		}
		if err != nil {
			return err
		}
		return exited(res.ExitCode)
	}
}

func sshInside(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		p, err := c.Client.Pods.Get(ctx, c.Args[0])
		if err != nil {
			return err
		}
		at := p.SSH.Proxy
		if at == nil {
			return errors.New("the server has no SSH front for this pod: its operator starts it with -ssh, and podyard exec needs none")
		}
		if strings.HasPrefix(at.Host, "-") { // ssh would take it for a flag
			return fmt.Errorf("the server names the host %q", at.Host)
		}
		args := append([]string{"-p", strconv.Itoa(at.Port), "-l", at.Username, at.Host}, c.Args[1:]...)
		cmd := exec.CommandContext(ctx, "ssh", args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
		err = cmd.Run()
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			return exited(failed.ExitCode())
		}
		return err
	}
}

const maxExecStdin = 1 << 20

// exited is the error of a command that did not end with 0. The program ends with its exit code.
func exited(code int) error {
	if code == 0 {
		return nil
	}
	return &Error{code, fmt.Errorf("the command ended with exit code %d", code)}
}

// openTerminal joins the caller's terminal with one inside a pod.
func (c *Call) openTerminal(ctx context.Context, pod string, argv []string) error {
	t := client.PodTerminal{Command: argv, Stdin: c.Stdin, Stdout: c.Stdout}
	if in, ok := c.Stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		fd := int(in.Fd())
		was, err := term.MakeRaw(fd)
		if err != nil {
			return err
		}
		defer func() { _ = term.Restore(fd, was) }() // the terminal may be gone
		if out, ok := c.Stdout.(*os.File); ok {
			t.Size = sizeOf(out)
			t.Sizes = watchSize(ctx, out, t.Size)
		}
	}
	code, err := c.Client.Pods.Terminal(ctx, pod, t)
	if err != nil {
		return err
	}
	return exited(code)
}

func sizeOf(f *os.File) client.TerminalSize {
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 || rows <= 0 || columns > 65535 || rows > 65535 {
		return client.TerminalSize{}
	}
	return client.TerminalSize{Columns: uint16(columns), Rows: uint16(rows)}
}

// sizeLook is how often the size of a terminal is looked at: not every system sends a signal.
const sizeLook = 250 * time.Millisecond

// watchSize returns a channel for new sizes of a terminal, until ctx ends.
func watchSize(ctx context.Context, f *os.File, last client.TerminalSize) <-chan client.TerminalSize {
	sizes := make(chan client.TerminalSize)
	go func() {
		look := time.NewTicker(sizeLook)
		defer look.Stop()
		for {
			select {
			case <-look.C:
			case <-ctx.Done():
				return
			}
			now := sizeOf(f)
			if now == last || now == (client.TerminalSize{}) {
				continue
			}
			select {
			case sizes <- now:
				last = now
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}
