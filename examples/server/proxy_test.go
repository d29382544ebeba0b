//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
)

// The proxies of the page for operators, as they are configured there but for addresses and
// certificates: long bodies pass, the server's own refusals arrive, and a log that goes on
// is read line by line.
func TestTheProxiesOfThePageHoldAndStream(t *testing.T) {
	t.Parallel()
	for kind, begin := range map[string]func(*testing.T, string, string) (string, *exec.Cmd){"nginx": nginx, "caddy": caddy} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(kind); err != nil {
				missing(t, "there is no "+kind)
			}
			in := start(t, "-runtime", "process", "-public-url", "https://pods.example.com")
			addr, cmd := begin(t, configOf(t, kind), strings.TrimPrefix(in.url, "http://"))
			proxy(t, cmd, addr)
			front := &instance{t: t, url: "http://" + addr, key: in.key}

			front.passes("/v2/echo/runsync", 19_000_000, http.StatusOK)
			front.passes("/v2/echo/run", 11_000_000, http.StatusRequestEntityTooLarge)
			front.passes("/v2/echo/runsync", 21_400_000, http.StatusRequestEntityTooLarge)
			front.streams()
		})
	}
}

// A held request is given up by a proxy after the time that its configuration says: it must
// be more than the 300 s that the interface allows.
func TestTheProxiesOfThePageWaitForTheLongestRequest(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile(`proxy_read_timeout (\d+)s;`).FindStringSubmatch(configOf(t, "nginx"))
	if m == nil {
		t.Fatal("nginx has its default of 60 s")
	}
	if n, _ := strconv.Atoi(m[1]); n <= 300 {
		t.Errorf("nginx waits for %d s, want more than 300", n)
	}
	if strings.Contains(configOf(t, "caddy"), "timeout") {
		t.Error("Caddy waits without end, unless it is told otherwise")
	}
}

// configOf is the block of the page for a proxy.
func configOf(t *testing.T, kind string) string {
	t.Helper()
	for _, b := range blocks(t, operating) {
		if b.kind == kind {
			return b.text
		}
	}
	t.Fatalf("the page has no configuration of %s", kind)
	return ""
}

// nginx is a command that serves the page's configuration without TLS, and where.
func nginx(t *testing.T, config, server string) (addr string, cmd *exec.Cmd) {
	dir, addr := t.TempDir(), suite.FreeAddress(t)
	site := strings.NewReplacer("127.0.0.1:8080", server, "listen 443 ssl;", "listen "+addr+";").Replace(config)
	site = regexp.MustCompile(`(?m)^ *ssl_.*\n`).ReplaceAllString(site, "")
	temp := ""
	for _, what := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += fmt.Sprintf("%s_temp_path %s;\n", what, filepath.Join(dir, what))
	}
	all := fmt.Sprintf("daemon off;\npid %s;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n", filepath.Join(dir, "pid"), temp, site)
	if os.Getuid() == 0 {
		all = "user root;\n" + all
	}
	return addr, exec.Command("nginx", "-c", writeIn(t, dir, "nginx.conf", all), "-e", "stderr")
}

// caddy is the same of Caddy.
func caddy(t *testing.T, config, server string) (addr string, cmd *exec.Cmd) {
	dir, addr := t.TempDir(), suite.FreeAddress(t)
	site := strings.NewReplacer("127.0.0.1:8080", server, "pods.example.com", "http://"+addr).Replace(config)
	file := writeIn(t, dir, "Caddyfile", "{\n\tadmin off\n\tauto_https off\n}\n"+site)
	cmd = exec.Command("caddy", "run", "--adapter", "caddyfile", "--config", file)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	return addr, cmd
}

func writeIn(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// atOnce is the signal that ends a proxy, and the processes it started, without waiting for
// connections.
var atOnce = map[string]os.Signal{"nginx": syscall.SIGTERM, "caddy": syscall.SIGQUIT}

// proxy runs a proxy until the test ends, and returns when it listens.
func proxy(t *testing.T, cmd *exec.Cmd, addr string) {
	t.Helper()
	out := &buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(atOnce[filepath.Base(cmd.Path)])
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the proxy's log:\n%s", out.String())
		}
	})
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("the proxy does not listen: %v", err)
		}
	}
}

// passes sends an input of so many bytes and wants a status of the server.
func (in *instance) passes(path string, size, status int) {
	in.t.Helper()
	got, body := in.do("POST", path, `{"input":{"x":"`+strings.Repeat("a", size)+`"}}`)
	if got != status || status != http.StatusOK && !bytes.Contains(body, []byte(`"title":"Content Too Large"`)) {
		in.t.Errorf("%s with %d bytes = %d %.200s, want %d of the server", path, size, got, body, status)
	}
}

// streams follows the log of a pod that goes on.
func (in *instance) streams() {
	in.t.Helper()
	p := in.web()
	log := in.follow(p.ID)
	log.await("container is healthy")
	resp, err := http.Get(in.pod(p.ID).address())
	if err != nil {
		in.t.Fatal(err)
	}
	_ = resp.Body.Close()
	log.await("GET ")
}
