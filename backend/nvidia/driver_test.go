//go:build linux && cgo

package nvidia_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/nvidia"
	"github.com/podyard/podyard/pods"
)

const (
	rtx4090 = "NVIDIA GeForce RTX 4090"
	h200    = "NVIDIA H200"
)

// fake is the library of this process. A process can load only one.
var fake struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	if os.Getenv(asInventory) != "" {
		if err := inventory(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if fake.dir != "" {
		if err := os.RemoveAll(fake.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// compile builds a library from testdata/nvml.c.
func compile(to string, flags ...string) error {
	args := append([]string{"-shared", "-fPIC", "-Wall", "-Werror", "-o", to}, flags...)
	if out, err := exec.Command("cc", append(args, "testdata/nvml.c")...).CombinedOutput(); err != nil {
		return fmt.Errorf("cc: %w\n%s", err, out)
	}
	return nil
}

func compiler(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		if os.Getenv("PODYARD_CI") == "1" {
			t.Fatal(err)
		}
		t.Skip("needs a C compiler: ", err)
	}
}

// A machine is the GPUs that the fake library reports.
type machine struct {
	t    *testing.T
	file string
	path string
}

// gpu is a line of the machine: an idle GPU that is not partitioned.
func gpu(uuid, name string, total int) string {
	return fmt.Sprintf("gpu 0|%s|%s|%d|0|0|0", uuid, name, total)
}

func newMachine(t *testing.T, lines ...string) *machine {
	t.Helper()
	compiler(t)
	fake.once.Do(func() {
		if fake.dir, fake.err = os.MkdirTemp("", "podyard-nvml-"); fake.err == nil { //nolint:usetesting // all tests share it
			fake.err = compile(filepath.Join(fake.dir, "nvml.so"))
		}
	})
	if fake.err != nil {
		t.Fatal(fake.err)
	}
	m := &machine{t, filepath.Join(t.TempDir(), "machine"), filepath.Join(fake.dir, "nvml.so")}
	t.Setenv("PODYARD_FAKE_NVML", m.file) // cgo passes the variable to the library
	m.set(lines...)
	return m
}

func (m *machine) set(lines ...string) {
	m.t.Helper()
	if err := os.WriteFile(m.file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) open() *nvidia.Driver {
	m.t.Helper()
	d, err := nvidia.Open(&nvidia.Options{Library: m.path})
	if err != nil {
		m.t.Fatalf("Open = %v, want nil", err)
	}
	m.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			m.t.Errorf("Close = %v, want nil", err)
		}
	})
	return d
}

func TestInventoryIsWhatTheDriverHas(t *testing.T) {
	m := newMachine(t, "driver 550.54.15", "cuda 12040",
		gpu("GPU-a", rtx4090, 24564), gpu("GPU-b", rtx4090, 24564),
		"gpu 0|GPU-c|NVIDIA A100-SXM4-80GB|81920|0|0|1", "gpu 0|GPU-d|NVIDIA TITAN X|12288|0|0|-1")
	d := m.open()
	if diff := cmp.Diff(nvidia.Version{Driver: "550.54.15", CUDA: "12.4"}, d.Version()); diff != "" {
		t.Errorf("Version (-want +got):\n%s", diff)
	}
	got, err := d.Devices()
	if err != nil {
		t.Fatalf("Devices = %v, want nil", err)
	}
	want := []nvidia.Device{
		{UUID: "GPU-a", Name: rtx4090, Memory: 24564 << 20},
		{UUID: "GPU-b", Name: rtx4090, Memory: 24564 << 20},
		{UUID: "GPU-c", Name: "NVIDIA A100-SXM4-80GB", Memory: 81920 << 20, MIG: true},
		{UUID: "GPU-d", Name: "NVIDIA TITAN X", Memory: 12288 << 20},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Devices (-want +got):\n%s", diff)
	}
}

func TestAPartitionedGPUIsFollowedByItsParts(t *testing.T) {
	wantParts(t, newMachine(t, partitioned()...).open())
}

func TestAnUnreadablePartIsNamedAndTheOthersAreListed(t *testing.T) {
	d := newMachine(t, append(partitioned(), "part 15|0|5|MIG-f|MIG 1g.10gb|9728|0")...).open()
	got, err := d.Devices()
	if err == nil || !strings.Contains(err.Error(), "GPU 0: part 5: the driver says: GPU is lost") {
		t.Errorf("Devices = %v, want the driver's words about part 5 of GPU 0", err)
	}
	if len(got) != 4 {
		t.Errorf("Devices = %+v, want the four that can be read", got)
	}
}

func TestAnUnreadableGPUIsNamedAndTheOthersAreListed(t *testing.T) {
	d := newMachine(t, gpu("GPU-a", rtx4090, 24564), "gpu 15|GPU-b|"+rtx4090+"|24564|0|0|0", gpu("GPU-c", h200, 143771)).open()
	got, err := d.Devices()
	if err == nil || !strings.Contains(err.Error(), "GPU 1") || !strings.Contains(err.Error(), "GPU is lost") {
		t.Errorf("Devices = %v, want the driver's words about GPU 1", err)
	}
	if len(got) != 2 || got[0].UUID != "GPU-a" || got[1].UUID != "GPU-c" {
		t.Errorf("Devices = %+v, want the two that can be read", got)
	}
}

func TestLoadIsThatOfTheDevice(t *testing.T) {
	m := newMachine(t, gpu("GPU-a", rtx4090, 1000), "gpu 0|GPU-b|"+rtx4090+"|1000|255|93|0", "gpu 0|GPU-c|old|1000|1000|-1|-1")
	d := m.open()
	for uuid, want := range map[string]pods.GPUSample{
		"GPU-a": {}, "GPU-b": {Util: 93, MemoryUtil: 26}, "GPU-c": {MemoryUtil: 100},
	} {
		if got, err := d.Load(uuid); err != nil || got != want {
			t.Errorf("Load(%q) = %+v, %v, want %+v", uuid, got, err, want)
		}
	}
	m.set("gpu 0|GPU-a|" + rtx4090 + "|1000|500|7|0")
	if got, err := d.Load("GPU-a"); err != nil || got != (pods.GPUSample{Util: 7, MemoryUtil: 50}) {
		t.Errorf("a later Load = %+v, %v, want the load of then", got, err)
	}
	if _, err := d.Load("GPU-b"); err == nil || !strings.Contains(err.Error(), `"GPU-b"`) || !strings.Contains(err.Error(), "Not Found") {
		t.Errorf("Load of a GPU that is gone = %v, want an error that names it, in the driver's words", err)
	}
}

func TestCheckNamesWhatIsNotThereAsAWhole(t *testing.T) {
	d := newMachine(t, gpu("GPU-a", rtx4090, 1000), "gpu 0|GPU-m|"+rtx4090+"|1000|0|0|1", "gpu 15|GPU-l|"+rtx4090+"|1000|0|0|0").open()
	for _, tt := range []struct {
		devices []string
		want    string
	}{
		{nil, ""},
		{[]string{"GPU-a"}, ""},
		{[]string{"GPU-a", "GPU-x"}, `"GPU-x": find it: the driver says: Not Found`},
		{[]string{"GPU-l"}, `"GPU-l": find it: the driver says: GPU is lost`},
		{[]string{"GPU-m"}, `"GPU-m": it is partitioned`},
	} {
		err := d.Check(tt.devices)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Check(%q) = %v, want %q", tt.devices, err, tt.want)
		}
	}
}

func TestOpenSaysWhyThereIsNoDriver(t *testing.T) {
	m := newMachine(t)
	notOne := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(notOne, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "old.so")
	if err := compile(old, "-DOLD"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir()) // without nvidia-smi
	for _, tt := range []struct {
		name, path, machine string
		missing             bool
		want                string
	}{
		{"no library", "/nonexistent/libnvidia-ml.so.1", "", true, "/nonexistent/libnvidia-ml.so.1"},
		{"no library at all", notOne, "", true, notOne},
		{"a library without a function", old, "", false, "nvmlDeviceGetUtilizationRates"},
		{"a driver that is not loaded", m.path, "init 9", false, "Driver Not Loaded"},
		{"a driver without CUDA", m.path, "cuda 0", false, "CUDA version: the driver says: Not Supported"},
	} {
		m.set(tt.machine)
		d, err := nvidia.Open(&nvidia.Options{Library: tt.path})
		if d != nil || err == nil || errors.Is(err, nvidia.ErrMissing) != tt.missing || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Open = %v, %v; want an error with %q that is ErrMissing: %v", tt.name, d, err, tt.want, tt.missing)
		}
	}
}

func TestTheDriverFailingLaterIsAnErrorOfTheCall(t *testing.T) {
	m := newMachine(t, gpu("GPU-a", rtx4090, 1000))
	d := m.open()
	m.set("count 15")
	if list, err := d.Devices(); len(list) > 0 || err == nil || !strings.Contains(err.Error(), "count: the driver says: GPU is lost") {
		t.Errorf("Devices = %v, %v, want the driver's words", list, err)
	}
}

func TestNothingIsCalledAfterClose(t *testing.T) {
	d := newMachine(t, gpu("GPU-a", rtx4090, 1000)).open()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if _, err := d.Load("GPU-a"); err != nil && !errors.Is(err, nvidia.ErrClosed) {
					t.Errorf("Load = %v, want nil or ErrClosed", err)
				}
			}
		})
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	wg.Wait()
	_, err := d.Devices()
	_, loadErr := d.Load("GPU-a")
	for _, err := range []error{err, loadErr, d.Check([]string{"GPU-a"})} {
		if !errors.Is(err, nvidia.ErrClosed) {
			t.Errorf("a call after Close = %v, want ErrClosed", err)
		}
	}
	if err := d.Close(); err != nil {
		t.Errorf("second Close = %v, want nil", err)
	}
	if d.Version().Driver == "" {
		t.Error("the version is gone after Close")
	}
}
