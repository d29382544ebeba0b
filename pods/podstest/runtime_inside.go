package podstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
)

// Programs.Inside returns how a command is called inside a container of Runs, of these, or nil where
// the runtime does not have it:
//
//	exit CODE     ends with a code
//	copy          writes what it reads
//	tell ARGS     prints `arg "<value>"` for each arg, `env <NAME>="<value>"` for each variable whose
//	              name begins with TELL_, `dir "<its working directory>"`, and "on stderr" there, and
//	              ends with code 7
//	window        prints the size of its terminal as "80x24", and each new one, until it reads a line
//	wait          prints "ready" and runs on
//	family WORD   starts wait with WORD as an arg, and waits for it
//	alive WORD    prints how many processes wait have WORD as an arg
//	flood         writes without end

func insideCases() []RuntimeCase {
	return []RuntimeCase{{
		"ACommandHasItsExitCode",
		"Exec returns the exit code of the command",
		func(t *testing.T, h Harness) {
			x := h.inside(t, "exit", "0")
			for _, code := range []string{"0", "1", "42", "255"} {
				if got := x.run(t, "", h.command("exit", code)); fmt.Sprint(got.code) != code {
					t.Errorf("exit %s = %d", code, got.code)
				}
			}
		},
	}, {
		"ACommandReadsToTheEndAndItsOutputIsWhole",
		"all of Stdin reaches a command, with its end, and all that it writes is written before Exec returns",
		func(t *testing.T, h Harness) {
			x := h.inside(t, "copy")
			for _, text := range []string{"", "a line\n", strings.Repeat("0123456789abcdef", 1<<16)} {
				if got := x.run(t, text, h.command("copy")); got.code != 0 || got.stdout != text {
					t.Errorf("copy of %d bytes = code %d and %d bytes", len(text), got.code, len(got.stdout))
				}
			}
			if got := x.do(t, h.command("copy"), pods.Streams{}); got.code != 0 || got.stdout != "" {
				t.Errorf("copy without an input = %d, %q", got.code, got.stdout)
			}
		},
	}, {
		"ACommandHasItsArgsItsEnvironmentAndItsDirectory",
		"args arrive as they are, Env is added to the environment of the first process, Dir is the working directory, and the outputs are apart",
		func(t *testing.T, h Harness) {
			x := h.inside(t, "tell", "a b", "")
			c := h.command("tell", "a b", "", `"$HOME"`, "ä")
			c.Env, c.Dir = []string{"TELL_ONE=1", "TELL_TWO=a = b"}, "/"
			got := x.run(t, "", c)
			want := "arg \"a b\"\narg \"\"\narg \"\\\"$HOME\\\"\"\narg \"ä\"\nenv TELL_ONE=\"1\"\nenv TELL_TWO=\"a = b\"\ndir \"/\"\n"
			if diff := cmp.Diff(outcome{want, "on stderr\n", 7, nil}, got, cmp.AllowUnexported(outcome{}), cmp.Comparer(sameErrors)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		},
	}, {
		"ACommandHasTheEnvironmentOfTheFirstProcess",
		"a command has the variables that Spec.Env gives the pod",
		func(t *testing.T, h Harness) {
			x := h.inside(t, "tell")
			if got := x.run(t, "", h.command("tell")); !strings.Contains(got.stdout, "env TELL_POD=\"yes\"\n") {
				t.Errorf("tell = %q, want the pod's variable", got.stdout)
			}
		},
	}, {
		"AProgramThatIsNotThereIsCode127",
		"a program that does not exist ends with 127, or 126 where an engine says so, and a line, and is no error",
		func(t *testing.T, h Harness) {
			x := h.inside(t, "exit", "0")
			got := x.run(t, "", pods.Command{Argv: []string{"no-such-program-anywhere"}})
			if got.err != nil || got.code != 127 && got.code != 126 || strings.TrimSpace(got.stdout+got.stderr) == "" {
				t.Errorf("got code %d, %q, %v; want 127 with a line", got.code, got.stderr, got.err)
			}
		},
	}, {
		"ATerminalHasItsSizeAndTheNextOne",
		"with TTY a command has a terminal of Size, and sees each new size",
		func(t *testing.T, h Harness) {
			x := h.inside(t, "window")
			c := h.command("window")
			c.TTY, c.Size = true, pods.WindowSize{Columns: 81, Rows: 25}
			in, out, events := newPipe(), newWatched(), make(chan pods.ExecEvent, 1)
			done := x.start(t.Context(), c, pods.Streams{Stdin: in, Stdout: out, Stderr: out, Events: events})
			out.await(t, h, "81x25")
			events <- pods.ExecEvent{Size: pods.WindowSize{Columns: 120, Rows: 40}}
			out.await(t, h, "120x40")
			in.write("\n")
			if got := <-done; got.code != 0 || got.err != nil {
				t.Errorf("window = %d, %v", got.code, got.err)
			}
			in.close()
		},
	}, {
		"ASignalReachesTheCommand",
		"a signal that a command does not handle ends it with 128 and its number",
		func(t *testing.T, h Harness) {
			x := h.inside(t, "wait")
			out, events := newWatched(), make(chan pods.ExecEvent, 1)
			done := x.start(t.Context(), h.command("wait"), pods.Streams{Stdout: out, Stderr: out, Events: events})
			out.await(t, h, "ready")
			events <- pods.ExecEvent{Signal: "TERM"}
			if got := <-done; got.code != 143 || got.err != nil {
				t.Errorf("wait after TERM = %d, %v, want 143", got.code, got.err)
			}
		},
	}, {
		"ACommandEndsWithItsContext",
		"when ctx ends, Exec returns its error, and nothing that the command started is left",
		func(t *testing.T, h Harness) {
			x := h.inside(t, "family", "w")
			word := newID()
			ctx, cancel := context.WithCancel(t.Context())
			out := newWatched()
			done := x.start(ctx, h.command("family", word), pods.Streams{Stdout: out, Stderr: out})
			out.await(t, h, "ready")
			if got := x.run(t, "", h.command("alive", word)); strings.TrimSpace(got.stdout) != "1" {
				t.Fatalf("alive = %q, want 1", got.stdout)
			}
			cancel()
			if got := <-done; !errors.Is(got.err, context.Canceled) {
				t.Errorf("error = %v, want the context's", got.err)
			}
			h.until(t, "nothing of the command is left", func() bool {
				return strings.TrimSpace(x.run(t, "", h.command("alive", word)).stdout) == "0"
			})
		},
	}, {
		"AWriterThatFailsEndsTheCommand",
		"an error of Stdout ends a command that goes on writing",
		func(t *testing.T, h Harness) {
			x := h.inside(t, "flood")
			got := x.do(t, h.command("flood"), pods.Streams{Stdout: broken{}, Stderr: io.Discard})
			if got.err == nil && got.code == 0 {
				t.Errorf("flood = %d, %v, want an end", got.code, got.err)
			}
		},
	}, {
		"NoCommandRunsInAPodThatDoesNot",
		"Exec in a pod that is unknown, or has ended, is ErrNotRunning",
		func(t *testing.T, h Harness) {
			x := h.inside(t, "exit", "0")
			if _, err := x.rt.Exec(t.Context(), newID(), h.command("exit", "0"), sink()); !errors.Is(err, pods.ErrNotRunning) {
				t.Errorf("an unknown pod: %v", err)
			}
			h.stop(t, x.pod, 0)
			h.until(t, "the pod has ended", func() bool { s, ok := h.listed(t, x.pod); return ok && s.Phase == pods.PhaseExited })
			if _, err := x.rt.Exec(t.Context(), x.pod, h.command("exit", "0"), sink()); !errors.Is(err, pods.ErrNotRunning) {
				t.Errorf("a pod that has ended: %v", err)
			}
		},
	}, {
		"ACommandEndsWithItsPod",
		"a command that runs when its pod is stopped ends with it",
		func(t *testing.T, h Harness) {
			x := h.inside(t, "wait")
			out := newWatched()
			done := x.start(t.Context(), h.command("wait"), pods.Streams{Stdout: out, Stderr: out})
			out.await(t, h, "ready")
			h.stop(t, x.pod, 0)
			if got := <-done; got.err == nil && got.code == 0 {
				t.Errorf("the command ended with 0")
			}
		},
	}}
}

// An insider runs commands in a pod.
type insider struct {
	rt  pods.Executor
	pod string
}

type outcome struct {
	stdout, stderr string
	code           int
	err            error
}

func sameErrors(a, b error) bool { return (a == nil) == (b == nil) }

// inside starts a pod. The case is skipped where the runtime runs no commands.
func (h Harness) inside(t *testing.T, args ...string) *insider {
	t.Helper()
	rt, ok := pods.As[pods.Executor](h.Runtime)
	if !ok || h.Programs.Inside == nil || h.Programs.Inside(args...) == nil {
		t.Skip("this runtime has no such command")
	}
	s := h.pod(t, h.Programs.Runs, func(s *pods.Spec) { s.Env = map[string]string{"TELL_POD": "yes"} })
	h.ensure(t, s)
	h.until(t, "the pod is healthy", func() bool { st, ok := h.listed(t, s.PodID); return ok && st.Phase == pods.PhaseHealthy })
	return &insider{rt, s.PodID}
}

func (h Harness) command(args ...string) pods.Command {
	return pods.Command{Argv: h.Programs.Inside(args...)}
}

func sink() pods.Streams { return pods.Streams{Stdout: io.Discard, Stderr: io.Discard} }

func (x *insider) run(t *testing.T, stdin string, c pods.Command) outcome {
	t.Helper()
	got := x.do(t, c, pods.Streams{Stdin: strings.NewReader(stdin)})
	if got.err != nil {
		t.Fatalf("Exec(%q) = %v, want nil", c.Argv, got.err)
	}
	return got
}

// do runs a command to its end.
func (x *insider) do(t *testing.T, c pods.Command, s pods.Streams) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	if s.Stdout == nil {
		s.Stdout, s.Stderr = &out, &errs
	}
	code, err := x.rt.Exec(t.Context(), x.pod, c, s)
	return outcome{strings.ReplaceAll(out.String(), "env TELL_POD=\"yes\"\n", keep(c)), errs.String(), code, err}
}

// keep hides the variable of the pod from the case about those of a command.
func keep(c pods.Command) string {
	if len(c.Env) > 0 {
		return ""
	}
	return "env TELL_POD=\"yes\"\n"
}

func (x *insider) start(ctx context.Context, c pods.Command, s pods.Streams) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		code, err := x.rt.Exec(ctx, x.pod, c, s)
		done <- outcome{code: code, err: err}
	}()
	return done
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

// A pipe is an input that a case fills.
type pipe struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func newPipe() *pipe { r, w := io.Pipe(); return &pipe{r, w} }

func (p *pipe) Read(b []byte) (int, error) { return p.r.Read(b) }

func (p *pipe) write(s string) { go func() { _, _ = io.WriteString(p.w, s) }() }

func (p *pipe) close() { _ = p.w.Close() }

// A watched output can be waited for.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newWatched() *watched { return &watched{} }

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *watched) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.text.String(), text)
}

func (w *watched) await(t *testing.T, h Harness, text string) {
	t.Helper()
	h.Timeout = max(h.Timeout, 2*time.Minute)
	h.until(t, "the output has "+text, func() bool { return w.has(text) })
}
