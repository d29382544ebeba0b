package main

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/enginetest"
)

// patience is how long an event may take on a slow machine.
const patience = 30 * time.Second

// window is how long the end of a server may take: 10 s, and as much again on a busy machine.
const window = 20 * time.Second

const testKey = "key-of-the-tests"

// program is the server, built once. These tests look at it from outside, as scripts do.
var program string

func TestMain(m *testing.M) {
	if os.Getenv(rudeWorkerEnv) != "" {
		printLine(os.Stderr, rudeWorker())
		os.Exit(1)
	}
	if os.Getenv(balanceWorkerEnv) != "" {
		printLine(os.Stderr, balanceWorker())
		os.Exit(1)
	}
	if os.Getenv(takesAndEnds) != "" {
		printLine(os.Stderr, takeAndEnd())
		os.Exit(7)
	}
	_ = os.Setenv("no_proxy", "*") // curl would ask the proxy of a company for 127.0.0.1
	os.Exit(enginetest.MainWithProgram(m, ".", &program))
}

// command is the server with nothing of the environment that it would read, and with a
// temporary directory of the test's own.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PODYARD_") })
	cmd.Env = append(append(cmd.Env, "TMPDIR="+t.TempDir()), env...)
	return cmd
}

// An instance is a server that runs.
type instance struct {
	t        *testing.T
	cmd      *exec.Cmd
	url, key string
	trusted  *x509.CertPool // nil without a certificate
	lines    chan string    // of its standard output after the first, closed at the end
	done     chan struct{}
	stderr   buffer
}

// start runs a server with testKey on a free port and waits for its first line.
func start(t *testing.T, args ...string) *instance {
	t.Helper()
	args = append([]string{"-addr", "127.0.0.1:0", "-data", t.TempDir()}, args...)
	return startCommand(t, command(t, []string{"PODYARD_API_KEY=" + testKey}, args...))
}

// telling is what of a log may tell why a test failed: the last lines, and of the others those that
// are warnings, errors or no lines of the logger.
func telling(log string) string {
	const last = 100
	lines := strings.Split(log, "\n")
	var out []string
	for i, line := range lines {
		if i >= len(lines)-last || !strings.Contains(line, "level=INFO") && !strings.Contains(line, "level=DEBUG") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func startCommand(t *testing.T, cmd *exec.Cmd) *instance {
	t.Helper()
	in := &instance{t: t, cmd: cmd, key: testKey, lines: make(chan string, 100), done: make(chan struct{})}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if cmd.Stderr == nil {
		cmd.Stderr = &in.stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	first := make(chan string, 1)
	go func() {
		defer close(in.done)
		defer close(in.lines)
		sc := bufio.NewScanner(r)
		if sc.Scan() {
			first <- sc.Text()
		}
		close(first)
		for sc.Scan() {
			in.lines <- sc.Text()
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // in order, or its pods would stay
		select {
		case <-in.done:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-in.done
		}
		if t.Failed() {
			t.Logf("of the server's log:\n%s", telling(in.stderr.String()))
		}
	})
	select {
	case line := <-first:
		url, ok := strings.CutPrefix(line, "listening on ")
		if !ok {
			t.Fatalf("the first line is %q, want \"listening on URL\"; stderr: %s", line, in.stderr.String())
		}
		in.url = url
	case <-time.After(patience):
		t.Fatalf("no line on standard output; stderr: %s", in.stderr.String())
	}
	return in
}

// line is the next line on standard output.
func (in *instance) line() string {
	in.t.Helper()
	select {
	case l := <-in.lines:
		return l
	case <-time.After(patience):
		in.t.Fatal("no further line on standard output")
		return ""
	}
}

// rest is what standard output had to the end.
func (in *instance) rest() (lines []string) {
	for l := range in.lines {
		lines = append(lines, l)
	}
	return lines
}

// end sends a signal and returns the exit code and how long the end took.
func (in *instance) end(sig os.Signal) (code int, took time.Duration) {
	in.t.Helper()
	began := time.Now()
	if err := in.cmd.Process.Signal(sig); err != nil {
		in.t.Fatal(err)
	}
	select {
	case <-in.done:
	case <-time.After(patience):
		in.t.Fatalf("the server did not end on %v", sig)
	}
	return in.cmd.ProcessState.ExitCode(), time.Since(began)
}

// stop ends the server in order.
func (in *instance) stop() {
	in.t.Helper()
	if code, _ := in.end(syscall.SIGTERM); code != 0 {
		in.t.Fatalf("exit code %d, want 0", code)
	}
}

func (in *instance) request(method, path, body string) *http.Request {
	in.t.Helper()
	req, err := http.NewRequestWithContext(in.t.Context(), method, in.url+path, strings.NewReader(body))
	if err != nil {
		in.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+in.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// do makes a request and returns the status and body of the answer.
func (in *instance) do(method, path, body string) (int, []byte) {
	in.t.Helper()
	status, b, err := send(in.request(method, path, body))
	if err != nil {
		in.t.Fatalf("%s %s: %v", method, path, err)
	}
	return status, b
}

func send(req *http.Request) (int, []byte, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// get is do for an answer of the status want, decoded.
func get[T any](in *instance, method, path, body string, want int) (v T) {
	in.t.Helper()
	status, b := in.do(method, path, body)
	if status != want {
		in.t.Fatalf("%s %s: status %d, want %d: %s", method, path, status, want, b)
	}
	if len(b) > 0 {
		if err := json.Unmarshal(b, &v); err != nil {
			in.t.Fatalf("%s %s: %v: %s", method, path, err, b)
		}
	}
	return v
}

// eventually waits for something that sends no event. After a second it looks less often: looks
// count against the rate of a user.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(patience)
	for n := 1; !ok(); n++ {
		if n == 100 {
			look.Reset(100 * time.Millisecond)
		}
		select {
		case <-look.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// file writes a file of the test.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// missing skips the test for want of something, which must not be on the machine that
// proves changes.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("PODYARD_CI") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// A buffer is written by a process while the test reads it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
