package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
)

// startPods runs a server whose image test/web is a web server, with members of its configuration beside
// those that this takes.
func startPods(t *testing.T, pods map[string]string, args ...string) *instance {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{
		"images":    map[string]any{"test/web": map[string]any{"command": []string{self}, "env": map[string]string{balanceWorkerEnv: "1"}, "users": []string{"*"}}},
		"processes": map[string]any{"user": ownUser()},
		"keys": []any{
			map[string]any{"key": "alice-writes-0123456789", "user": "alice", "scopes": []string{"pods:write"}},
			map[string]any{"key": "alice-reads-01234567890", "user": "alice", "scopes": []string{"pods:read"}},
			map[string]any{"key": "bob-writes-012345678901", "user": "bob", "scopes": []string{"*"}},
		},
		"pods": pods,
	}
	config, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, append([]string{"-config", file(t, string(config)), "-runtime", "process"}, args...)...)
}

// webPod makes a pod of test/web that runs.
func (in *instance) webPod() pod {
	in.t.Helper()
	p := in.create("test/web", `,"ports":["8888/http","9999/http","22/tcp"]`)
	eventually(in.t, "the pod runs", func() bool { return in.pod(p.ID).Status == "RUNNING" })
	return p
}

// visit makes a request to a port of a pod, by its name. Headers are "Name: value".
func (in *instance) visit(host, path string, headers ...string) (int, string, http.Header) {
	in.t.Helper()
	r, err := http.NewRequest(http.MethodGet, in.url+path, nil)
	if err != nil {
		in.t.Fatal(err)
	}
	r.Host = host
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		in.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		in.t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func TestAnHTTPPortOfAPodIsReachedByItsName(t *testing.T) {
	t.Parallel()
	in := startPods(t, nil)
	in.key = "alice-writes-0123456789"
	p := in.webPod()
	name := p.ID + "-8888.localhost"
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(in.url, "http://"))
	host := name + ":" + port

	if status, text, _ := in.visit(host, "/who"); status != 200 || text != p.ID {
		t.Errorf("GET http://%s/who = %d %q, want the pod", host, status, text)
	}
	status, text, header := in.visit(host, "/headers", `Cookie: __Secure-podyard=s; a={"x":1}; __Host-podyard=secret; b="2"`, "Podyard-Key: alice-writes-0123456789", "X-Real-IP: 10.0.0.1")
	if want := fmt.Sprintf("%s %q %q", host, `a={"x":1}; b="2"`, ""); status != 200 || text != want {
		t.Errorf("the pod sees host, cookies, and what it must not see: %d %s, want %s", status, text, want)
	}
	if got := header.Get("Set-Cookie"); got != "theme=dark; Path=/; HttpOnly" {
		t.Errorf("Set-Cookie = %q, want it without its domain: it would reach other pods", got)
	}
	if got := header.Get("Clear-Site-Data"); got != "" {
		t.Errorf("Clear-Site-Data = %q, want none: it would sign out of the console", got)
	}
	for _, tt := range []struct {
		why, host, path string
		want            int
	}{
		{"a port that is not of http", p.ID + "-22.localhost", "/", 404},
		{"a port that the pod does not list", p.ID + "-80.localhost", "/", 404},
		{"a pod that is not there", "abcdefghijklmn-8888.localhost", "/", 404},
		{"a number with a zero before", p.ID + "-08888.localhost", "/", 404},
		{"a port at which nothing listens", p.ID + "-9999.localhost", "/", 502},
		{"a path of the service", p.ID + "-8888.localhost", "/v2/pods", 404},
		{"a path of the probes", p.ID + "-8888.localhost", "/readyz", 404},
		{"a path of the console", p.ID + "-8888.localhost", "/console/", 404},
		{"a number that is no port's", p.ID + "-99999.localhost", "/", 404},
		{"a name with a dot at its end", p.ID + "-8888.localhost.", "/", 404},
		{"a name with a dot at its end and capitals", strings.ToUpper(p.ID) + "-8888.LOCALHOST.", "/who", 404},
		{"the interface at another name of this machine", "podyard.localhost", "/healthz", 200},
		{"the interface", "localhost", "/healthz", 200},
		{"the page of the service", "localhost", "/", 200},
		{"the page of the service at another name", "my-podyard.localhost", "/", 200},
	} {
		if status, text, _ := in.visit(tt.host, tt.path); status != tt.want {
			t.Errorf("%s, http://%s%s: %d %.200s, want %d", tt.why, tt.host, tt.path, status, text, tt.want)
		}
	}
	if got := echoes(t, in, host); got != "hello" {
		t.Errorf("a WebSocket to the pod sends back %q, want what was sent", got)
	}
	in.act(p.ID, "stop")
	eventually(t, "the pod has ended", func() bool { return in.pod(p.ID).Status == "EXITED" })
	if status, text, _ := in.visit(host, "/who"); status != 502 || !strings.Contains(text, "does not run") {
		t.Errorf("a port of a pod that was stopped: %d %q, want 502 with the reason", status, text)
	}
}

// echoes opens a WebSocket at /socket, which sends back what it gets.
func echoes(t *testing.T, in *instance, host string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(in.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = fmt.Fprintf(c, "GET /socket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", host)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %v, %v", resp, err)
	}
	_, _ = io.WriteString(c, "hello")
	b := make([]byte, 5)
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWithADomainOfItsOwnAPortTakesAKeyOfThePodsOwner(t *testing.T) {
	t.Parallel()
	in := startPods(t, map[string]string{"domain": "pods.example.com"}, "-public-url", "https://api.example.com")
	in.key = "alice-writes-0123456789"
	p := in.webPod()
	host := p.ID + "-8888.pods.example.com"
	for _, tt := range []struct {
		why, host, key string
		want           int
	}{
		{"the owner's key", host, "alice-writes-0123456789", 200},
		{"an operator's key", host, testKey, 200},
		{"no key", host, "", 401},
		{"a key that is none", host, "nobody-has-this-key-000", 401},
		{"a key that may not change pods", host, "alice-reads-01234567890", 403},
		{"another user's key", host, "bob-writes-012345678901", 404},
		{"no pod, without a key", "abcdefghijklmn-8888.pods.example.com", "", 401},
		{"no pod", "abcdefghijklmn-8888.pods.example.com", "alice-writes-0123456789", 404},
		{"no name of a port", "www.pods.example.com", testKey, 404},
	} {
		status, text, _ := in.visit(tt.host, "/headers", "Podyard-Key: "+tt.key)
		if status != tt.want {
			t.Errorf("%s: %d %s, want %d", tt.why, status, text, tt.want)
		}
		if strings.Contains(text, tt.key) && tt.key != "" {
			t.Errorf("%s: the answer has the key: %s", tt.why, text)
		}
	}
	if status, _, _ := in.visit("abcdefghijklmn-8888.localhost", "/healthz"); status != 200 {
		t.Errorf("a name of localhost is %d, want the interface: the domain is another one", status)
	}
}

func TestADomainOfPodsIsNotThatOfTheConsole(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ domain, lb, url string }{
		{"example.com", "", "https://console.example.com"},
		{"pods.console.example.com", "", "https://console.example.com"},
		{"console.example.com", "", "https://console.example.com"},
		{"lb.example.com", "lb.example.com", "https://console.example.net"},
		{"a.lb.example.com", "lb.example.com", "https://console.example.net"},
	} {
		config := fmt.Sprintf(`{"pods":{"domain":%q}}`, tt.domain)
		if tt.lb != "" {
			config = fmt.Sprintf(`{"pods":{"domain":%q},"loadBalancer":{"domain":%q}}`, tt.domain, tt.lb)
		}
		out, err := command(t, nil, "-data", "", "-addr", "127.0.0.1:0", "-config", file(t, config), "-public-url", tt.url).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "pods.domain") {
			t.Errorf("pods at %s, load balancing at %q and the console at %s: %v %s, want a refusal of pods.domain", tt.domain, tt.lb, tt.url, err, out)
		}
	}
}
