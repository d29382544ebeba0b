package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
)

// block is a block of the README, with addresses that are free here.
func block(t *testing.T, language, with string, replace *strings.Replacer) string {
	t.Helper()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[1], with) {
			return replace.Replace(m[1])
		}
	}
	t.Fatalf("the README has no block of %s with %q", language, with)
	return ""
}

// background runs a command in a process group of its own, which ends with the test.
func background(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &out, &out, &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("output:\n%s", out.String())
		}
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 1200 {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not within a minute: %s", what)
}

func status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body) // the status is enough
	return resp.StatusCode
}

// The commands of the README make two servers that answer as one, also behind Caddy.
func TestTheRecipeOfTheReadmeWorks(t *testing.T) {
	suite.SkipUnlessLong(t)
	var postgresql postgrestest.Server
	t.Cleanup(postgresql.Stop)
	database := postgresql.Empty(t)
	front, one, two := suite.FreeAddress(t), suite.FreeAddress(t), suite.FreeAddress(t)
	replace := strings.NewReplacer(
		"postgres://podyard:a-password@127.0.0.1:5432/podyard?sslmode=disable", database,
		"127.0.0.1:8080", front, "127.0.0.1:8081", one, "127.0.0.1:8082", two,
	)
	dir := t.TempDir()
	start := block(t, "sh", "go build", replace)
	for _, m := range regexp.MustCompile(`(?m)^go build -o (\S+) \./examples/(\S+)$`).FindAllStringSubmatch(start, -1) {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, m[1]), "../"+m[2]).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", m[0], err, out)
		}
		start = strings.Replace(start, m[0]+"\n", "", 1)
	}
	cmd := exec.Command("bash", "-euc", start)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir)
	background(t, cmd)
	for _, addr := range []string{front, one, two} {
		eventually(t, addr+" is ready", func() bool { return status("http://"+addr+"/readyz") == http.StatusOK })
	}
	try := func(replace *strings.Replacer) {
		t.Helper()
		for range 4 {
			curl := exec.Command("bash", "-c", block(t, "sh", "curl", replace))
			curl.Env = append(os.Environ(), "PODYARD_API_KEY=a-key-of-your-own")
			if out, err := curl.CombinedOutput(); err != nil || !strings.Contains(string(out), `"COMPLETED"`) {
				t.Errorf("the command of the README: %v\n%s", err, out)
			}
		}
	}
	try(replace)

	if _, err := exec.LookPath("caddy"); err != nil {
		if os.Getenv("PODYARD_CI") == "1" {
			t.Fatal(err)
		}
		t.Skip("there is no caddy")
	}
	other := suite.FreeAddress(t)
	replace = strings.NewReplacer("127.0.0.1:8080", other, "127.0.0.1:8081", one, "127.0.0.1:8082", two)
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte("{\n\tadmin off\n}\n"+block(t, "caddy", "reverse_proxy", replace)), 0o600); err != nil {
		t.Fatal(err)
	}
	caddy := exec.Command("caddy", "run", "--adapter", "caddyfile", "--config", file)
	caddy.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	background(t, caddy)
	eventually(t, "Caddy answers", func() bool { return status("http://"+other+"/readyz") == http.StatusOK })
	try(replace)
}

func TestArgumentsThatAreNoServersAreNamed(t *testing.T) {
	for _, args := range [][]string{{}, {"127.0.0.1:8081"}, {"http://127.0.0.1:8081/v2"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "http://HOST:PORT") {
			t.Errorf("run %q = %v, want an error that says what a server looks like", args, err)
		}
	}
}
