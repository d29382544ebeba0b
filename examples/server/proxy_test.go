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
	"sync"
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

// Behind the configurations of the pages for several servers, no request is refused while they restart one after
// the other. The servers here share no store: each answers whole requests.
func TestNoRequestIsRefusedWhileServersBehindTheProxiesOfThePagesRestart(t *testing.T) {
	t.Parallel()
	for kind, several := range map[string]struct {
		begin  func(*testing.T, string, string) (string, *exec.Cmd)
		config string
		wait   string // -drain-wait: how long a proxy that asks GET /readyz needs to hear of the end
	}{
		"nginx": {nginx, configsOf(t, operating, "nginx")[1], "0s"},
		"caddy": {caddy, configsOf(t, "../cluster/README.md", "caddy")[0], "2s"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(kind); err != nil {
				missing(t, "there is no "+kind)
			}
			first, second := suite.FreeAddress(t), suite.FreeAddress(t)
			begin := func(addr string) *instance {
				return start(t, "-addr", addr, "-runtime", "process", "-drain-wait", several.wait)
			}
			running := map[string]*instance{first: begin(first), second: begin(second)}
			config := strings.NewReplacer("127.0.0.1:8081", first, "127.0.0.1:8082", second).Replace(several.config)
			addr, cmd := several.begin(t, config, "")
			proxy(t, cmd, addr)
			front := &instance{t: t, url: "http://" + addr, key: testKey}
			eventually(t, "the proxy knows its servers", func() bool {
				code, _, err := send(front.request("GET", "/readyz", ""))
				return err == nil && code == http.StatusOK
			})
			load := front.submits(8)
			rounds := 2
			if os.Getenv("PODYARD_LONG") != "" {
				rounds = 8
			}
			for range rounds {
				for at, in := range running {
					in.stop()
					running[at] = begin(at)
					time.Sleep(800 * time.Millisecond) // the proxies look each half second
				}
			}
			served, refused := load()
			if n := len(refused); n > 0 {
				t.Errorf("%d of %d requests were refused, such as %s", n, served, refused[0])
			}
			if t.Logf("%d requests to %s over %d restarts", served, kind, 2*rounds); served < 50*rounds {
				t.Errorf("only %d requests were made", served)
			}
		})
	}
}

// submits has so many clients submit jobs and wait for them. What it returns ends them, and says how many requests
// they have made and what those were answered that were refused.
func (in *instance) submits(clients int) (end func() (served int, refused []string)) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	var served int
	var refused []string
	for range clients {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				code, text, err := send(in.request("POST", "/v2/echo/runsync", `{"input":{"a":1}}`))
				mu.Lock()
				if served++; err != nil || code != http.StatusOK { // a request that is held at the end is answered with IN_QUEUE
					refused = append(refused, fmt.Sprintf("%d %s %v", code, text, err))
				}
				mu.Unlock()
				time.Sleep(8 * time.Millisecond) // or the rate limit of runsync is met
			}
		})
	}
	return func() (int, []string) {
		close(stop)
		all.Wait()
		return served, refused
	}
}

// configOf is the first block of the page for a proxy.
func configOf(t *testing.T, kind string) string {
	t.Helper()
	return configsOf(t, operating, kind)[0]
}

// configsOf are all of a page.
func configsOf(t *testing.T, page, kind string) (list []string) {
	t.Helper()
	for _, b := range blocks(t, page) {
		if b.kind == kind {
			list = append(list, b.text)
		}
	}
	if len(list) == 0 {
		t.Fatalf("the page has no configuration of %s", kind)
	}
	return list
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
	site := strings.NewReplacer("http://127.0.0.1:8080", "http://"+addr, "127.0.0.1:8080", server, "pods.example.com", "http://"+addr).Replace(config)
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
