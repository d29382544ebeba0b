package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
)

func TestRuntime(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs of the suite end by a signal")
	}
	testRuntime(t, func(string) bool { return true })
}

// testRuntime runs the cases of the suite that pick selects. They run in parallel, because they
// mostly wait.
func testRuntime(t *testing.T, pick func(name string) bool, change ...func(*Options)) {
	t.Helper()
	for _, c := range podstest.RuntimeCases() {
		if pick(c.Name) {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				c.Test(t, harness(t, change...))
			})
		}
	}
}

// harness returns what the suite needs, with a Runtime of its own.
func harness(t *testing.T, change ...func(*Options)) podstest.Harness {
	t.Helper()
	dir := t.TempDir()
	change = append(change, func(o *Options) { // an image without a program
		o.Images["plain"] = Image{Env: o.Images["self"].Env, AllowArgs: true}
	})
	rt := open(t, dir, change...)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Where every user of the machine may run it: the pods may have another user than the tests.
	shown := t.TempDir()
	shownSelf := filepath.Join(shown, filepath.Base(self))
	if err := errors.Join(os.Chmod(filepath.Dir(shown), 0o755), os.Chmod(shown, 0o755), os.Link(self, shownSelf)); err != nil {
		t.Fatal(err)
	}
	entry := pods.Spec{Image: "plain", Entrypoint: []string{shownSelf, "tell"}}
	runs, missing, tells, counts, serves := program("run"), pods.Spec{Image: "no/such:image"}, program("tell"), program("count"), program("serve")
	stubborn := program("stubborn")
	// Its port accepts when it ignores signals.
	stubborn.Ports = []pods.Port{{Private: 80, Protocol: "http"}}
	inside := insideCommand(shownSelf)
	if i := rt.policy.Load().isolator; i != nil && i.bwrap != "" && os.Geteuid() != 0 {
		inside = nil
	}
	return podstest.Harness{
		Runtime: rt,
		Dial:    ask,
		Reopen: func(t *testing.T) pods.Runtime {
			if err := rt.Close(t.Context()); err != nil {
				t.Fatalf("Close = %v, want nil", err)
			}
			return open(t, dir, change...)
		},
		Programs: podstest.Programs{
			Runs: &runs, IgnoresStop: &stubborn, Missing: &missing, PrintsArgs: &tells, PrintsArgsByEntrypoint: &entry, Counts: &counts, Serves: &serves,
			Inside: inside,
			Exits:  func(code int) pods.Spec { return program("exit", strconv.Itoa(code)) },
			Prints: func(n int) pods.Spec { return program("print", strconv.Itoa(n)) },
		},
	}
}

func ask(m pods.PortMapping) (string, error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(m.IP, strconv.Itoa(m.Public)), suite.Within(time.Second))
	if err != nil {
		return "", err
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func TestASecondServerOfADirectoryIsRefused(t *testing.T) {
	suite.SkipUnlessLong(t)
	dir := t.TempDir()
	rt := open(t, dir)
	if second, err := Open(dir, nil); err == nil {
		_ = second.Close(t.Context())
		t.Fatal("second Open = nil, want an error")
	} else if !strings.Contains(err.Error(), "another server") {
		t.Errorf("second Open = %q, want it to speak of another server", err)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatalf("Close = %v, want nil", err)
	}
	open(t, dir)
}

func TestFailuresNameTheirCause(t *testing.T) {
	rt := open(t, t.TempDir())
	noFile, noDir := syscall.ENOENT.Error(), syscall.ENOENT.Error()
	if runtime.GOOS == "windows" { // it has words of its own
		noFile, noDir = exec.ErrNotFound.Error(), "ound" // as in: not found
	}
	for name, tt := range map[string]struct {
		spec pods.Spec
		want []string
	}{
		"an image that is not configured":         {pods.Spec{Image: "nginx:latest"}, []string{"nginx:latest", "args, lost, nothing, self", "container engine"}},
		"a command that does not exist":           {pods.Spec{Image: "nothing"}, []string{noFile}},
		"a working directory that does not exist": {pods.Spec{Image: "lost"}, []string{"working directory", noDir}},
		"no command at all":                       {pods.Spec{Image: "args"}, []string{"no command"}},
		"a private network of the owner":          {pods.Spec{Image: "self", NetworkAlias: "a.podyard.internal"}, []string{"private network"}},
		"a volume id that is a path": {
			pods.Spec{Image: "self", Mounts: []pods.Mount{{VolumeID: "../../etc", Path: "/x"}}}, []string{"../../etc", "plain name"}},
		"a volume id that is dots": {
			pods.Spec{Image: "self", Mounts: []pods.Mount{{VolumeID: "..", Path: "/x"}}}, []string{"plain name"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec("pod-"+strconv.Itoa(len(name)), tt.spec)
			ensure(t, rt, s)
			got := await(t, rt, s.PodID, "failure", phase(pods.PhaseFailed))
			for _, want := range tt.want {
				if !strings.Contains(got.Reason, want) {
					t.Errorf("Reason = %q, want it to name %q", got.Reason, want)
				}
			}
		})
	}
}

func TestPathsOfTheHostAreForItsLogAndNotForThePodsUser(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	rt := open(t, dir, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if err := os.Remove(filepath.Join(dir, "volumes")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "volumes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inVolume := program("run")
	inVolume.Mounts = []pods.Mount{{VolumeID: "vol", Path: "/x"}}
	for id, tt := range map[string]struct {
		spec pods.Spec
		path string
	}{
		"command":   {pods.Spec{Image: "nothing"}, "/nonexistent/program"},
		"directory": {pods.Spec{Image: "lost"}, "/nonexistent"},
		"volume":    {inVolume, filepath.Join(dir, "volumes")},
	} {
		ensure(t, rt, spec(id, tt.spec))
		got := await(t, rt, id, "failure", phase(pods.PhaseFailed))
		if strings.Contains(got.Reason, tt.path) {
			t.Errorf("Reason = %q, want it without the path %s", got.Reason, tt.path)
		}
	}
	ensure(t, rt, spec("unknown", pods.Spec{Image: "no/such:image"}))
	await(t, rt, "unknown", "failure", phase(pods.PhaseFailed))
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	logged := strings.ReplaceAll(log.String(), `\\`, `\`) // slog quotes it
	for _, want := range []string{"pod=command image=nothing", "/nonexistent/program", "pod=directory", " /nonexistent:", "pod=volume", filepath.Join(dir, "volumes")} {
		if !strings.Contains(logged, want) {
			t.Errorf("the log does not say %q:\n%s", want, &log)
		}
	}
	if strings.Contains(log.String(), "pod=unknown") {
		t.Errorf("the log has what the user was told in full:\n%s", &log)
	}
}

func TestReasonsHaveNoPathsWhateverWrapsThem(t *testing.T) {
	err := fmt.Errorf("its state: %w", errors.Join(
		&fs.PathError{Op: "open", Path: "/host/a", Err: fs.ErrNotExist},
		&os.LinkError{Op: "rename", Old: "/host/b", New: "/host/c", Err: fs.ErrPermission}))
	if got := reason(err); strings.Contains(got, "/host") || !strings.Contains(got, "permission") {
		t.Errorf("reason = %q, want no path and what went wrong", got)
	}
}

func TestPodIDsThatArePathsAreRefused(t *testing.T) {
	rt := open(t, t.TempDir())
	for _, id := range []string{"", ".", "..", "../x", "a/b", `a\b`, "a..b", ".hidden", "a\x00b", "end.", strings.Repeat("a", 200)} {
		if err := rt.Ensure(t.Context(), spec(id, program("run"))); err == nil {
			t.Errorf("Ensure of pod %q = nil, want an error", id)
		}
	}
	if all, err := rt.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("List = %+v, %v, want nothing", all, err)
	}
}

func TestTheEnvironmentOfTheServerStaysItsOwn(t *testing.T) {
	t.Setenv("TELL_SECRET", "of the server")
	rt := open(t, t.TempDir())
	s := spec("env", program("tell"))
	s.Env = map[string]string{"TELL_SPEC": "s"}
	ensure(t, rt, s)
	got := awaitLine(t, rt, "env", "told")
	if len(got) != 1 || got[0] != `env TELL_SPEC="s"` {
		t.Errorf("the pod's environment is %q, want TELL_SPEC alone", got)
	}
}

func TestAnImageWithoutACommandRunsTheArgs(t *testing.T) {
	rt := open(t, t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ensure(t, rt, spec("args", pods.Spec{Image: "args", Args: []string{self, "print", "3"}, Env: map[string]string{asProgram: "1"}}))
	awaitLine(t, rt, "args", "line 3")
}

func TestAPodThatOpensNoPortIsUpAllTheSame(t *testing.T) {
	rt := open(t, t.TempDir(), func(o *Options) { o.ReadyTimeout = 50 * time.Millisecond })
	s := spec("late", program("run"))
	s.Ports = []pods.Port{{Private: 80, Protocol: "http"}}
	ensure(t, rt, s)
	await(t, rt, "late", "health", phase(pods.PhaseHealthy))
}

func TestAPortTakenByAnotherProgramChanges(t *testing.T) {
	rt := open(t, t.TempDir())
	s := spec("ports", program("serve"))
	s.Ports = []pods.Port{{Private: 80, Protocol: "http"}, {Private: 53, Protocol: "udp"}}
	ensure(t, rt, s)
	first := await(t, rt, "ports", "health", phase(pods.PhaseHealthy))
	if err := rt.Stop(t.Context(), "ports", time.Second); err != nil {
		t.Fatal(err)
	}
	await(t, rt, "ports", "end", phase(pods.PhaseExited))
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first.Ports[0].Public)))
	if err != nil {
		t.Skipf("somebody else was quicker: %v", err)
	}
	defer l.Close()
	s.Run = 2
	ensure(t, rt, s)
	second := await(t, rt, "ports", "health", phase(pods.PhaseHealthy))
	if second.Ports[0].Public == first.Ports[0].Public {
		t.Errorf("port %d is another program's and still published", first.Ports[0].Public)
	}
	if second.Ports[1] != first.Ports[1] {
		t.Errorf("the other port was %+v and is %+v, want it kept", first.Ports[1], second.Ports[1])
	}
}

func TestExitBySignalIs128AndMore(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("programs do not end by a signal here")
	}
	rt := open(t, t.TempDir())
	ensure(t, rt, spec("sig", pods.Spec{Image: "args", Args: []string{"/bin/sh", "-c", "kill -KILL $$"}}))
	got := await(t, rt, "sig", "end", phase(pods.PhaseExited))
	if got.ExitCode != 137 || got.Stopped || got.OOM {
		t.Errorf("pod is %+v, want code 137, neither Stopped nor OOM", got)
	}
}

func TestCloseStopsPodsAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	rt := open(t, dir)
	ensure(t, rt, spec("a", program("run")))
	await(t, rt, "a", "health", phase(pods.PhaseHealthy))
	var last pods.ContainerState
	watched := make(chan error, 1)
	go func() { watched <- rt.Watch(t.Context(), func(s pods.ContainerState) { last = s }) }()
	if err := rt.Close(t.Context()); err != nil {
		t.Fatalf("Close = %v, want nil", err)
	}
	wantNoProcesses(t, dir)
	if err := <-watched; !errors.Is(err, ErrClosed) {
		t.Errorf("Watch = %v after Close, want ErrClosed", err)
	}
	if err := rt.Ensure(t.Context(), spec("b", program("run"))); !errors.Is(err, ErrClosed) {
		t.Errorf("Ensure = %v after Close, want ErrClosed", err)
	}
	_ = last // the watch may have begun after the end
	again := open(t, dir)
	got := await(t, again, "a", "end", phase(pods.PhaseExited))
	if !got.Stopped || got.Reason != "server stopped" {
		t.Errorf("after reopening the pod is %+v, want Stopped with the reason %q", got, "server stopped")
	}
}

func TestAHurriedCloseWaitsForNobodysGrace(t *testing.T) {
	rt := open(t, t.TempDir(), func(o *Options) { o.Grace = time.Hour })
	ignoresSigterm(t, rt)
	if err := rt.Stop(t.Context(), "deaf", time.Hour); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rt.Close(ctx); err != nil {
		t.Fatalf("Close = %v, want nil", err)
	}
}

func TestALaterCallCanShortenTheGrace(t *testing.T) {
	for name, call := range map[string]func(rt *Runtime) error{
		"a stop":   func(rt *Runtime) error { return rt.Stop(t.Context(), "deaf", 0) },
		"a remove": func(rt *Runtime) error { return rt.Remove(t.Context(), "deaf", 10*time.Millisecond) },
		"a start": func(rt *Runtime) error {
			s := spec("deaf", program("run"))
			s.Gen, s.Run = 2, 2
			return rt.Ensure(t.Context(), s)
		},
		"a close": func(rt *Runtime) error { return rt.Close(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			rt := open(t, t.TempDir(), func(o *Options) { o.Grace = 10 * time.Millisecond })
			ignoresSigterm(t, rt)
			if err := rt.Stop(t.Context(), "deaf", time.Hour); err != nil {
				t.Fatal(err)
			}
			if err := call(rt); err != nil {
				t.Fatal(err)
			}
			switch name {
			case "a stop":
				await(t, rt, "deaf", "end", phase(pods.PhaseExited))
			case "a start":
				await(t, rt, "deaf", "health", func(s pods.ContainerState) bool { return s.Gen == 2 && s.Phase == pods.PhaseHealthy })
			}
		})
	}
}

// ignoresSigterm starts a pod that must be killed.
func ignoresSigterm(t *testing.T, rt *Runtime) {
	t.Helper()
	s := spec("deaf", program("stubborn"))
	s.Ports = []pods.Port{{Private: 80, Protocol: "tcp"}}
	ensure(t, rt, s)
	await(t, rt, "deaf", "health", phase(pods.PhaseHealthy))
}

func TestARemovalGoesOnWhenItsCallerGoes(t *testing.T) {
	rt := open(t, t.TempDir())
	ignoresSigterm(t, rt)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rt.Remove(ctx, "deaf", time.Hour); !errors.Is(err, context.Canceled) {
		t.Fatalf("Remove = %v, want context.Canceled", err)
	}
	if err := rt.Ensure(t.Context(), spec("deaf", program("run"))); err == nil {
		t.Errorf("Ensure of a pod that is being removed = nil, want an error")
	}
	if err := rt.Remove(t.Context(), "deaf", 0); err != nil {
		t.Errorf("second Remove = %v, want nil", err)
	}
	if all, err := rt.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("List = %+v, %v, want nothing", all, err)
	}
}

// stall makes the jobs of a pod wait. It returns when they wait, with a function that lets them
// go on.
func stall(p *pod) (goOn func()) {
	reached, release := make(chan struct{}), make(chan struct{})
	p.jobs.Do(func() { close(reached); <-release })
	<-reached
	return func() { close(release) }
}

// calledOff calls Remove with a context that has ended.
func calledOff(t *testing.T, rt *Runtime, id string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rt.Remove(ctx, id, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("Remove = %v, want context.Canceled", err)
	}
}

func TestASecondRemovalLeavesANewPodOfTheIDAlone(t *testing.T) {
	rt := open(t, t.TempDir())
	ensure(t, rt, spec("a", program("run")))
	old := rt.pods.Find("a")
	first := stall(old)
	calledOff(t, rt, "a")
	removed, second := make(chan struct{}), make(chan struct{})
	old.jobs.Do(func() { close(removed); <-second })
	calledOff(t, rt, "a")
	over := make(chan struct{})
	old.jobs.Do(func() { close(over) })
	first()
	<-removed
	ensure(t, rt, spec("a", program("run")))
	await(t, rt, "a", "health", phase(pods.PhaseHealthy))
	close(second)
	<-over
	if _, err := readRecord(rt.root.record("a")); err != nil {
		t.Errorf("the new pod's record: %v, want that it is there", err)
	}
}

func TestAJobAfterTheRemovalOfItsPodLeavesANewPodOfTheIDAlone(t *testing.T) {
	rt := open(t, t.TempDir())
	ensure(t, rt, spec("a", program("run")))
	await(t, rt, "a", "health", phase(pods.PhaseHealthy))
	old := rt.pods.Find("a")
	if err := rt.Remove(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	ensure(t, rt, spec("a", program("run")))
	await(t, rt, "a", "health", phase(pods.PhaseHealthy))
	old.do(func() { // as when its files were given to its user meanwhile
		old.rec.State.Reason = "of the old pod"
		old.save()
	})
	over := make(chan struct{})
	old.jobs.Do(func() { close(over) })
	<-over
	if rec, err := readRecord(rt.root.record("a")); err != nil || rec.State.PodID != "a" || rec.State.Reason != "" {
		t.Errorf("the new pod's record is %+v, %v, want its own", rec.State, err)
	}
}

func TestAPodIsBeingRemovedUntilTheLastRemovalHasFailed(t *testing.T) {
	rt := open(t, t.TempDir())
	ensure(t, rt, spec("a", program("run")))
	await(t, rt, "a", "health", phase(pods.PhaseHealthy))
	if err := rt.Stop(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	p := rt.pods.Find("a")
	first := stall(p)
	p.jobs.Do(func() { // the first removal fails to end a process
		x := newProc(supervise.NewProc("", 0))
		x.KillErr = errors.New("1 of its processes cannot be ended")
		close(x.Ended)
		p.setProc(x)
	})
	calledOff(t, rt, "a")
	failed, second := make(chan struct{}), make(chan struct{})
	p.jobs.Do(func() { close(failed); <-second })
	calledOff(t, rt, "a")
	over := make(chan struct{})
	p.jobs.Do(func() { close(over) })
	first()
	<-failed
	if err := rt.Ensure(t.Context(), spec("a", program("exit", "0"))); err == nil {
		t.Error("Ensure between a removal that failed and another = nil, want that it is being removed")
	}
	close(second)
	<-over
	if all, err := rt.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("List = %+v, %v, want nothing", all, err)
	}
}

func TestRemoveLeavesVolumesAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	rt := open(t, dir)
	s := spec("full", program("count"))
	s.Mounts = []pods.Mount{{Path: "/a", Size: 10}, {VolumeID: "shared", Path: "/b"}}
	ensure(t, rt, s)
	awaitLine(t, rt, "full", "counted")
	if err := rt.Remove(t.Context(), "full", time.Second); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if left, err := os.ReadDir(rt.root.trash()); err != nil || len(left) == 0 {
			break
		}
	}
	var got []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && !d.IsDir() {
			got = append(got, filepath.ToSlash(strings.TrimPrefix(path, dir)))
		}
		return err
	})
	if diff := cmp.Diff([]string{"/lock", "/volumes/shared/count"}, got); err != nil || diff != "" {
		t.Errorf("files after Remove, %v (-want +got):\n%s", err, diff)
	}
}

func TestAStateThatCannotBeReadIsNotPassedOver(t *testing.T) {
	dir := t.TempDir()
	rt := open(t, dir)
	ensure(t, rt, spec("a", program("exit", "0")))
	await(t, rt, "a", "end", phase(pods.PhaseExited))
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := rt.root.record("a")
	for _, bad := range []string{"", "{", `{"version":99}`, `{"version":1,"state":{"PodID":"b"}}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := Open(dir, nil)
		if err == nil {
			_ = again.Close(t.Context())
			t.Fatalf("Open with the state %q = nil, want an error", bad)
		}
		if !strings.Contains(err.Error(), path) {
			t.Errorf("Open = %q, want it to name %s", err, path)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	open(t, dir) // it removes what is left of the pod
	if _, err := os.Stat(rt.root.pod("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the pod is left: %v", err)
	}
}

func TestAFollowerEndsWithItsServer(t *testing.T) {
	rt := open(t, t.TempDir())
	ensure(t, rt, spec("a", program("print", "1")))
	began, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for range rt.Logs(t.Context(), "a", pods.LogQuery{Tail: -1, Follow: true}) {
			close(began)
		}
	}()
	<-began
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("the follower goes on")
	}
}
