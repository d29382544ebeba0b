package docker

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
)

func program(args ...string) pods.Spec { return pods.Spec{Image: plain, Args: args} }

// open opens a Runtime and removes its containers at the end.
func open(t testing.TB, d *enginetest.Engine, dir string, change ...func(*Options)) *Runtime {
	t.Helper()
	opts := &Options{Engine: d.Address(), LocalImages: []string{"podyard.test/*"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, f := range change {
		f(opts)
	}
	rt, err := Open(t.Context(), dir, opts)
	if err != nil {
		t.Fatalf("Open = %v, want nil", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
		defer cancel()
		for _, p := range rt.pods.All() {
			if err := rt.Remove(ctx, p.id, 0); err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("Remove = %v, want nil", err)
			}
		}
		if err := rt.Close(ctx); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	})
	return rt
}

func TestRuntime(t *testing.T) {
	alsoQuickly(t, func(t *testing.T, d *enginetest.Engine) {
		for _, c := range podstest.RuntimeCases() {
			if !aboutNetworks(c) && suite.RunsRuntimeCase(c.Name) {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					c.Test(t, harness(t, d))
				})
			}
		}
	})
}

// TestPrivateNetworks has the other cases and runs alone: Podman may lose the isolation
// when a network of another server is removed (see doc.go), and other tests are such
// servers.
func TestPrivateNetworks(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, kind := range enginetest.Kinds {
		t.Run(kind, func(t *testing.T) {
			d := requireEngine(t, kind)
			for _, c := range podstest.RuntimeCases() {
				if aboutNetworks(c) {
					t.Run(c.Name, func(t *testing.T) { c.Test(t, harness(t, d)) })
				}
			}
		})
	}
}

func aboutNetworks(c podstest.RuntimeCase) bool { return strings.Contains(c.Why, "private network") }

func harness(t *testing.T, d *enginetest.Engine) podstest.Harness {
	t.Helper()
	dir := t.TempDir()
	rt := open(t, d, dir)
	runs, missing, tells, serves := program("run"), pods.Spec{Image: nowhere}, program("tell"), program("serve")
	entry := pods.Spec{Image: plain, Entrypoint: []string{"/program", "tell"}}
	counts, asks := program("count"), program("ask")
	stubborn := program("stubborn")
	stubborn.Image = checked
	return podstest.Harness{
		Runtime: counting{rt}, Dial: ask, Timeout: time.Minute,
		Reopen: func(t *testing.T) pods.Runtime {
			if err := rt.Close(t.Context()); err != nil {
				t.Fatalf("Close = %v, want nil", err)
			}
			return open(t, d, dir)
		},
		Programs: podstest.Programs{
			Runs: &runs, IgnoresStop: &stubborn, Missing: &missing, PrintsArgs: &tells, PrintsArgsByEntrypoint: &entry, Counts: &counts, Serves: &serves, Dials: &asks,
			Inside: func(args ...string) []string { return append([]string{"/program", "inside"}, args...) },
			Exits:  func(code int) pods.Spec { return program("exit", strconv.Itoa(code)) },
			Prints: func(n int) pods.Spec { return program("print", strconv.Itoa(n)) },
		},
	}
}

// counting gives the paths of its mounts to the counting program. The suite cannot know
// that mounts in a container have no names of their own.
type counting struct{ *Runtime }

func (c counting) Ensure(ctx context.Context, s pods.Spec) error {
	if len(s.Args) > 0 && s.Args[0] == "count" {
		for _, m := range s.Mounts {
			s.Args = append(s.Args, m.Path)
		}
	}
	return c.Runtime.Ensure(ctx, s)
}

func ask(m pods.PortMapping) (string, error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(m.IP, strconv.Itoa(m.Public)), time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}
