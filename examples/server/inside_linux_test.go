package main

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cli "github.com/podyard/podyard/httpapi/command"
	"github.com/podyard/podyard/internal/suite"
)

// remote runs a command of the program against a server, and returns what it prints and its error.
func (in *instance) remote(stdin string, args ...string) (string, error) {
	in.t.Helper()
	var out bytes.Buffer
	program := &cli.Program{Name: "podyard", Commands: cli.All()}
	env := map[string]string{"PODYARD_URL": in.url, "PODYARD_API_KEY": testKey}
	err := program.Run(in.t.Context(), args, cli.IO{
		Env: func(name string) string { return env[name] }, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &out,
	})
	return out.String(), err
}

func TestCommandsAndFilesGoIntoAPodAndOut(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("tar is not installed")
	}
	isolation := "auto"
	if os.Geteuid() != 0 {
		isolation = "none" // such a server runs no commands in bubblewrap
	}
	in := start(t, "-config", file(t, `{"processes":{"isolation":"`+isolation+`"},"images":{"local/still":{"command":["sleep","1000"]}}}`))
	p := in.create("local/still", "")
	in.follow(p.ID).await("system: container is healthy")

	out, err := in.remote("typed", "exec", "-i", p.ID, "--", "sh", "-c", "pwd; cat; echo wrong >&2; exit 3")
	if cli.Code(err) != 3 || err == nil || !strings.Contains(out, "typed") || !strings.Contains(out, "wrong") {
		t.Errorf("a command: %q, %v, want both outputs and exit code 3", out, err)
	}
	home, err := in.remote("", "exec", p.ID, "pwd")
	if err != nil {
		t.Fatal(err)
	}
	home = strings.TrimSpace(home)
	if out, err := in.remote("", "exec", p.ID, "nothere"); cli.Code(err) != 127 {
		t.Errorf("a program that is not there: %q, %v, want exit code 127", out, err)
	}
	if out, err := in.remote("test -t 0 && echo a${NO}terminal; exit 4\n", "exec", "-t", p.ID, "sh"); cli.Code(err) != 4 || !strings.Contains(out, "aterminal") {
		t.Errorf("a shell in a terminal: %q, %v, want a terminal and exit code 4", out, err)
	}

	local := t.TempDir()
	tree := filepath.Join(local, "tree")
	for name, text := range map[string]string{"a": "1", "b/c": strings.Repeat("2", 3<<20)} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := in.remote("", "cp", tree, p.ID+":"+home+"/"); err != nil {
		t.Fatalf("cp of a directory: %q, %v", out, err)
	}
	if out, err := in.remote("", "exec", p.ID, "--", "sh", "-c", "cat tree/a; wc -c <tree/b/c"); err != nil || strings.Join(strings.Fields(out), "") != "13145728" {
		t.Errorf("what came: %q, %v", out, err)
	}
	if out, err := in.remote("", "cp", p.ID+":"+home+"/tree/b", filepath.Join(local, "back")); err != nil {
		t.Fatalf("cp back: %q, %v", out, err)
	}
	if b, err := os.ReadFile(filepath.Join(local, "back", "c")); err != nil || len(b) != 3<<20 {
		t.Errorf("what came back: %d bytes, %v", len(b), err)
	}
	if out, err := in.remote("", "cp", p.ID+":"+home+"/nothere", local); cli.Code(err) != cli.ExitNotFound {
		t.Errorf("a file that is not there: %q, %v", out, err)
	}
	in.act(p.ID, "stop")
	eventually(t, "the pod has stopped", func() bool { return in.pod(p.ID).Status == "EXITED" })
	if status, b := in.do("POST", "/v2/pods/"+p.ID+"/exec", `{"command":["true"]}`); status != http.StatusConflict {
		t.Errorf("a command in a stopped pod = %d %s, want 409", status, b)
	}
}
