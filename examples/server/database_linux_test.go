package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
)

// secretConfig is a configuration with a secretKey.
func secretConfig(t *testing.T) string {
	t.Helper()
	return file(t, `{"secretKey":"`+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))+`"}`)
}

func TestAServerOverADatabaseKeepsEverything(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	var postgresql postgrestest.Server
	t.Cleanup(postgresql.Stop)
	url, local := postgresql.Empty(t), t.TempDir()
	args := []string{"-addr", "127.0.0.1:0", "-data", url, "-local", local, "-config", secretConfig(t)}
	in := startCommand(t, command(t, nil, args...))
	key := strings.TrimPrefix(in.line(), "key: ")
	in.key = key
	done := get[job](in, "POST", "/v2/echo/run", `{"input":{"a":1}}`, http.StatusOK)
	status := "/v2/echo/status/" + done.ID
	eventually(t, "the job completes", func() bool {
		return get[job](in, "GET", status, "", http.StatusOK).Status == "COMPLETED"
	})
	before := get[any](in, "GET", status, "", http.StatusOK)
	get[any](in, "POST", "/v2/registries", `{"name":"mine","username":"u","password":"hush-hush"}`, http.StatusCreated)
	running := get[job](in, "POST", "/v2/echo/run", `{"input":{"sleep_ms":3000}}`, http.StatusOK)
	p := in.web()
	in.follow(p.ID).await("system: container is healthy")
	pids := processes(t, p.ID)
	in.end(syscall.SIGKILL)
	killed := time.Now()

	in = startCommand(t, command(t, nil, args...))
	in.key = key
	if diff := cmp.Diff(before, get[any](in, "GET", status, "", http.StatusOK)); diff != "" {
		t.Errorf("the result after the crash (-before +after):\n%s", diff)
	}
	eventually(t, "the pod is RUNNING", func() bool { return in.pod(p.ID).Status == "RUNNING" })
	if diff := cmp.Diff(pids, processes(t, p.ID)); diff != "" {
		t.Errorf("processes of the pod, want the same one (-before +after):\n%s", diff)
	}
	if got := fmt.Sprint(get[any](in, "GET", "/v2/registries", "", http.StatusOK)); !strings.Contains(got, "mine") {
		t.Errorf("registries after the crash: %s, want mine", got)
	}
	postgresql.Restart(t, true, func() { get[any](in, "GET", "/v2/registries", "", http.StatusServiceUnavailable) })
	eventually(t, "the database is used again", func() bool {
		code, body := in.do("POST", "/v2/echo/runsync", `{"input":{"n":1}}`)
		return code == http.StatusOK && strings.Contains(string(body), `"COMPLETED"`)
	})
	in.act(p.ID, "terminate")
	gone(t, p.ID)
	time.Sleep(time.Until(killed.Add(30 * time.Second))) // the lease of the job that was running
	eventually(t, "the job that was running is run again", func() bool {
		return get[job](in, "GET", "/v2/echo/status/"+running.ID, "", http.StatusOK).Status == "COMPLETED"
	})
	in.stop()
	if rest := in.rest(); len(rest) > 0 {
		t.Errorf("the second start prints %q after its first line, want nothing", rest)
	}

	dump, err := exec.Command(postgresql.Program(t, "pg_dump"), url).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hush-hush", key} {
		if strings.Contains(string(dump), secret) {
			t.Errorf("the database shows %q", secret)
		}
	}

	// Another server has a directory of its own, and knows the key by its digest.
	args[5] = t.TempDir()
	in = startCommand(t, command(t, nil, args...))
	in.key = key
	get[any](in, "GET", status, "", http.StatusOK)
	in.stop()
	if rest := in.rest(); len(rest) > 0 {
		t.Errorf("another server prints %q after its first line, want nothing", rest)
	}
	if _, err := os.Stat(args[5] + "/api-key"); err == nil {
		t.Error("another server has kept a key of its own")
	}
}

func TestADatabaseThatCannotBeUsedIsNamedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	config := secretConfig(t)
	const url = "postgres://u:hush@127.0.0.1:1/d"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unreachable":  {[]string{"-data", url, "-config", config}, "-data: postgres: cannot connect to 127.0.0.1:1"},
		"URL":          {[]string{"-data", "postgres://u:hu/sh@h/d", "-config", config}, "-data: postgres: the URL of the database is not valid"},
		"secretKey":    {[]string{"-data", url}, "secretKey: is needed with a database"},
		"name":         {[]string{"-data", url, "-name", "a/b", "-config", config}, `-name "a/b": must be 1 to 63 letters`},
		"local":        {[]string{"-data", "dir", "-local", "x"}, "-local: is for a database"},
		"no directory": {[]string{"-data", url, "-local", "", "-config", config}, "-local: names no directory"},
		"backup":       {[]string{"-data", url, "-backup", "x", "-config", config}, "docs/postgres.md says how a database is copied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := command(t, nil, append([]string{"-addr", "127.0.0.1:0"}, c.args...)...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, %s\nwant %q", err, out, c.want)
			}
			if strings.Contains(string(out), "hush") || strings.Contains(string(out), "hu/sh") {
				t.Errorf("the password is shown: %s", out)
			}
		})
	}
}
