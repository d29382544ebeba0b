package httpapi_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A hostedRuntime runs commands on this machine, in a directory that is the root of the pod.
type hostedRuntime struct {
	*memory.Runtime
	root string
}

// Exec implements pods.Executor: tar runs here, everything else is the simulation's.
func (r *hostedRuntime) Exec(ctx context.Context, podID string, c pods.Command, s pods.Streams) (int, error) {
	if len(c.Argv) == 0 || c.Argv[0] != "tar" || r.root == "" {
		return r.Runtime.Exec(ctx, podID, c, s)
	}
	args := append([]string{}, c.Argv[1:]...)
	for i := range args {
		if i > 0 && args[i-1] == "-C" {
			args[i] = filepath.Join(r.root, args[i])
		}
	}
	cmd := exec.CommandContext(ctx, "tar", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Stdin, s.Stdout, s.Stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if failed := (&exec.ExitError{}); errors.As(err, &failed) {
		return failed.ExitCode(), nil
	}
	return 0, err
}

// An insideTest is a server with a pod of alice that runs.
type insideTest struct {
	*testing.T
	url, pod string
	log      audit.Trail
	revoked  atomic.Bool
	root     string
}

// Authenticate implements httpapi.Authenticator: the key is the user's name, with read- for less.
func (x *insideTest) Authenticate(_ context.Context, key string) (httpapi.Identity, error) {
	if x.revoked.Load() {
		return httpapi.Identity{}, httpapi.ErrKey
	}
	name, scope := key, "pods:write"
	if rest, ok := strings.CutPrefix(key, "read-"); ok {
		name, scope = rest, "pods:read"
	}
	p, err := httpapi.ParseScope(scope)
	return httpapi.Identity{User: name, Scopes: []httpapi.Permission{p}}, err
}

func startInside(t *testing.T, withTar bool) *insideTest {
	t.Helper()
	x := &insideTest{T: t, log: audit.NewMemory(100)}
	rt := &hostedRuntime{Runtime: memory.NewRuntime(&memory.RuntimeOptions{Scripts: []memory.Script{{
		Image: "*", Stages: memory.DefaultScript().Stages,
		Replies: []memory.Reply{
			{Command: "say", Stdout: "out", Stderr: "err", ExitCode: 3},
			{Command: "much", Stdout: strings.Repeat("ä", 1<<19) + "x"},
			{Command: "hang", Runs: true},
		},
	}}})}
	if withTar {
		x.root = t.TempDir()
		rt.root = x.root
	}
	c := catalog.Sample()
	p, err := pods.New(memory.NewPods(), c, pods.SimulatedHosts(c, rt), nil)
	if err != nil {
		t.Fatal(err)
	}
	run(t, p.Run)
	flight := budget.NewInFlight(budget.NewSet(budget.Users{Limits: budget.Default()}), budget.DefaultTotals(), time.Now)
	s := httptest.NewServer(httpapi.New(httpapi.Services{Pods: p}, &httpapi.Options{Auth: x, Audit: x.log, InFlight: flight}))
	t.Cleanup(s.Close)
	x.url = s.URL
	var pod struct{ ID, Status string }
	x.into(&pod, x.do("alice", "POST", "/v2/pods", strings.NewReader(loggingPod), http.StatusCreated))
	x.pod = "/v2/pods/" + pod.ID
	for guard := time.Now().Add(2 * time.Minute); pod.Status != "RUNNING"; {
		if time.Now().After(guard) {
			t.Fatal("the pod does not run")
		}
		got, err := p.Get(t.Context(), "alice", pod.ID)
		if err != nil {
			t.Fatal(err)
		}
		pod.Status = string(got.Status())
		<-time.After(time.Millisecond)
	}
	return x
}

func (x *insideTest) into(to any, body []byte) {
	x.Helper()
	if err := json.Unmarshal(body, to); err != nil {
		x.Fatalf("%s: %v", body, err)
	}
}

func (x *insideTest) do(key, method, path string, body io.Reader, want int) []byte {
	x.Helper()
	req, err := http.NewRequestWithContext(x.Context(), method, x.url+path, body)
	if err != nil {
		x.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		x.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		x.Fatalf("%s %s: %d %s %v, want %d", method, path, res.StatusCode, got, err, want)
	}
	return got
}

func TestACommandInsideAPodIsAnsweredWithItsOutputAndCode(t *testing.T) {
	x := startInside(t, false)
	for body, want := range map[string]string{
		`{"command":["say"]}`:                      `{"exitCode":3,"stdout":"out","stderr":"err","truncated":false}`,
		`{"command":["cat"],"stdin":"a\u0000ä\n"}`: `{"exitCode":0,"stdout":"a\u0000ä\n","stderr":"","truncated":false}`,
		`{"command":["cat"],"timeout":600000}`:     `{"exitCode":0,"stdout":"","stderr":"","truncated":false}`,
	} {
		if got := strings.TrimSpace(string(x.do("alice", "POST", x.pod+"/exec", strings.NewReader(body), http.StatusOK))); got != want {
			t.Errorf("%s = %s, want %s", body, got, want)
		}
	}
	var much struct {
		Stdout    string
		Truncated bool
	}
	x.into(&much, x.do("alice", "POST", x.pod+"/exec", strings.NewReader(`{"command":["much"]}`), http.StatusOK))
	if !much.Truncated || len(much.Stdout) != 1<<20 {
		t.Errorf("%d bytes, truncated %v, want 1 MB and true", len(much.Stdout), much.Truncated)
	}
	x.do("alice", "POST", x.pod+"/exec", strings.NewReader(`{"command":["hang"],"timeout":1000}`), 524)
}

func TestWhatIsInsideAPodIsForItsOwnersKeyWithWrite(t *testing.T) {
	x := startInside(t, true)
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/exec", `{"command":["say"]}`}, {"GET", "/terminal", ""}, {"GET", "/files?path=/a", ""}, {"PUT", "/files?path=/", ""},
	} {
		x.do("bob", r.method, x.pod+r.path, strings.NewReader(r.body), http.StatusNotFound)
		x.do("read-alice", r.method, x.pod+r.path, strings.NewReader(r.body), http.StatusForbidden)
	}
	x.do("alice", "POST", x.pod+"/exec", strings.NewReader(`{"command":["say"]}`), http.StatusOK)
	list, err := x.log.Read(t.Context(), audit.Query{Limit: 100, Operation: "execPod", User: "alice"})
	changes := 0
	for _, r := range list {
		if r.Kind == audit.Change {
			changes++
		}
	}
	if err != nil || changes != 1 {
		t.Errorf("audit log: %v, %v, want a line of the command", list, err)
	}
}

func TestBadCommandsAreRefusedAtTheirPlace(t *testing.T) {
	x := startInside(t, false)
	for body, place := range map[string]string{
		`{}`:                                                 "command",
		`{"command":[]}`:                                     "command",
		`{"command":[""]}`:                                   "command",
		`{"command":"say"}`:                                  "command",
		`{"command":["a\u0000"]}`:                            "command/0",
		`{"command":["say"],"timeout":999}`:                  "timeout",
		`{"command":["say"],"timeout":600001}`:               "timeout",
		`{"command":["say"],"timeout":"1"}`:                  "timeout",
		`{"command":["say"],"stdin":1}`:                      "stdin",
		`{"command":["say"],"tty":true}`:                     "tty",
		`{"command":["` + strings.Repeat("a", 1<<18) + `"]}`: "command",
		`{"command":["cat"],"stdin":"` + strings.Repeat("a", 1<<20+1) + `"}`: "stdin",
	} {
		got := string(x.do("alice", "POST", x.pod+"/exec", strings.NewReader(body), http.StatusUnprocessableEntity))
		if !strings.Contains(got, place) {
			t.Errorf("%.80s: %s, want it to name %s", body, got, place)
		}
	}
	for _, path := range []string{"/files", "/files?path=", "/files?path=a/b", "/files?path=%00"} {
		x.do("alice", "GET", x.pod+path, nil, http.StatusUnprocessableEntity)
	}
}

func (x *insideTest) dial(key, query string) *websocket.Conn {
	x.Helper()
	c, _, err := websocket.Dial(x.Context(), "ws"+strings.TrimPrefix(x.url, "http")+x.pod+"/terminal"+query, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + key}},
	})
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { _ = c.CloseNow() })
	return c
}

// readUntil reads messages until the text of one kind has a word.
func (x *insideTest) readUntil(c *websocket.Conn, kind websocket.MessageType, word string) {
	x.Helper()
	for all := ""; !strings.Contains(all, word); {
		k, data, err := c.Read(x.Context())
		if err != nil {
			x.Fatalf("after %q: %v, want %q", all, err, word)
		}
		if k == kind {
			all += string(data)
		}
	}
}

func TestATerminalIsAWebSocketThatEndsWithTheKey(t *testing.T) {
	x := startInside(t, false)
	c := x.dial("alice", "?command=cat&columns=100&rows=30")
	if err := c.Write(t.Context(), websocket.MessageBinary, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	x.readUntil(c, websocket.MessageBinary, "hello")
	if err := c.Write(t.Context(), websocket.MessageText, []byte(`{"columns":10,"rows":5}`)); err != nil {
		t.Fatal(err)
	}
	x.revoked.Store(true)
	x.readUntil(c, websocket.MessageText, "no longer good")

	x.revoked.Store(false)
	c = x.dial("alice", "?command=say")
	x.readUntil(c, websocket.MessageText, `{"exitCode":3}`)
}

func TestAUserHasTenSessionsAtMost(t *testing.T) {
	x := startInside(t, false)
	var open []*websocket.Conn
	for range 10 {
		c := x.dial("alice", "?command=cat")
		if err := c.Write(t.Context(), websocket.MessageBinary, []byte("x")); err != nil {
			t.Fatal(err)
		}
		x.readUntil(c, websocket.MessageBinary, "x")
		open = append(open, c)
	}
	got := x.do("alice", "POST", x.pod+"/exec", strings.NewReader(`{"command":["say"]}`), http.StatusTooManyRequests)
	if !strings.Contains(string(got), "sessions") {
		t.Errorf("the eleventh: %s", got)
	}
	x.do("bob", "POST", x.pod+"/exec", strings.NewReader(`{"command":["say"]}`), http.StatusNotFound)
	for _, c := range open {
		_ = c.Close(websocket.StatusNormalClosure, "")
	}
}

// archive returns a tar with entries.
func archive(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, 4
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			fmt.Fprint(w, "text")
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestFilesGoIntoAPodAndOut(t *testing.T) {
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("tar is not installed")
	}
	x := startInside(t, true)
	x.do("alice", "PUT", x.pod+"/files?path=/", archive(t, tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "d/f", Mode: 0o4755}), http.StatusNoContent)
	info, err := os.Stat(filepath.Join(x.root, "d/f"))
	if err != nil || info.Mode() != 0o755 {
		t.Fatalf("the file: %v, %v, want mode 0755 without setuid", info, err)
	}
	r := tar.NewReader(bytes.NewReader(x.do("alice", "GET", x.pod+"/files?path=/d", nil, http.StatusOK)))
	var names []string
	for {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	if fmt.Sprint(names) != "[d/ d/f]" {
		t.Errorf("entries %q, want d/ and d/f", names)
	}
	x.do("alice", "GET", x.pod+"/files?path=/nothing", nil, http.StatusNotFound)
	x.do("alice", "PUT", x.pod+"/files?path=/nothing", archive(t, tar.Header{Name: "f"}), http.StatusNotFound)
}

func TestAnArchiveThatLeadsElsewhereIsRefused(t *testing.T) {
	x := startInside(t, true)
	outside := filepath.Join(filepath.Dir(x.root), "outside")
	link := tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}
	for name, b := range map[string]*bytes.Buffer{
		"above":                  archive(t, tar.Header{Name: "../outside"}),
		"above by the middle":    archive(t, tar.Header{Name: "a/../../outside"}),
		"absolute":               archive(t, tar.Header{Name: "/outside"}),
		"through a link":         archive(t, link, tar.Header{Name: "l/outside"}),
		"a file for a link":      archive(t, link, tar.Header{Name: "l"}),
		"a directory for a link": archive(t, link, tar.Header{Name: "l/", Typeflag: tar.TypeDir}, tar.Header{Name: "l/outside"}),
		"a hard link out":        archive(t, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside"}),
		"a hard link to a link":  archive(t, link, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "l"}),
		"a hard link by a link":  archive(t, link, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "l/outside"}),
		"a device":               archive(t, tar.Header{Name: "dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}),
		"a pipe":                 archive(t, tar.Header{Name: "p", Typeflag: tar.TypeFifo}),
	} {
		got := x.do("alice", "PUT", x.pod+"/files?path=/", b, http.StatusUnprocessableEntity)
		if !strings.Contains(string(got), "entry") {
			t.Errorf("%s: %s, want it to name the entry", name, got)
		}
		if _, err := os.Lstat(outside); err == nil {
			t.Fatalf("%s: a file outside was written", name)
		}
		_ = os.Remove(filepath.Join(x.root, "l"))
	}
	x.do("alice", "PUT", x.pod+"/files?path=/", strings.NewReader("this is no archive"), http.StatusBadRequest)
}

// Each of these is a few bytes to send. The names took minutes of a processor, the links memory, and the
// holes of a sparse file were filled by the server.
func TestAnArchiveCostsWhatItSends(t *testing.T) {
	x := startInside(t, true)
	deep := archive(t, tar.Header{Name: strings.Repeat("a/", 200_000) + "f"})
	target := archive(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("a", 1<<19)})
	for name, b := range map[string]*bytes.Buffer{"a deep name": deep, "a long target": target, "a sparse file": sparseArchive(t, 1<<50)} {
		got := x.do("alice", "PUT", x.pod+"/files?path=/", b, http.StatusUnprocessableEntity)
		if !strings.Contains(string(got), "entry") {
			t.Errorf("%s: %s, want it to name the entry", name, got)
		}
	}
}

// sparseArchive has a file of so many bytes that is one hole, as GNU tar writes it in the format of PAX.
func sparseArchive(t *testing.T, bytesOfFile int64) *bytes.Buffer {
	t.Helper()
	record := func(key, value string) string {
		line := " " + key + "=" + value + "\n"
		n := len(line) + len(strconv.Itoa(len(line)))
		return strconv.Itoa(len(line)+len(strconv.Itoa(n))) + line
	}
	size := strconv.FormatInt(bytesOfFile, 10)
	records := record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") + record("GNU.sparse.name", "hole") + record("GNU.sparse.realsize", size)
	holes := make([]byte, 512)
	copy(holes, "1\n"+size+"\n0\n")
	var b bytes.Buffer
	for _, part := range []struct {
		kind byte
		data []byte
	}{{tar.TypeXHeader, []byte(records)}, {tar.TypeReg, holes}} {
		h := make([]byte, 512)
		copy(h, "hole")
		copy(h[100:], "0000644\x000000000\x000000000\x00")
		copy(h[124:], fmt.Sprintf("%011o\x0000000000000\x00        ", len(part.data)))
		h[156] = part.kind
		copy(h[257:], "ustar\x0000")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		b.Write(h)
		b.Write(part.data)
		b.Write(make([]byte, -len(part.data)&511))
	}
	b.Write(make([]byte, 1024))
	return &b
}

func TestAnImageWithoutTarIsNamed(t *testing.T) {
	x := startInside(t, false)
	got := x.do("alice", "GET", x.pod+"/files?path=/etc", nil, http.StatusNotImplemented)
	if !strings.Contains(string(got), "lacks tar") {
		t.Errorf("got %s", got)
	}
}
