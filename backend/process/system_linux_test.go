package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/process/internal/supervise"
	"github.com/podyard/podyard/internal/insideprogram"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
)

// runOnLinux is runProgram for programs that need Linux.
func runOnLinux(name string, args []string) bool {
	switch name {
	case "server":
		serverProgram(args)
	case "attack":
		attack(args)
	case "inside":
		os.Exit(insideprogram.Run(os.Args[:2], args))
	case "asked": // ends when it is asked to
		waitFor("end")
		fmt.Println("the end")
		os.Exit(23)
	case "euid":
		fmt.Println(os.Geteuid())
		os.Exit(0)
	default:
		return false
	}
	return true
}

// insideCommand returns the commands inside pods, see podstest.Programs.
func insideCommand(self string) func(args ...string) []string {
	return func(args ...string) []string { return append([]string{self, "inside"}, args...) }
}

// wantNoProcesses fails if a process with a pod of dir in its environment is left.
func wantNoProcesses(t *testing.T, dir string) {
	t.Helper()
	for _, pid := range processesOf(t, dir) {
		t.Errorf("process %d of %s is left", pid, dir)
	}
}

// processesOf are the processes with a pod of dir in their environment.
func processesOf(t *testing.T, dir string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if strings.Contains(string(env), "HOME="+dir+"/") && !dead(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// dead reports whether a process has ended; it may still have to be reaped.
func dead(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// apart gives a program a session of its own.
func apart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func wantDead(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if !dead(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}

// awaitDead waits for the end of a process. A supervisor ends a moment after it has said that its pod
// has: with the race detector a program takes a second for that.
func awaitDead(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !dead(pid); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d goes on", pid)
		}
	}
}

// processes are those of a pod, by their numbers on the host.
func processes(t *testing.T, rt *Runtime, id string) []int {
	t.Helper()
	p := rt.pods.Find(id)
	p.mu.Lock()
	x := p.published
	p.mu.Unlock()
	if x == nil {
		return nil
	}
	pids, err := x.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

func TestEverythingAPodStartedEndsWithIt(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(mode, func(t *testing.T) { everythingEnds(t, mode) })
	}
}

func everythingEnds(t *testing.T, mode string) {
	t.Helper()
	ways := []string{"child", "session", "clean", "cleansession"}
	for _, tt := range []struct {
		name string
		args []string
		end  func(rt *Runtime) error
	}{
		{"when it is stopped", ways, func(rt *Runtime) error { return rt.Stop(t.Context(), "family", time.Second) }},
		{"when it is stopped without grace", ways, func(rt *Runtime) error { return rt.Stop(t.Context(), "family", 0) }},
		{"when it is removed", ways, func(rt *Runtime) error { return rt.Remove(t.Context(), "family", 0) }},
		{"when it ends by itself", []string{"child", "session", "clean", "exit"}, func(*Runtime) error { return nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt := open(t, t.TempDir(), isolated(mode))
			ensure(t, rt, spec("family", program(append([]string{"family"}, tt.args...)...)))
			awaitLine(t, rt, "family", "ready")
			pids := processes(t, rt, "family")
			if want := len(tt.args); len(pids) < want && tt.name != "when it ends by itself" {
				t.Fatalf("its processes are %v, want at least %d", pids, want)
			}
			if err := tt.end(rt); err != nil {
				t.Fatal(err)
			}
			if tt.name != "when it is removed" {
				await(t, rt, "family", "end", phase(pods.PhaseExited))
			}
			wantDead(t, pids)
		})
	}
}

func serverPods() []pods.Spec {
	run, chatty, family := spec("run", program("serve")), spec("chatty", program("print", "1000")), spec("family", program("family", "session", "clean"))
	run.Ports = []pods.Port{{Private: 80, Protocol: "http"}}
	drip := spec("drip", program("drip", strconv.Itoa(dripLines)))
	run.Disk = 1 // the next server measures it too
	return []pods.Spec{run, chatty, family, drip, spec("asked", program("asked"))}
}

// dripLines take some hundred milliseconds, which is longer than it takes to be healthy.
const dripLines = 50_000

// serverProgram runs a Runtime with pods in its working directory until it is killed.
func serverProgram(args []string) {
	self, _ := os.Executable()
	opts := &Options{
		Images: map[string]Image{"self": {Command: []string{self}, Env: map[string]string{asProgram: "1"}}},
	}
	if len(args) > 0 {
		isolated(args...)(opts)
	}
	rt, err := Open(".", opts)
	if err != nil {
		panic(err)
	}
	for _, s := range serverPods() {
		if err := rt.Ensure(context.Background(), s); err != nil {
			panic(err)
		}
	}
	for _, s := range serverPods() {
		p := rt.pods.Find(s.PodID)
		for {
			if got, _ := p.currentState(); got.Phase == pods.PhaseHealthy {
				break
			}
			runtime.Gosched()
		}
		fmt.Println("up", s.PodID)
	}
}

// crash runs a server in another process, kills it when its pods are healthy, and returns the
// directory.
func crash(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	crashIn(t, dir, args...)
	return dir
}

func crashIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(self, append([]string{"server"}, args...)...)
	server.Env = append(os.Environ(), asProgram+"=1")
	server.Dir, server.Stderr = dir, os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	overdue := time.AfterFunc(30*time.Second, func() { _ = server.Process.Kill() })
	lines := bufio.NewScanner(out)
	for up := 0; up < len(serverPods()) && lines.Scan(); up++ {
	}
	if !overdue.Stop() {
		t.Fatal("the pods of the server did not come up within 30 s")
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait() // it was killed
}

func TestNoLineIsLostOrTwiceOverCrashes(t *testing.T) {
	suite.SkipUnlessLong(t)
	dir := t.TempDir()
	for range 3 {
		crashIn(t, dir, "isolated")
	}
	rt := open(t, dir, isolated())
	got := awaitLine(t, rt, "drip", fmt.Sprintf("line %d", dripLines))
	if len(got) != dripLines-1 {
		t.Errorf("%d lines before the last, want %d", len(got), dripLines-1)
	}
	for i, line := range got {
		if want := fmt.Sprintf("line %d", i+1); line != want {
			t.Fatalf("line %d is %q, want %q", i+1, line, want)
		}
	}
}

func TestPodsOutliveTheCrashOfTheirServer(t *testing.T) {
	suite.SkipUnlessLong(t)
	for _, tt := range []struct {
		name   string
		args   []string
		change []func(*Options)
	}{
		{"and the next one isolates them", []string{"isolated"}, []func(*Options){isolated()}},
		{"and the next one does not isolate them", []string{"isolated"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := crash(t, tt.args...)
			wantPodsAdopted(t, open(t, dir, tt.change...))
		})
	}
}

// wantPodsAdopted wants the pods of a crashed server to go on.
func wantPodsAdopted(t *testing.T, rt *Runtime) {
	t.Helper()
	states, err := rt.List(t.Context())
	if err != nil || len(states) != len(serverPods()) {
		t.Fatalf("List = %+v, %v, want the pods of the server that died", states, err)
	}
	for _, s := range states {
		if s.Phase != pods.PhaseHealthy || s.Gen != 1 || s.Run != 1 || s.Started.IsZero() {
			t.Errorf("after the crash pod is %+v, want it Up", s)
		}
	}
	// Its port, its output and the idempotence of Ensure go on.
	run := await(t, rt, "run", "health", phase(pods.PhaseHealthy))
	if got, err := ask(run.Ports[0]); err != nil || got != "port 80" {
		t.Errorf("its port answers %q, %v", got, err)
	}
	ensure(t, rt, serverPods()[0])
	if again := await(t, rt, "run", "health", phase(pods.PhaseHealthy)); !again.Started.Equal(run.Started) {
		t.Errorf("Ensure after the crash started the pod again")
	}
	if got := awaitLine(t, rt, "chatty", "line 1000"); len(got) != 999 {
		t.Errorf("%d lines before the last, want 999", len(got))
	}
	// The state is that of the record until the job of the adoption has run.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, ok := rt.Sample(t.Context(), "run"); ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no sample of an adopted pod")
		}
	}
	// It can be stopped, with its children.
	awaitLine(t, rt, "family", "ready")
	pids := processes(t, rt, "family")
	if err := rt.Stop(t.Context(), "family", time.Second); err != nil {
		t.Fatal(err)
	}
	if got := await(t, rt, "family", "end", phase(pods.PhaseExited)); !got.Stopped {
		t.Errorf("stopped pod is %+v, want Stopped", got)
	}
	wantDead(t, pids)
}

func TestAnAdoptedPodKeepsItsExitCode(t *testing.T) {
	dir := crash(t, "isolated")
	rt := open(t, dir, isolated())
	await(t, rt, "asked", "health", phase(pods.PhaseHealthy))
	if err := os.WriteFile(filepath.Join(rt.root.disk("asked"), "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := await(t, rt, "asked", "end", phase(pods.PhaseExited)); got.ExitCode != 23 || got.Stopped {
		t.Errorf("pod is %+v, want the exit code 23 of its program", got)
	}
}

func TestAnEndWithoutAServerKeepsItsExitCode(t *testing.T) {
	dir := crash(t, "isolated")
	pod := filepath.Join(dir, "pods", "asked")
	if err := os.WriteFile(filepath.Join(pod, "disk", "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if s, err := supervise.ReadStatus(pod); err == nil && s.Ended && dead(s.Supervisor) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("its supervisor has not recorded its end within 30 s")
		}
	}
	rt := open(t, dir, isolated())
	if got := await(t, rt, "asked", "end", phase(pods.PhaseExited)); got.ExitCode != 23 || got.Stopped || len(got.Ports) > 0 {
		t.Errorf("pod is %+v, want the exit code 23 of its program", got)
	}
	awaitLine(t, rt, "asked", "the end")
}

func TestAPodEndsWithItsSupervisor(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(mode, func(t *testing.T) {
			rt := open(t, t.TempDir(), isolated(mode))
			ways := []string{"family", "child"}
			if mode != ModeNone || len(rt.policy.Load().isolator.lacks) == 0 { // in bubblewrap or a cgroup
				ways = append(ways, "session")
			}
			ensure(t, rt, spec("a", program(ways...)))
			awaitLine(t, rt, "a", "ready")
			pids := processes(t, rt, "a")
			s, err := supervise.ReadStatus(rt.root.pod("a"))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(s.Supervisor, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if got := await(t, rt, "a", "end", phase(pods.PhaseExited)); got.ExitCode != -1 || !strings.Contains(got.Reason, "not known") {
				t.Errorf("pod is %+v, want an end with an unknown code", got)
			}
			wantDead(t, []int{s.PID}) // what it holds, such as a GPU, is free
			for _, pid := range pids {
				awaitDead(t, pid)
			}
			wantNoProcesses(t, string(rt.root))
		})
	}
}

func TestPodsWithoutSupervisorsEndWithTheirServer(t *testing.T) {
	dir := crash(t)
	st, err := supervise.ReadStatus(layout(dir).pod("run"))
	if err != nil {
		t.Fatal(err)
	}
	rt := open(t, dir)
	for _, s := range serverPods() {
		if got := await(t, rt, s.PodID, "end", phase(pods.PhaseExited)); got.ExitCode != -1 || got.Stopped {
			t.Errorf("pod is %+v, want that it ended with its server", got)
		}
	}
	wantDead(t, []int{st.PID})
	for _, pid := range processesOf(t, dir) { // one has left its group, and is not found
		_ = syscall.Kill(pid, syscall.SIGKILL)
		awaitDead(t, pid)
	}
}

func TestAPodWhoseDirectoryIsGoneEnds(t *testing.T) {
	suite.SkipUnlessLong(t) // it takes ten seconds
	dir := crash(t, "isolated")
	st, err := supervise.ReadStatus(layout(dir).pod("run"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(layout(dir).at("pods")); err != nil {
		t.Fatal(err)
	}
	awaitDead(t, st.PID)
	awaitDead(t, st.Supervisor)
}

// The server may crash after it has started a pod and before it has recorded that.
func TestAStartThatTheServerDiedOverIsUndoneAndRepeated(t *testing.T) {
	dir := crash(t, "isolated")
	path := layout(dir).record("run")
	rec, err := readRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	lost, err := supervise.ReadStatus(layout(dir).pod("run"))
	if err != nil {
		t.Fatal(err)
	}
	rec.State.Run, rec.State.Phase, rec.Starting, rec.Running = 2, pods.PhasePulling, true, false
	if err := rec.write(path); err != nil {
		t.Fatal(err)
	}
	rt := open(t, dir, isolated())
	s := serverPods()[0]
	s.Run = 2
	ensure(t, rt, s)
	if got := await(t, rt, "run", "health", phase(pods.PhaseHealthy)); got.Run != 2 {
		t.Errorf("pod is %+v, want run 2", got)
	}
	wantDead(t, []int{lost.PID})
	awaitDead(t, lost.Supervisor)
}

func TestABusyPodIsSeenToBeBusy(t *testing.T) {
	rt := open(t, t.TempDir())
	s := spec("spin", program("spin"))
	s.VCPU, s.Memory = 1, 1
	ensure(t, rt, s)
	await(t, rt, "spin", "health", phase(pods.PhaseHealthy))
	deadline := time.After(30 * time.Second)
	for {
		got, ok := rt.Sample(t.Context(), "spin")
		if ok && got.CPU > 0 {
			return
		}
		select {
		case <-time.After(time.Second / 4):
		case <-deadline:
			t.Fatalf("Sample = %+v, %t, want some load", got, ok)
		}
	}
}

func TestADiskOfWhichAPodTookItsOwnRightsIsWiped(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("nobody takes rights from root")
	}
	rt := open(t, t.TempDir())
	script := "mkdir -p a/b && echo x > a/b/c && chmod 0 a/b && chmod 500 a . && echo done"
	s := spec("shut", pods.Spec{Image: "args", Args: []string{"/bin/sh", "-c", script}})
	ensure(t, rt, s)
	awaitLine(t, rt, "shut", "done")
	s.Gen, s.Run = 2, 2
	ensure(t, rt, s)
	got := await(t, rt, "shut", "end", func(s pods.ContainerState) bool { return s.Gen == 2 && s.Phase >= pods.PhaseExited })
	if got.Phase != pods.PhaseExited || got.ExitCode != 0 {
		t.Errorf("generation 2 is %+v, want it to have found an empty disk", got)
	}
	if err := rt.Remove(t.Context(), "shut", 0); err != nil {
		t.Errorf("Remove = %v, want nil", err)
	}
	if _, err := os.Stat(rt.root.pod("shut")); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
	wantNoTrash(t, rt)
}
