package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The images of the tests: plain has a program, checked a health check besides.
const (
	plain   = "podyard.test/program:1"
	checked = "podyard.test/checked:1"
	nowhere = "127.0.0.1:9/no/such:image"
)

// A daemon is an engine that the tests started.
type daemon struct {
	kind string
	dir  string
	argv []string
	env  []string
	cmd  *exec.Cmd
	gone chan struct{}
}

func (d *daemon) address() string { return "unix://" + filepath.Join(d.dir, "sock") }

// all are the engines that run, for TestMain to end.
var all struct {
	sync.Mutex
	daemons map[string]*daemon
	bridges []string
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, d := range all.daemons {
		d.end()
	}
	for _, b := range all.bridges {
		_ = exec.Command("ip", "link", "del", b).Run()
	}
	os.Exit(code)
}

// each runs a test on every engine.
func each(t *testing.T, f func(t *testing.T, d *daemon)) {
	for _, kind := range []string{"dockerd", "podman"} {
		t.Run(kind, func(t *testing.T) { f(t, need(t, kind)) })
	}
}

// need starts an engine, once, or skips: in continuous integration it fails.
func need(t testing.TB, kind string) *daemon {
	t.Helper()
	without := func(format string, args ...any) {
		t.Helper()
		if os.Getenv("PODYARD_CI") == "1" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	for _, tool := range []string{kind, "runc", "ip", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			without("needs %s: %v", tool, err)
		}
	}
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		without("starting an engine of its own takes root on Linux")
	}
	all.Lock()
	defer all.Unlock()
	if d := all.daemons[kind]; d != nil {
		return d
	}
	d, err := newDaemon(kind)
	if err == nil {
		err = d.begin()
	}
	if err == nil {
		err = d.load()
	}
	if err != nil {
		t.Fatalf("start %s: %v\n%s", kind, err, d.log())
	}
	if all.daemons == nil {
		all.daemons = map[string]*daemon{}
	}
	all.daemons[kind] = d
	return d
}

// newDaemon makes a directory with a short name: that of a socket has 108 bytes at most.
func newDaemon(kind string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "py")
	if err != nil {
		return nil, err
	}
	d := &daemon{kind: kind, dir: dir}
	at := func(name string) string { return filepath.Join(dir, name) }
	if kind == "podman" {
		d.argv = []string{"podman", "--root", at("root"), "--runroot", at("run"), "--tmpdir", at("tmp"), "system", "service", "--time=0", d.address()}
		d.env = []string{"CONTAINERS_CONF=" + at("containers.conf"), "CONTAINERS_REGISTRIES_CONF=" + at("registries.conf")}
		conf := "[containers]\ndefault_ulimits = [\"nofile=20000:20000\", \"nproc=4096:4096\"]\n" +
			"[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n" +
			"[network]\nnetwork_config_dir = \"" + at("networks") + "\"\n"
		registries := "[[registry]]\nlocation = \"127.0.0.1\"\ninsecure = true\n"
		return d, errors.Join(os.WriteFile(at("containers.conf"), []byte(conf), 0o600), os.WriteFile(at("registries.conf"), []byte(registries), 0o600))
	}
	bridge, err := newBridge()
	d.argv = []string{
		"dockerd", "--data-root", at("data"), "--exec-root", at("exec"), "--pidfile", at("pid"), "-H", d.address(),
		"--live-restore", "--bridge", bridge,
	}
	return d, err
}

// newBridge makes a network of its own for one engine, where no other is.
func newBridge() (name string, err error) {
	for n := range 200 {
		name = fmt.Sprintf("pyt%d", (os.Getpid()+n)%1000)
		if err = exec.Command("ip", "link", "add", "name", name, "type", "bridge").Run(); err != nil {
			continue
		}
		all.bridges = append(all.bridges, name)
		addr := fmt.Sprintf("10.211.%d.1/24", (os.Getpid()+n)%250)
		if err := exec.Command("ip", "addr", "add", addr, "dev", name).Run(); err != nil {
			return name, err
		}
		return name, exec.Command("ip", "link", "set", name, "up").Run()
	}
	return "", fmt.Errorf("no network bridge: %w", err)
}

// begin starts the engine and returns when it answers.
func (d *daemon) begin() error {
	out, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	d.cmd = exec.Command(d.argv[0], d.argv[1:]...)
	d.cmd.Env = append(os.Environ(), d.env...)
	d.cmd.Stdout, d.cmd.Stderr = out, out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	d.gone = make(chan struct{})
	go func() { _ = d.cmd.Wait(); close(d.gone) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if Answers(ctx, d.address()) == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-d.gone:
			return errors.New("it ended")
		case <-ctx.Done():
			return errors.New("it does not answer")
		}
	}
}

func (d *daemon) log() string {
	if d == nil {
		return ""
	}
	data, _ := os.ReadFile(filepath.Join(d.dir, "log"))
	return string(data[max(0, len(data)-4000):])
}

// kill ends the engine as a crash would.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.gone
	if d.kind != "dockerd" {
		return
	}
	// Its containerd ends with it, a moment later: a new dockerd would take it for alive.
	pid, err := os.ReadFile(filepath.Join(d.dir, "exec/containerd/containerd.pid"))
	for tick := time.NewTicker(10 * time.Millisecond); err == nil; <-tick.C {
		_, err = os.Stat("/proc/" + strings.TrimSpace(string(pid)))
	}
	_ = os.Remove(filepath.Join(d.dir, "exec/containerd/containerd.pid"))
	_ = os.Remove(filepath.Join(d.dir, "pid"))
}

// end stops the engine in order and removes what it left.
func (d *daemon) end() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.gone:
	case <-time.After(15 * time.Second):
		_ = d.cmd.Process.Kill()
	}
	mounts, _ := os.ReadFile("/proc/mounts")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], d.dir+"/") {
			_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
		}
	}
	_ = os.RemoveAll(d.dir)
}

// load makes the images and gives them to the engine: no registry is at hand.
func (d *daemon) load() error {
	images, err := images()
	if err != nil {
		return err
	}
	c, err := connect(d.address())
	if err != nil {
		return err
	}
	defer c.Close()
	for ref, img := range images {
		tag, err := name.NewTag(ref)
		if err != nil {
			return err
		}
		var buf bytes.Buffer
		if err := tarball.Write(tag, img, &buf); err != nil {
			return err
		}
		answer, err := c.ImageLoad(context.Background(), &buf)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, answer); err != nil {
			return err
		}
		answer.Close()
	}
	return nil
}

// images are made of the program in testdata.
var images = sync.OnceValues(func() (map[string]v1.Image, error) {
	dir, err := os.MkdirTemp("", "py")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "program"), "./testdata/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, d := range []string{"etc/", "tmp/"} {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d, Mode: 0o755})
	}
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "program", Mode: 0o755, Size: int64(len(program))})
	_, err = w.Write(program)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	base, err := mutate.AppendLayers(empty.Image, made)
	if err != nil {
		return nil, err
	}
	file, err := base.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS = runtime.GOARCH, "linux"
	file.Config.Entrypoint = []string{"/program"}
	all := map[string]v1.Image{}
	if all[plain], err = mutate.ConfigFile(base, file); err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Config.Healthcheck = &v1.HealthConfig{Test: []string{"CMD", "/program", "deaf"}, Interval: 200 * time.Millisecond, Retries: 100}
	all[checked], err = mutate.ConfigFile(base, file)
	return all, err
})
