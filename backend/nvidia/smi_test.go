//go:build unix

package nvidia_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/nvidia"
	"github.com/podyard/podyard/pods"
)

// openTool opens a Driver without a library, with the program of testdata.
func openTool(t *testing.T, lines ...string) (*nvidia.Driver, error) {
	t.Helper()
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "machine")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PODYARD_FAKE_NVML", file)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return nvidia.Open(&nvidia.Options{Library: "/nonexistent/libnvidia-ml.so.1"})
}

func TestWithoutTheLibraryTheToolIsAsked(t *testing.T) {
	d, err := openTool(t, "driver 550.54.15", "cuda 12040",
		"gpu 0|GPU-a|NVIDIA GeForce RTX 4090|24564|6141|87|0", "gpu 0|GPU-b|NVIDIA H200|143771|0|0|1", "gpu 0|GPU-c|NVIDIA TITAN X|12288|12288|-1|-1")
	if err != nil {
		t.Fatalf("Open = %v, want nil", err)
	}
	if diff := cmp.Diff(nvidia.Version{Driver: "550.54.15", CUDA: "12.4"}, d.Version()); diff != "" {
		t.Errorf("Version (-want +got):\n%s", diff)
	}
	got, err := d.Devices()
	if err != nil {
		t.Fatalf("Devices = %v, want nil", err)
	}
	want := []nvidia.Device{
		{UUID: "GPU-a", Name: "NVIDIA GeForce RTX 4090", Memory: 24564 << 20},
		{UUID: "GPU-b", Name: "NVIDIA H200", Memory: 143771 << 20, MIG: true},
		{UUID: "GPU-c", Name: "NVIDIA TITAN X", Memory: 12288 << 20},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Devices (-want +got):\n%s", diff)
	}
	for uuid, want := range map[string]pods.GPUSample{"GPU-a": {Util: 87, MemoryUtil: 25}, "GPU-b": {}, "GPU-c": {MemoryUtil: 100}} {
		if got, err := d.Load(uuid); err != nil || got != want {
			t.Errorf("Load(%q) = %+v, %v, want %+v", uuid, got, err, want)
		}
	}
	for _, tt := range []struct {
		devices []string
		want    string
	}{
		{[]string{"GPU-a"}, ""},
		{[]string{"GPU-a", "GPU-x"}, `"GPU-x": find it: the driver says: No devices were found`},
		{[]string{"GPU-b"}, `"GPU-b": it is partitioned`},
	} {
		err := d.Check(tt.devices)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Check(%q) = %v, want %q", tt.devices, err, tt.want)
		}
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	if _, err := d.Load("GPU-a"); !errors.Is(err, nvidia.ErrClosed) {
		t.Errorf("Load after Close = %v, want ErrClosed", err)
	}
}

func TestTheToolSaysWhatCannotBeRead(t *testing.T) {
	d, err := openTool(t, "gpu 0|GPU-a|NVIDIA H200|143771|0|0|0", "gpu 15|GPU-b|NVIDIA H200|143771|0|0|0", "gpu 0|GPU-c|NVIDIA H200|143771|0|0|0")
	if err != nil {
		t.Fatalf("Open = %v, want nil", err)
	}
	list, err := d.Devices()
	if err == nil || !strings.Contains(err.Error(), "GPU 1: memory: the driver says: GPU is lost") {
		t.Errorf("Devices = %v, want the driver's words about GPU 1", err)
	}
	if len(list) != 2 || list[0].UUID != "GPU-a" || list[1].UUID != "GPU-c" {
		t.Errorf("Devices = %+v, want the two that can be read", list)
	}
	if _, err := d.Load("GPU-b"); err == nil || !strings.Contains(err.Error(), "GPU is lost") {
		t.Errorf("Load of a lost GPU = %v, want the driver's words", err)
	}
}

func TestOpenSaysWhyTheToolCannotBeUsed(t *testing.T) {
	for line, want := range map[string]string{
		"init 9": "the driver says: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
		"cuda 0": `CUDA version: the driver says: "N/A"`,
	} {
		d, err := openTool(t, line)
		if d != nil || err == nil || errors.Is(err, nvidia.ErrMissing) || !strings.Contains(err.Error(), want) {
			t.Errorf("Open = %v, %v, want an error with %q that is not ErrMissing", d, err, want)
		}
	}
}

// partitioned has a GPU in two parts, at indexes with a gap, and a whole one.
func partitioned() []string {
	return []string{
		"gpu 0|GPU-p|NVIDIA A100-SXM4-80GB|81920|0|0|1",
		"part 0|0|0|MIG-a|MIG 1g.10gb|9728|0", "part 0|0|2|MIG-c|MIG 2g.20gb|19968|4992",
		"gpu 0|GPU-w|NVIDIA GeForce RTX 4090|24564|0|0|0",
	}
}

// wantParts checks what a driver of that machine tells.
func wantParts(t *testing.T, d *nvidia.Driver) {
	t.Helper()
	got, err := d.Devices()
	if err != nil {
		t.Fatalf("Devices = %v, want nil", err)
	}
	want := []nvidia.Device{
		{UUID: "GPU-p", Name: "NVIDIA A100-SXM4-80GB", Memory: 81920 << 20, MIG: true},
		{UUID: "MIG-a", Name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb", Memory: 9728 << 20, Parent: "GPU-p"},
		{UUID: "MIG-c", Name: "NVIDIA A100-SXM4-80GB MIG 2g.20gb", Memory: 19968 << 20, Parent: "GPU-p"},
		{UUID: "GPU-w", Name: "NVIDIA GeForce RTX 4090", Memory: 24564 << 20},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a partitioned GPU is followed by its parts (-want +got):\n%s", diff)
	}
	if err := d.Check([]string{"MIG-a", "GPU-w", "MIG-c"}); err != nil {
		t.Errorf("Check of parts = %v, want nil", err)
	}
	if err := d.Check([]string{"MIG-b"}); err == nil || !strings.Contains(err.Error(), `"MIG-b": find it`) {
		t.Errorf("Check of a part that is gone = %v, want an error that names it", err)
	}
	if got, err := d.Load("MIG-c"); err != nil || got != (pods.GPUSample{MemoryUtil: 25}) {
		t.Errorf("Load of a part = %+v, %v, want its own memory and no util, which the driver does not measure", got, err)
	}
}

func TestTheToolTellsThePartsOfAGPU(t *testing.T) {
	d, err := openTool(t, partitioned()...)
	if err != nil {
		t.Fatalf("Open = %v, want nil", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	})
	wantParts(t, d)
}
