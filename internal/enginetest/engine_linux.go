package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/podyard/podyard/internal/sweeptest"
)

// Kinds are the supported engines.
var Kinds = []string{"dockerd", "podman"}

// An Engine is a running engine that all tests of a process share.
type Engine struct {
	Kind string

	dir    string
	argv   []string
	env    []string
	cmd    *exec.Cmd
	exited chan struct{}

	mu     sync.Mutex
	images map[string]bool // that the engine has
}

// Address returns the address of the engine in the format of DOCKER_HOST.
func (e *Engine) Address() string { return "unix://" + e.socket() }

// Dir returns the directory of the engine. Podman's --root is below it, in root.
func (e *Engine) Dir() string { return e.dir }

func (e *Engine) socket() string { return filepath.Join(e.dir, "sock") }

// running has the engines of this process. Main stops them.
var running struct {
	sync.Mutex
	engines  map[string]*Engine
	together error // why this process shares its network with the machine; nil: it does not
}

// Require starts an engine once and returns it, or skips the test. In continuous
// integration it fails the test instead. Elsewhere only the first available engine of Kinds
// is tested, because each one takes minutes.
func Require(t testing.TB, kind string) *Engine {
	t.Helper()
	ci := os.Getenv("PODYARD_CI") == "1"
	if err := unavailable(kind); err != nil && ci {
		t.Fatalf("needs %s: %v", kind, err)
	} else if err != nil {
		t.Skipf("needs %s: %v", kind, err)
	}
	for _, other := range Kinds[:slices.Index(Kinds, kind)] {
		if !ci && unavailable(other) == nil {
			t.Skipf("%s stands for %s here: with PODYARD_CI=1 tests run on both", other, kind)
		}
	}
	running.Lock()
	defer running.Unlock()
	if e := running.engines[kind]; e != nil {
		return e
	}
	e, err := newEngine(kind)
	if err == nil {
		err = e.Start()
	}
	if err != nil {
		t.Fatalf("start %s: %v\n%s", kind, err, e.Log())
	}
	if running.engines == nil {
		running.engines = map[string]*Engine{}
	}
	running.engines[kind] = e
	return e
}

// unavailable returns why an engine cannot be started on this machine.
func unavailable(kind string) error {
	for _, tool := range []string{kind, "runc", "ip", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	if os.Getuid() != 0 {
		return errors.New("starting an engine takes root")
	}
	if running.together != nil {
		return fmt.Errorf("an engine of its own needs a network of its own: %w", running.together)
	}
	return nil
}

// newEngine creates a directory with a short name, because the path of a socket has at most
// 108 bytes.
func newEngine(kind string) (*Engine, error) {
	// Beside TMPDIR, and not in it.
	dir, err := os.MkdirTemp(filepath.Dir(os.TempDir()), "py")
	if err != nil {
		return nil, err
	}
	e := &Engine{Kind: kind, dir: dir, images: map[string]bool{}}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := sweeptest.Register(dir); err != nil {
		return e, err
	}
	bridge, space, err := newBridge()
	if err != nil {
		return e, err
	}
	if kind == "podman" {
		e.argv = []string{"podman", "--root", at("root"), "--runroot", at("run"), "--tmpdir", at("tmp"), "system", "service", "--time=0", e.Address()}
		e.env = []string{"CONTAINERS_CONF=" + at("containers.conf"), "CONTAINERS_REGISTRIES_CONF=" + at("registries.conf")}
		conf := "[containers]\ndefault_ulimits = [\"nofile=20000:20000\", \"nproc=4096:4096\"]\n" +
			"[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n" +
			"[network]\nnetwork_config_dir = \"" + at("networks") + "\"\n" +
			"default_subnet_pools = [{\"base\" = \"" + space + "\", \"size\" = 26}]\n"
		registries := "[[registry]]\nlocation = \"127.0.0.1\"\ninsecure = true\n"
		return e, errors.Join(os.WriteFile(at("containers.conf"), []byte(conf), 0o600), os.WriteFile(at("registries.conf"), []byte(registries), 0o600))
	}
	e.argv = []string{
		"dockerd", "--data-root", at("data"), "--exec-root", at("exec"), "--pidfile", at("pid"), "-H", e.Address(),
		"--live-restore", "--bridge", bridge, "--default-address-pool", "base=" + space + ",size=26",
	}
	return e, nil
}

// newBridge creates a network bridge for one engine, and chooses addresses for the networks
// of that engine that no other engine in this network namespace uses. The name of the
// bridge marks the addresses as used, also for an engine that does not use the bridge.
func newBridge() (name, space string, err error) {
	const places = 240
	for n := range places {
		name = fmt.Sprintf("testpodyard%d", n)
		if err = exec.Command("ip", "link", "add", "name", name, "type", "bridge").Run(); err != nil {
			continue
		}
		if err := exec.Command("ip", "addr", "add", fmt.Sprintf("10.211.%d.1/24", n), "dev", name).Run(); err != nil {
			return "", "", err
		}
		space = fmt.Sprintf("10.%d.%d.0/20", 212+n/16, n%16*16)
		return name, space, exec.Command("ip", "link", "set", name, "up").Run()
	}
	return "", "", fmt.Errorf("no network bridge: %w", err)
}

// Start starts the engine, which must not be running. It returns when the engine answers.
func (e *Engine) Start() error {
	out, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	e.cmd = exec.Command(e.argv[0], e.argv[1:]...)
	e.cmd.Dir = e.dir // after an out-of-memory kill, Podman's monitor writes a file here
	e.cmd.Env = append(os.Environ(), e.env...)
	e.cmd.Stdout, e.cmd.Stderr = out, out
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := e.cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	e.exited = gone
	go func() { _ = e.cmd.Wait(); close(gone) }()
	late := time.After(time.Minute)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if _, err := e.request(http.MethodGet, "/_ping", nil, http.StatusOK); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-gone:
			return errors.New("it ended")
		case <-late:
			return errors.New("it does not answer")
		}
	}
}

// request makes a request to the engine. It returns an error if the status is another one.
func (e *Engine) request(method, path string, body io.Reader, status int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{
		DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.socket())
		},
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	said, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20))
	if err == nil && answer.StatusCode != status {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, said)
	}
	return said, err
}

// LoadImage loads an image into the engine, once, under a name with a tag. There is no
// registry.
func (e *Engine) LoadImage(t testing.TB, ref string, img v1.Image) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.images[ref] {
		return
	}
	if err := e.load(ref, img); err != nil {
		t.Fatalf("load %s: %v\n%s", ref, err, e.Log())
	}
	e.images[ref] = true
}

func (e *Engine) load(ref string, img v1.Image) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(tarball.Write(tag, img, w)) }()
	said, err := e.request(http.MethodPost, "/images/load", r, http.StatusOK)
	if err == nil && strings.Contains(string(said), `"error"`) {
		err = fmt.Errorf("%s", said)
	}
	return err
}

// Get returns the engine's answer to a GET.
func (e *Engine) Get(t testing.TB, path string) []byte {
	t.Helper()
	said, err := e.request(http.MethodGet, path, nil, http.StatusOK)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// Log returns the last 4000 bytes of the engine's log.
func (e *Engine) Log() string {
	if e == nil {
		return ""
	}
	data, _ := os.ReadFile(filepath.Join(e.dir, "log"))
	return string(data[max(0, len(data)-4000):])
}

// Kill kills the engine, as in a crash. Start starts it again.
func (e *Engine) Kill() {
	_ = e.cmd.Process.Kill()
	<-e.exited
	if e.Kind != "dockerd" {
		return
	}
	// Its containerd ends a moment later. A new dockerd would try to use it.
	pid, err := os.ReadFile(filepath.Join(e.dir, "exec/containerd/containerd.pid"))
	for tick := time.NewTicker(10 * time.Millisecond); err == nil; <-tick.C {
		_, err = os.Stat("/proc/" + strings.TrimSpace(string(pid)))
	}
	_ = os.Remove(filepath.Join(e.dir, "exec/containerd/containerd.pid"))
	_ = os.Remove(filepath.Join(e.dir, "pid"))
}

// KeepsContainers says whether the containers of dockerd go on without it from its next start on (live-restore),
// which is how it is started at first.
func (e *Engine) KeepsContainers(do bool) {
	e.argv = slices.DeleteFunc(e.argv, func(arg string) bool { return arg == "--live-restore" })
	if do {
		e.argv = append(e.argv, "--live-restore")
	}
}

// End ends the engine as a service manager does, and returns when it has ended.
func (e *Engine) End() {
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	<-e.exited
}

// stop stops the engine. The reaper deletes what it leaves.
func (e *Engine) stop() {
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.exited:
	case <-time.After(15 * time.Second):
	}
}
