package docker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/podyard/podyard/pods"
)

func TestTheWayOfGPUsIsTheEnginesOwnWhereItHasOne(t *testing.T) {
	dirs := []string{"/etc/cdi"}
	for _, tt := range []struct {
		name  string
		facts gpuSupport
		want  gpuMethod
	}{
		{"Podman", gpuSupport{podman: true, local: true}, byPodman},
		{"Docker with CDI that has found GPUs", gpuSupport{local: true, cdi: dirs, found: true}, byCDI},
		{"Docker with CDI that does not say what it has found", gpuSupport{local: true, cdi: dirs}, byCDI},
		{"Docker with both, and GPUs found by CDI", gpuSupport{local: true, cdi: dirs, found: true, nvidia: true}, byCDI},
		{"Docker with both, and no GPUs found by CDI", gpuSupport{local: true, cdi: dirs, nvidia: true}, byRequest},
		{"Docker with NVIDIA's toolkit", gpuSupport{local: true, nvidia: true}, byRequest},
		{"Docker with neither", gpuSupport{local: true}, byEdits},
		{"Docker with neither, elsewhere", gpuSupport{}, byRequest},
	} {
		if got := tt.facts.method(); got != tt.want {
			t.Errorf("%s: way is %d, want %d", tt.name, got, tt.want)
		}
	}
}

func specification(t *testing.T, kind string, hooks ...*specs.Hook) (dir string) {
	t.Helper()
	dir = t.TempDir()
	data, err := json.Marshal(specs.Spec{Version: "0.5.0", Kind: kind, Devices: []specs.Device{{
		Name: "GPU-a", ContainerEdits: specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidia0"}}, Hooks: hooks},
	}}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "test.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestGPUsAreGivenWhereThereAreAny(t *testing.T) {
	none, gpus, others := t.TempDir(), specification(t, gpuKind), specification(t, "example.org/nic")
	hooked := specification(t, gpuKind, &specs.Hook{HookName: "createContainer", Path: "/bin/hook"})
	for _, tt := range []struct {
		name  string
		facts gpuSupport
		dir   string
		want  bool
	}{
		{"Podman and a specification", gpuSupport{podman: true, local: true}, gpus, true},
		{"Podman and one with hooks", gpuSupport{podman: true, local: true}, hooked, true},
		{"Podman and none", gpuSupport{podman: true, local: true}, none, false},
		{"Podman and one of other devices", gpuSupport{podman: true, local: true}, others, false},
		{"Podman elsewhere", gpuSupport{podman: true}, gpus, false},
		{"CDI that has found GPUs", gpuSupport{cdi: []string{none}, found: true}, none, true},
		{"CDI that does not say so, and there are some", gpuSupport{local: true, cdi: []string{hooked}}, none, true},
		{"CDI that does not say so, and there are none", gpuSupport{local: true, cdi: []string{none}}, gpus, false},
		{"NVIDIA's toolkit", gpuSupport{nvidia: true}, none, true},
		{"neither, and a specification", gpuSupport{local: true}, gpus, true},
		{"neither, and one with hooks", gpuSupport{local: true}, hooked, false},
		{"neither, and none", gpuSupport{local: true}, none, false},
		{"neither, elsewhere", gpuSupport{}, gpus, false},
	} {
		if got := tt.facts.available([]string{tt.dir}); got != tt.want {
			t.Errorf("%s: gives = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestGPUsAreAskedForByTheirNames(t *testing.T) {
	spec := pods.Spec{GPUs: 2, Devices: []string{"GPU-a", "GPU-b"}}
	for _, tt := range []struct {
		name  string
		facts gpuSupport
		want  container.DeviceRequest
		label string
	}{
		{
			"by CDI", gpuSupport{cdi: []string{"/etc/cdi"}},
			container.DeviceRequest{Driver: "cdi", DeviceIDs: []string{"nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"}}, "nvidia.com/gpu=GPU-a,nvidia.com/gpu=GPU-b",
		},
		{
			"by request", gpuSupport{nvidia: true},
			container.DeviceRequest{Driver: "nvidia", DeviceIDs: []string{"GPU-a", "GPU-b"}, Capabilities: [][]string{{"gpu"}}}, "GPU-a,GPU-b",
		},
	} {
		r := &Runtime{engine: engine{gpus: tt.facts}}
		g, err := r.gpuGrant(spec)
		if err != nil {
			t.Errorf("%s: grant = %v, want nil", tt.name, err)
		}
		made := made(g)
		if diff := cmp.Diff([]container.DeviceRequest{tt.want}, made.HostConfig.DeviceRequests); diff != "" {
			t.Errorf("%s: device requests (-want +got):\n%s", tt.name, diff)
		}
		if got := made.Config.Labels[labelGPUs]; got != tt.label {
			t.Errorf("%s: label %q, want %q", tt.name, got, tt.label)
		}
		if err := checkGPUs(made); err != nil {
			t.Errorf("%s: arrived = %v, want nil", tt.name, err)
		}
		made.HostConfig.DeviceRequests = nil
		if err := checkGPUs(made); err == nil || !strings.Contains(err.Error(), "did not arrive") {
			t.Errorf("%s: arrived = %v of a container without, want an error", tt.name, err)
		}
	}
}

func TestGPUsWithoutNamesAreNotHandedOver(t *testing.T) {
	for _, facts := range []gpuSupport{{podman: true, local: true}, {nvidia: true}, {cdi: []string{"/etc/cdi"}}, {local: true}} {
		for _, s := range []pods.Spec{{GPUs: 2}, {GPUs: 2, Devices: []string{"GPU-a"}}} {
			r := &Runtime{engine: engine{gpus: facts}}
			if g, err := r.gpuGrant(s); err == nil || !strings.Contains(err.Error(), "2 GPUs") {
				t.Errorf("%+v: grant to %+v = %+v, %v, want it refused", facts, s, g, err)
			}
		}
	}
}

func TestAPodWithoutGPUsCannotAskNVIDIAsRuntimeForSome(t *testing.T) {
	for want, facts := range map[string]gpuSupport{hideGPUsEnv: {nvidia: true}, "": {local: true}} {
		r := &Runtime{engine: engine{gpus: facts}}
		g, err := r.gpuGrant(pods.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		c := made(g)
		if got := strings.Join(c.Config.Env, " "); got != want {
			t.Errorf("%+v: environment %q, want %q", facts, got, want)
		}
		if err := checkGPUs(c); err != nil || len(c.HostConfig.DeviceRequests) > 0 {
			t.Errorf("%+v: the container has requests %v, and arrived = %v, want neither", facts, c.HostConfig.DeviceRequests, err)
		}
	}
}

func TestAPodWithGPUsByCDICannotAskNVIDIAsRuntimeForMore(t *testing.T) {
	dirs := []string{specification(t, gpuKind)}
	for _, facts := range []gpuSupport{{local: true, cdi: dirs, found: true, nvidia: true}, {local: true, podman: true, nvidia: true}} {
		r := &Runtime{engine: engine{gpus: facts}, opts: Options{CDIDirs: dirs}}
		g, err := r.gpuGrant(pods.Spec{GPUs: 1, Devices: []string{"GPU-a"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(made(g).Config.Env, " "); got != hideGPUsEnv {
			t.Errorf("%+v: environment %q, want %q", facts, got, hideGPUsEnv)
		}
	}
}

// made is a container as an engine reports it after a creation with g.
func made(g gpuGrant) *container.InspectResponse {
	c := g.apply(client.ContainerCreateOptions{
		Config: &container.Config{Labels: map[string]string{}}, HostConfig: &container.HostConfig{},
	})
	return &container.InspectResponse{Config: c.Config, HostConfig: c.HostConfig, State: &container.State{Running: true}}
}

func TestCDIIsTranslatedOrRefused(t *testing.T) {
	mode, id := os.FileMode(0o600), uint32(7)
	got, err := translate([]specs.ContainerEdits{
		{
			Env: []string{"A=1"}, AdditionalGIDs: []uint32{44},
			DeviceNodes: []*specs.DeviceNode{{Path: "/dev/ctl"}, {Path: "/dev/gpu", HostPath: "/host/dev/gpu0", Permissions: "rw"}},
			Mounts:      []*specs.Mount{{HostPath: "/lib/a", ContainerPath: "/lib/a", Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}}},
		},
		{DeviceNodes: []*specs.DeviceNode{{Path: "/dev/gpu", HostPath: "/host/dev/gpu1"}}, Env: []string{"A=2"}},
		{Mounts: []*specs.Mount{{HostPath: "/lib/b", ContainerPath: "/lib/a", Type: "bind"}, {HostPath: "/lib/c", ContainerPath: "/lib/c", Options: []string{"ro", "rbind", "rslave"}}}},
	})
	if err != nil {
		t.Fatalf("translate = %v, want nil", err)
	}
	want := edits{
		devices: []container.DeviceMapping{
			{PathOnHost: "/dev/ctl", PathInContainer: "/dev/ctl", CgroupPermissions: "rwm"},
			{PathOnHost: "/host/dev/gpu1", PathInContainer: "/dev/gpu", CgroupPermissions: "rwm"},
		},
		mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: "/lib/b", Target: "/lib/a", BindOptions: &mount.BindOptions{NonRecursive: true}},
			{Type: mount.TypeBind, Source: "/lib/c", Target: "/lib/c", ReadOnly: true, BindOptions: &mount.BindOptions{Propagation: mount.PropagationRSlave}},
		},
		env: []string{"A=1", "A=2"}, groups: []string{"44"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(edits{})); diff != "" {
		t.Errorf("translate (-want +got):\n%s", diff)
	}

	for want, c := range map[string]specs.ContainerEdits{
		"the hook nvidia-cdi-hook (createContainer)": {Hooks: []*specs.Hook{{HookName: "createContainer", Path: "/usr/bin/nvidia-cdi-hook"}}},
		"a class of Intel RDT":                       {IntelRdt: &specs.IntelRdt{ClosID: "a"}},
		"the network interface eth7":                 {NetDevices: []*specs.LinuxNetDevice{{HostInterfaceName: "eth7"}}},
		"/dev/a without a right to use it":           {DeviceNodes: []*specs.DeviceNode{{Path: "/dev/a", Permissions: "none"}}},
		"an owner or a mode of its own for /dev/b":   {DeviceNodes: []*specs.DeviceNode{{Path: "/dev/b", FileMode: &mode}}},
		"an owner or a mode of its own for /dev/c":   {DeviceNodes: []*specs.DeviceNode{{Path: "/dev/c", GID: &id}}},
		"a mount of type tmpfs":                      {Mounts: []*specs.Mount{{ContainerPath: "/t", Type: "tmpfs"}}},
		"the mount option uid=1":                     {Mounts: []*specs.Mount{{HostPath: "/u", ContainerPath: "/u", Options: []string{"uid=1"}}}},
	} {
		_, err := translate([]specs.ContainerEdits{{}, c})
		if err == nil || !strings.Contains(err.Error(), "needs "+want+", which cannot be asked for") {
			t.Errorf("translate = %v, want it to refuse %s", err, want)
		}
	}
}
