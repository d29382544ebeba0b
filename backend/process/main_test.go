package process

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/internal/sweeptest"
	"github.com/podyard/podyard/pods"
)

// asProgram makes the test binary run as one of the programs of pods.
const asProgram = "PODYARD_TEST_PROGRAM"

// launchArg makes it run as the launcher of isolated pods.
const launchArg = "podyard-test-launch"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == launchArg {
		if err := LaunchPod(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(125)
		}
		return
	}
	if os.Getenv(asProgram) != "" {
		runProgram(os.Args[1], os.Args[2:])
		return
	}
	if err := enginetest.Apart(); err != nil {
		fmt.Fprintln(os.Stderr, "these tests share the network of the machine:", err)
	}
	os.Exit(sweeptest.Main(m))
}

// images returns the test binary as an image. Descendants inherit the variable, like the mark.
func images(t *testing.T) map[string]Image {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Image{
		"self":    {Command: []string{self}, Env: map[string]string{asProgram: "1"}, AllowArgs: true, AllowEnv: []string{"TELL_*"}},
		"nothing": {Command: []string{"/nonexistent/program"}},
		"lost":    {Command: []string{self}, Dir: "/nonexistent"},
		"args":    {AllowArgs: true},
	}
}

func program(args ...string) pods.Spec { return pods.Spec{Image: "self", Args: args} }

func runProgram(name string, args []string) {
	switch name {
	case "run":
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		announceUp()
	case "exit":
		code, _ := strconv.Atoi(args[0])
		os.Exit(code)
	case "print":
		n, _ := strconv.Atoi(args[0])
		out := bufio.NewWriter(os.Stdout)
		for i := range n {
			fmt.Fprintf(out, "line %d\n", i+1)
		}
		out.Flush()
	case "drip":
		n, _ := strconv.Atoi(args[0])
		pace := time.NewTicker(time.Millisecond)
		for i := range n {
			fmt.Printf("line %d\n", i+1)
			if i%100 == 0 {
				<-pace.C
			}
		}
	case "tell":
		tell(args)
	case "count":
		count("disk", ".")
		for i := 0; os.Getenv("PODYARD_MOUNT_"+strconv.Itoa(i)) != ""; i++ {
			count("mount", os.Getenv("PODYARD_MOUNT_"+strconv.Itoa(i)))
		}
		fmt.Println("counted")
	case "serve":
		serve()
	case "spin":
		for n := uint64(1); n != 0; n += 2 {
		}
	case "family":
		family(args)
	default:
		if runOnLinux(name, args) {
			break
		}
		fmt.Fprintln(os.Stderr, "no such program:", name)
		os.Exit(99)
	}
	<-time.After(time.Hour) // and not select {}, which is a deadlock in a program without cgo
}

// announceUp makes the pod healthy when the program is ready, by listening on its port, so that
// no stop comes before.
func announceUp() {
	if port := os.Getenv("PORT"); port != "" {
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			panic(err)
		}
		go func() {
			for {
				if c, err := l.Accept(); err == nil {
					c.Close()
				}
			}
		}()
	}
}

func tell(args []string) {
	for _, a := range args {
		fmt.Printf("arg %q\n", a)
	}
	env := os.Environ()
	slices.Sort(env)
	for _, e := range env {
		if k, v, _ := strings.Cut(e, "="); strings.HasPrefix(k, "TELL_") {
			fmt.Printf("env %s=%q\n", k, v)
		}
	}
	fmt.Println("told")
}

func count(what, dir string) {
	path := filepath.Join(dir, "count")
	data, _ := os.ReadFile(path)
	n, _ := strconv.Atoi(string(data))
	if err := os.WriteFile(path, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		panic(err)
	}
	fmt.Println(what, n+1)
}

func serve() {
	for _, e := range os.Environ() {
		k, public, _ := strings.Cut(e, "=")
		private, ok := strings.CutPrefix(k, "PODYARD_TCP_PORT_")
		if !ok {
			continue
		}
		l, err := net.Listen("tcp", os.Getenv("RUNPOD_PUBLIC_IP")+":"+public)
		if err != nil {
			panic(err)
		}
		go func() {
			for {
				if c, err := l.Accept(); err == nil {
					fmt.Fprintf(c, "port %s\n", private)
					c.Close()
				}
			}
		}()
	}
}

// family starts a descendant in each of the given ways to escape, and prints "ready" when they
// all run.
func family(how []string) {
	for _, h := range how {
		self, _ := os.Executable()
		if supervise.SelfPath != "" {
			self = supervise.SelfPath // its directory may be closed to this user
		}
		c := exec.Command(self, "run")
		c.Stdout = os.Stdout
		c.Env = os.Environ()
		switch h {
		case "child":
		case "session": // of its own, known by its mark
			apart(c)
		case "clean": // without the mark, known by the session
			c.Env = []string{asProgram + "=1"}
		case "cleansession": // with neither, known by its parent
			c.Env = []string{asProgram + "=1"}
			apart(c)
		case "exit":
			fmt.Println("ready")
			os.Exit(5)
		}
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Println("child", c.Process.Pid)
	}
	fmt.Println("ready")
}

// open opens a Runtime and closes it at the end of the test. No process with a mark of its pods
// may be left then.
func open(t *testing.T, dir string, change ...func(*Options)) *Runtime {
	t.Helper()
	opts := &Options{Images: images(t), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, f := range change {
		f(opts)
	}
	// Users of pods come to their directories where no bubblewrap hides what is above.
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	rt, err := Open(dir, opts)
	if err != nil {
		t.Fatalf("Open = %v, want nil", err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
		wantNoProcesses(t, dir)
	})
	return rt
}

// await waits for a state of a pod as List has it, woken by Watch.
func await(t *testing.T, rt *Runtime, id, what string, ok func(pods.ContainerState) bool) pods.ContainerState {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var got, last pods.ContainerState
	look := func() bool {
		all, err := rt.List(ctx)
		if err != nil {
			t.Fatalf("List = %v, want nil", err)
		}
		for _, s := range all {
			if s.PodID == id {
				if last = s; ok(s) {
					got = s
					return true
				}
			}
		}
		return false
	}
	if look() {
		return got
	}
	found := false
	wake, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan struct{}, 1)
	go func() {
		_ = rt.Watch(wake, func(pods.ContainerState) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	for tick := time.NewTicker(50 * time.Millisecond); !found; {
		select {
		case <-changed:
		case <-tick.C: // for changes before Watch was called
		case <-ctx.Done():
			t.Fatalf("no %s of pod %s; it is %+v", what, id, last)
		}
		found = look()
	}
	return got
}

func phase(p pods.Phase) func(pods.ContainerState) bool {
	return func(s pods.ContainerState) bool { return s.Phase == p }
}

// awaitLine follows the output of a pod up to a line and returns the lines before it.
func awaitLine(t *testing.T, rt *Runtime, id, last string) (before []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for line, err := range rt.Logs(ctx, id, pods.LogQuery{Tail: -1, Follow: true}) {
		if err != nil {
			t.Fatalf("Logs yields %v", err)
		}
		if line.Text == last {
			return before
		}
		before = append(before, line.Text)
	}
	t.Fatalf("no line %q after %q", last, before)
	return nil
}

func spec(id string, s pods.Spec) pods.Spec {
	s.PodID, s.Gen, s.Run = id, 1, 1
	return s
}

func ensure(t *testing.T, rt *Runtime, s pods.Spec) {
	t.Helper()
	if err := rt.Ensure(t.Context(), s); err != nil {
		t.Fatalf("Ensure = %v, want nil", err)
	}
}
