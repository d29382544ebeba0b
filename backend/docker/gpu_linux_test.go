package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/pods"
)

// A cdiFixture has CDI devices for tests. They are harmless device nodes of this machine.
type cdiFixture struct {
	t    *testing.T
	file string
	dirs []string
	own  bool // the engine resolves CDI itself
}

// newCDIFixture writes the specification to the directory that the engine reads, if the
// engine reads one. For Podman 4 that directory cannot be changed.
func newCDIFixture(t *testing.T, d *enginetest.Engine, has specs.Spec) *cdiFixture {
	t.Helper()
	b := &cdiFixture{t: t, dirs: []string{t.TempDir()}}
	if where := inspectInside(t, d); where != "" {
		b.dirs, b.own = []string{where}, true
		if err := os.Mkdir(where, 0o755); err == nil {
			t.Cleanup(func() { _ = os.Remove(where) }) // it fails if other tests still use the directory
		}
	}
	b.file = filepath.Join(b.dirs[0], fmt.Sprintf("podyard-test-%d.json", os.Getpid()))
	t.Cleanup(func() { _ = os.Remove(b.file) })
	b.write(has)
	return b
}

// inspectInside returns a directory in which the engine looks for CDI specifications.
// Docker before 25 has none.
func inspectInside(t *testing.T, d *enginetest.Engine) string {
	t.Helper()
	if d.Kind == "podman" {
		return cdi.DefaultDynamicDir
	}
	var info struct{ CDISpecDirs []string }
	if err := json.Unmarshal(d.Get(t, "/info"), &info); err != nil {
		t.Fatal(err)
	}
	if len(info.CDISpecDirs) == 0 {
		return ""
	}
	return info.CDISpecDirs[len(info.CDISpecDirs)-1]
}

func (b *cdiFixture) write(has specs.Spec) {
	b.t.Helper()
	has.Version, has.Kind = "0.5.0", gpuKind
	data, err := json.Marshal(has)
	if err == nil {
		err = os.WriteFile(b.file, data, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *cdiFixture) open(d *enginetest.Engine) *Runtime {
	b.t.Helper()
	return open(b.t, d, b.t.TempDir(), func(o *Options) { o.CDIDirs = b.dirs })
}

// gpuName returns a device name that only this test run uses.
func gpuName(name string) string { return fmt.Sprintf("GPU-%s-%d", name, os.Getpid()) }

func node(path, host string) *specs.DeviceNode { return &specs.DeviceNode{Path: path, HostPath: host} }

func gpu(name string, e specs.ContainerEdits) specs.Device {
	return specs.Device{Name: gpuName(name), ContainerEdits: e}
}

// withGPUs returns a pod with these GPUs whose program prints them.
func withGPUs(id string, names ...string) pods.Spec {
	s := spec(id, program("gpus", "/gpu/mode"))
	s.GPUType, s.GPUs = "test", len(names)
	for _, n := range names {
		s.Devices = append(s.Devices, gpuName(n))
	}
	return s
}

// zeroAndFull are two GPUs that share one control device.
func zeroAndFull(t *testing.T) specs.Spec {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mode")
	if err := os.WriteFile(file, []byte("quiet"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := specs.ContainerEdits{
		DeviceNodes: []*specs.DeviceNode{node("/dev/nvidiactl-test", "/dev/null")},
		Mounts:      []*specs.Mount{{HostPath: file, ContainerPath: "/gpu/mode", Options: []string{"ro", "nosuid", "nodev", "bind"}}},
	}
	a := gpu("a", specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{node("/dev/nvidia0-test", "/dev/zero")}, Env: []string{"TELL_GPU=a"}})
	b := gpu("b", specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{node("/dev/nvidia1-test", "/dev/full")}, Env: []string{"TELL_GPU=b"}})
	return specs.Spec{ContainerEdits: all, Devices: []specs.Device{a, b}}
}

func TestEachPodHasTheGPUsOfItsSpec(t *testing.T) {
	withEngine(t, func(t *testing.T, d *enginetest.Engine) {
		b := newCDIFixture(t, d, zeroAndFull(t))
		rt := b.open(d)
		if !rt.Capabilities().GPUs {
			t.Error("Capabilities say that there are no GPUs")
		}
		for _, c := range []struct {
			id    string
			names []string
			want  []string
		}{
			{"first", []string{"a"}, []string{"/dev/nvidia0-test is 1:5", "/dev/nvidiactl-test is 1:3", `/gpu/mode is "quiet" <nil>`, "TELL_GPU is a"}},
			{"second", []string{"b"}, []string{"/dev/nvidia1-test is 1:7", "/dev/nvidiactl-test is 1:3", `/gpu/mode is "quiet" <nil>`, "TELL_GPU is b"}},
			{"both", []string{"a", "b"}, []string{
				"/dev/nvidia0-test is 1:5", "/dev/nvidia1-test is 1:7", "/dev/nvidiactl-test is 1:3", `/gpu/mode is "quiet" <nil>`, "TELL_GPU is b",
			}},
		} {
			s := withGPUs(c.id, c.names...)
			s.Env = map[string]string{"TELL_GPU": "of the pod"}
			up(t, rt, s)
			if got := rt.lines(t, c.id, len(c.want)); !slices.Equal(got, c.want) {
				t.Errorf("%s: the program finds %q, want %q", c.id, got, c.want)
			}
			if d.Kind == "dockerd" && b.own {
				wantRequested(t, rt, s)
			}
		}
		none := spec("none", program("gpus"))
		up(t, rt, none)
		if got := rt.lines(t, "none", 1); got[0] != "TELL_GPU is " {
			t.Errorf("a pod without GPUs finds %q, want none", got)
		}

		again := withGPUs("first", "a")
		again.Run = 2
		up(t, rt, again)
		if got := rt.lines(t, "first", 5)[4]; got != "/dev/nvidia0-test is 1:5" {
			t.Errorf("the second run finds %q, want the GPU again", got)
		}
	})
}

// wantRequested fails the test unless the engine got a request for the GPUs by their CDI
// names, without device nodes.
func wantRequested(t *testing.T, rt *Runtime, s pods.Spec) {
	t.Helper()
	c, err := rt.pods.Find(s.PodID).inspect(t.Context())
	if err != nil || c == nil {
		t.Fatalf("inspect = %v, %v", c, err)
	}
	want := []container.DeviceRequest{{Driver: "cdi", DeviceIDs: qualifiedNames(s.Devices)}}
	if diff := cmp.Diff(want, c.HostConfig.DeviceRequests); diff != "" || len(c.HostConfig.Devices) > 0 {
		t.Errorf("container has the nodes %v and requests (-want +got):\n%s", c.HostConfig.Devices, diff)
	}
}

func TestAProgramWithGPUsThatEndsAtOnceHasEnded(t *testing.T) {
	withEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := newCDIFixture(t, d, zeroAndFull(t)).open(d)
		s := withGPUs("quick", "a")
		s.Args = []string{"exit", "3"}
		ensure(t, rt, s)
		got := await(t, rt, "quick", "end", func(s pods.ContainerState) bool { return s.Phase >= pods.PhaseExited })
		if got.Phase != pods.PhaseExited || got.ExitCode != 3 {
			t.Errorf("pod is %+v, want it Down with code 3", got)
		}
	})
}

// wantFailed fails the test unless the pod failed with these reasons and runs no container.
func wantFailed(t *testing.T, rt *Runtime, s pods.Spec, reasons ...string) {
	t.Helper()
	ensure(t, rt, s)
	got := await(t, rt, s.PodID, "failure", func(s pods.ContainerState) bool { return s.Phase >= pods.PhaseHealthy })
	if got.Phase != pods.PhaseFailed {
		t.Errorf("pod is %+v, want it Failed", got)
	}
	t.Log(got.Reason)
	for _, r := range reasons {
		if !strings.Contains(got.Reason, r) {
			t.Errorf("Reason = %q, want it to say %q", got.Reason, r)
		}
	}
	if c, err := rt.pods.Find(s.PodID).inspect(t.Context()); err != nil || c != nil && c.State.Running {
		t.Errorf("its container: %+v, %v, want none that runs", c, err)
	}
}

func TestAPodWhoseGPUsAreNotThereFails(t *testing.T) {
	withEngine(t, func(t *testing.T, d *enginetest.Engine) {
		has := zeroAndFull(t)
		lost := gpu("lost", specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{node("/dev/nvidia2-test", "/dev/no-such-node")}})
		empty := gpu("empty", specs.ContainerEdits{Env: []string{"TELL_GPU=empty"}})
		has.Devices = append(has.Devices, lost)
		b := newCDIFixture(t, d, has)
		rt := b.open(d)
		where := b.dirs[0]
		if d.Kind == "dockerd" && b.own {
			where = "unresolvable CDI devices" // Docker's text
		}
		wantFailed(t, rt, withGPUs("unknown", "nowhere"), gpuKind+"="+gpuName("nowhere"), where)
		wantFailed(t, rt, withGPUs("partly", "a", "nowhere"), gpuKind+"="+gpuName("nowhere"))
		wantFailed(t, rt, withGPUs("lost", "lost"), "/dev/no-such-node")
		nameless := spec("nameless", program("run"))
		nameless.GPUs = 1
		wantFailed(t, rt, nameless)
		b.write(specs.Spec{ContainerEdits: has.ContainerEdits, Devices: []specs.Device{empty}})
		wantFailed(t, rt, withGPUs("empty", "empty"), "no device nodes")

		// After the specification is back, a new start of the pod succeeds.
		b.write(has)
		again := withGPUs("unknown", "a")
		again.Gen = 2
		up(t, rt, again)
	})
}

// Podman resolves CDI itself and may not know what this package knows.
func TestPodmanHasTheLastWordOnGPUs(t *testing.T) {
	d := requireEngine(t, "podman")
	dir := t.TempDir()
	b := &cdiFixture{t: t, file: filepath.Join(dir, "test.json"), dirs: []string{dir}}
	b.write(zeroAndFull(t))
	wantFailed(t, b.open(d), withGPUs("ours", "a"), "unresolvable CDI devices", gpuName("a"))
}

func TestHooksAreRunOrThePodFails(t *testing.T) {
	withEngine(t, func(t *testing.T, d *enginetest.Engine) {
		has := zeroAndFull(t)
		trace := filepath.Join(t.TempDir(), "trace")
		has.ContainerEdits.Hooks = []*specs.Hook{{HookName: cdi.CreateRuntimeHook, Path: "/usr/bin/touch", Args: []string{"touch", trace}}}
		b := newCDIFixture(t, d, has)
		rt := b.open(d)
		if b.own {
			up(t, rt, withGPUs("hooked", "a"))
			if _, err := os.Stat(trace); err != nil {
				t.Errorf("what the hook leaves: %v", err)
			}
			return
		}
		wantFailed(t, rt, withGPUs("hooked", "a"), "hook touch (createRuntime)", "Podman")
		if rt.Capabilities().GPUs {
			t.Error("Capabilities say that there are GPUs, and none can be handed over")
		}
	})
}

// Podman's Docker API accepts device requests and ignores them: an engine that reports
// success and is wrong.
func TestAPodWhoseGPUsTheEngineForgotIsEnded(t *testing.T) {
	rt := open(t, requireEngine(t, "podman"), t.TempDir())
	rt.engine.gpus = gpuSupport{nvidia: true, local: true}
	wantFailed(t, rt, withGPUs("forgotten", "a"), "did not arrive", gpuName("a"))
	again := withGPUs("forgotten", "a")
	again.Run = 2
	wantFailed(t, rt, again, "did not arrive")
}

func TestAServerThatDiedOverAStartLetsNoPodRunWithoutItsGPUs(t *testing.T) {
	withEngine(t, func(t *testing.T, d *enginetest.Engine) {
		dir := t.TempDir()
		first := open(t, d, dir)
		p := first.newPod("cut")
		s := spec("cut", program("run"))
		config, err := p.config(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		config.Config.Labels[labelGPUs] = "/dev/nvidia0-test"
		if _, err := first.api.ContainerCreate(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if _, err := first.api.ContainerStart(t.Context(), p.name(), client.ContainerStartOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := stateDir(dir).write(record{State: pods.ContainerState{PodID: "cut", Gen: 1, Run: 1}, Starting: true}); err != nil {
			t.Fatal(err)
		}
		wantFailed(t, open(t, d, dir), s, "did not arrive: the engine made a container without /dev/nvidia0-test")
	})
}

// A container with GPUs must not differ from others in anything but the GPUs.
func TestPodmansOwnAPIMakesTheSameContainer(t *testing.T) {
	d := requireEngine(t, "podman")
	rt := open(t, d, t.TempDir(), func(o *Options) {
		o.ShmSize, o.PidsLimit = 32<<20, 77
	})
	s := spec("same", program("run", "now"))
	s.Env = map[string]string{"A": "1", "EMPTY": "", "WITH": "a=b"}
	s.VCPU, s.Memory = 1, 1
	s.Ports = []pods.Port{{Private: 8000, Protocol: "http"}, {Private: 53, Protocol: "udp"}}
	s.Mounts = []pods.Mount{{Path: "/local"}, {Path: "/net", VolumeID: "shared"}}
	t.Cleanup(func() { _ = rt.RemoveVolume(context.WithoutCancel(t.Context()), "shared") })
	s.NetworkAlias = "same.name"
	p := rt.newPod("same")
	n, err := p.attachNetwork(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.leave(context.WithoutCancel(t.Context()), n.name, p.id) })
	var made [2]map[string]any
	for i := range made {
		config, err := p.config(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		n.attach(s, &config)
		if err := p.allocatePorts(s, &config); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			_, err = rt.api.ContainerCreate(t.Context(), config)
		} else {
			err = rt.createByLibpod(t.Context(), config, nil)
			if err := rt.createByLibpod(t.Context(), config, nil); !errdefs.IsConflict(err) {
				t.Errorf("second create = %v, want it to be a conflict", err)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.api.ContainerStart(t.Context(), p.name(), client.ContainerStartOptions{}); err != nil {
			t.Fatal(err)
		}
		made[i] = seenByRunc(t, d, p)
		if err := p.removeContainer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(made[0], made[1]); diff != "" {
		t.Errorf("container of Podman's own API (-want, as of its Docker API, +got):\n%s", diff)
	}
}

// seenByRunc returns the OCI configuration of a container and its inspection, without the
// names, places and times that differ between containers.
func seenByRunc(t *testing.T, d *enginetest.Engine, p *pod) map[string]any {
	t.Helper()
	c, err := p.inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(d.Dir(), "root", "*-containers", c.ID, "userdata", "config.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("specification of the container: %q, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(strings.ReplaceAll(string(data), c.ID, "ID"), c.ID[:12], "ID")
	text = regexp.MustCompile(`/overlay/[0-9a-f]{64}/|netns-[0-9a-f-]{36}`).ReplaceAllString(text, "/PLACE/")
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(m["mounts"].([]any), func(a, b any) int {
		return strings.Compare(a.(map[string]any)["destination"].(string), b.(map[string]any)["destination"].(string))
	})
	process := m["process"].(map[string]any)
	slices.SortFunc(process["env"].([]any), func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	delete(process["user"].(map[string]any), "umask") // only one of the two APIs records Podman's default
	delete(m, "annotations")
	m["log"], m["image"], m["labels"] = c.HostConfig.LogConfig, c.Config.Image, c.Config.Labels
	m["restart"], m["check"], m["ports"] = c.HostConfig.RestartPolicy.Name, c.Config.Healthcheck.Test, fmt.Sprint(c.HostConfig.PortBindings)
	for name, at := range c.NetworkSettings.Networks {
		m["network "+name] = strings.ReplaceAll(fmt.Sprint(at.Aliases), c.ID[:12], "ID")
	}
	return m
}
