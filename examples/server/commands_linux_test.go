package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/podyard/podyard/examples/server/version"
	"github.com/podyard/podyard/internal/suite"
)

// podyard runs a command of the program as an operator on the server's machine does: in the
// directory above the data directory, without a key in the environment.
func podyard(t *testing.T, in *instance, dir string, args ...string) (out string, code int) {
	t.Helper()
	cmd := command(t, []string{"PODYARD_URL=" + in.url}, args...)
	cmd.Dir = dir
	b, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

func TestTheVersionIsJSONOnDemandWhateverTheSettingsAre(t *testing.T) {
	t.Parallel()
	out, err := command(t, []string{"PODYARD_CONFIG=/nonexistent", "PODYARD_LOG=xml"}, "version", "-o", "json").Output()
	var got struct{ Version, Commit, Go, OS, Arch string }
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil || got.Version != version.Number || got.Commit == "" || got.Go != runtime.Version() || got.OS != "linux" || got.Arch != runtime.GOARCH {
		t.Errorf("version -o json prints %s (%v)", out, err)
	}
	if code := command(t, nil, "version", "-o", "xml").Run(); code == nil {
		t.Error("version -o xml is taken")
	}
}

func TestTheCommandsOfTheProgramRunAServerAndCallIt(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	dir := t.TempDir()
	in := startCommand(t, command(t, nil, "serve", "-addr", "127.0.0.1:0", "-data", filepath.Join(dir, "podyard-data"), "-runtime", "process"))
	must := func(want string, args ...string) string {
		t.Helper()
		out, code := podyard(t, in, dir, args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("podyard %v ends with %d, want 0 and %q: %s", args, code, want, out)
		}
		return out
	}
	must("podyard 0.2.0 (commit ", "version")
	must("ok\n", "health", "-ready")
	must("COMPLETED", "jobs", "submit", "echo", "-input", `{"hello":"world"}`, "-wait")
	var pod struct{ ID string }
	out := must("", "pods", "create", "-name", "web", "-image", "podyard/web", "-cpu", "host", "-ports", "8000/http", "-wait", "-o", "json")
	if err := json.Unmarshal([]byte(out), &pod); err != nil {
		t.Fatal(err, out)
	}
	must("container is healthy", "logs", pod.ID, "-source", "system")
	must(pod.ID, "pods", "list")
	must("1 pod", "top", "-n", "1")
	must(`"version": "0.2.0"`, "top", "-o", "json")
	must("terminated", "pods", "terminate", pod.ID)
	must("hello is drained", "drain", "-endpoint", "hello")
	must("drained", "top", "-n", "1")
	must("local is cordoned; its workers end after their jobs", "drain", "-host", "local")
	must("cordoned, ", "top", "-n", "1")
	must("local is active", "uncordon", "-host", "local")
	must("hello is active", "uncordon", "-endpoint", "hello")
	must("copied to copy", "backup", "copy")
	for code, args := range map[int][]string{2: {"nonsense"}, 3: {"pods", "get", "nothere"}, 5: {"keys", "list", "-key", "wrong"}, 1: {"check"}} {
		if out, got := podyard(t, in, dir, args...); got != code || !strings.HasPrefix(out, "podyard: ") {
			t.Errorf("podyard %v ends with %d, want %d: %s", args, got, code, out)
		}
	}
	in.stop()
	must(" 0 faults", "check")
	for _, name := range []string{"secret-key", "api-key"} {
		b, err := os.ReadFile(filepath.Join(dir, "podyard-data", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "copy", name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	must("restored from copy", "restore", "-data", "restored", "copy")
}
