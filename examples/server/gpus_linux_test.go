package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
)

const rtx4090 = "NVIDIA GeForce RTX 4090"

// A gpuHost is a machine whose driver library says what a file says.
type gpuHost struct {
	t            *testing.T
	lib, machine string // the directory of the library, the file
	data, config string
	shared       string // a directory that pods may write to
	addr         string
}

// newGPUHost has two GPUs of one type, and one that is partitioned.
func newGPUHost(t *testing.T) *gpuHost {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		missing(t, "there is no C compiler")
	}
	if out, err := exec.Command("go", "env", "CGO_ENABLED").Output(); err != nil || strings.TrimSpace(string(out)) != "1" {
		missing(t, "the server is built without cgo")
	}
	h := &gpuHost{t: t, lib: t.TempDir(), machine: filepath.Join(t.TempDir(), "machine"), data: t.TempDir(), shared: t.TempDir(), addr: "127.0.0.1:0"}
	h.config = file(t, `{"catalog":"host","images":{"shell":{"command":["/bin/sh","-c"]}},"processes":{"isolation":"none","user":"`+ownUser()+`"}}`)
	out, err := exec.Command("cc", "-shared", "-fPIC", "-o", filepath.Join(h.lib, "libnvidia-ml.so.1"),
		filepath.FromSlash("../../backend/nvidia/testdata/nvml.c")).CombinedOutput()
	if err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	h.set("gpu 0|GPU-a|"+rtx4090+"|24564|0|0|0", "gpu 0|GPU-b|"+rtx4090+"|24564|6141|87|0", "gpu 0|GPU-m|NVIDIA H200|143771|0|0|1")
	return h
}

func (h *gpuHost) set(lines ...string) {
	h.t.Helper()
	if err := os.WriteFile(h.machine, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *gpuHost) start() *instance {
	h.t.Helper()
	return startCommand(h.t, command(h.t,
		[]string{"PODYARD_API_KEY=" + testKey, "LD_LIBRARY_PATH=" + h.lib, "PODYARD_FAKE_NVML=" + h.machine},
		"-addr", h.addr, "-data", h.data, "-config", h.config, "-runtime", "process"))
}

// A load is what the interface says of a GPU of a pod.
type load struct{ Util, MemoryUtil int }

type gpuPod struct {
	ID          string
	Status      string
	CUDAVersion *string
	Runtime     *struct{ GPUs []load }
}

// compute is what a pod of these tests is made with; it tells which GPUs it is shown.
func compute(what string) string {
	return fmt.Sprintf(`{"name":"g","image":"shell","args":"'echo cuda=$CUDA_VISIBLE_DEVICES nvidia=$NVIDIA_VISIBLE_DEVICES; exec sleep 1000'",%s}`, what)
}

func oneGPU() string { return compute(`"gpu":{"id":"` + rtx4090 + `","count":1}`) }

func (in *instance) gpuPod(body, shown string) gpuPod {
	in.t.Helper()
	p := get[gpuPod](in, "POST", "/v2/pods", body, http.StatusCreated)
	in.follow(p.ID).await("cuda=" + shown)
	return p
}

// gpuPodWhenFree makes a pod with this GPU once a pod that was terminated has left it room.
func (in *instance) gpuPodWhenFree(gpu string) (p gpuPod) {
	in.t.Helper()
	eventually(in.t, "what was freed goes to the next pod", func() bool {
		status, body := in.do("POST", "/v2/pods", oneGPU())
		return status == http.StatusCreated && json.Unmarshal(body, &p) == nil
	})
	in.follow(p.ID).await("cuda=" + gpu + " nvidia=" + gpu)
	return p
}

// up waits until a pod runs.
func (in *instance) up(id string) (p gpuPod) {
	in.t.Helper()
	eventually(in.t, "the pod is RUNNING", func() bool {
		p = get[gpuPod](in, "GET", "/v2/pods/"+id, "", http.StatusOK)
		return p.Status == "RUNNING" && p.Runtime != nil
	})
	return p
}

// wantCompute waits for what a pod that runs is to say of its GPUs: a process is measured
// a moment after its start.
func (in *instance) wantCompute(p gpuPod, cuda string, loads ...load) {
	in.t.Helper()
	want := append([]load{}, loads...)
	eventually(in.t, fmt.Sprintf("runtime.gpus of pod %s is %v", p.ID, want), func() bool {
		p = in.up(p.ID)
		return cmp.Equal(want, p.Runtime.GPUs)
	})
	got := ""
	if p.CUDAVersion != nil {
		got = *p.CUDAVersion
	}
	if got != cuda {
		in.t.Errorf("cudaVersion = %q, want %q", got, cuda)
	}
}

func TestTheGPUsOfTheHostAreInTheCatalog(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := newGPUHost(t).start()
	got := get[map[string]any](in, "GET", "/v2/catalog/gpus", "", http.StatusOK)
	want := map[string]any{"gpus": []any{map[string]any{
		"id": rtx4090, "name": "RTX 4090", "pool": "ADA_24", "manufacturer": "NVIDIA", "memory": 24.0, "secure": true, "community": true,
		"price": map[string]any{"secure": 0.0, "community": 0.0}, "maxCount": map[string]any{"secure": 2.0, "community": 2.0},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GPU types (-want +got):\n%s", diff)
	}
	if dc := get[struct{ GlobalNetwork bool }](in, "GET", "/v2/catalog/datacenters/LOCAL-1", "", http.StatusOK); dc.GlobalNetwork {
		t.Error("the host has global networking, want it off")
	}
}

func TestAGPUIsOnePodsAtATimeAlsoOverTheServersDeath(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	h := newGPUHost(t)
	in := h.start()
	// The GPUs' shares are all of the host's memory: a CPU pod has room only while a GPU is free, and on a small
	// host while both are.
	cpu := in.gpuPod(compute(`"cpu":{"id":"host","vcpuCount":2}`), "-1 nvidia=void")
	in.wantCompute(cpu, "")
	in.act(cpu.ID, "terminate")
	a := in.gpuPodWhenFree("GPU-a")
	b := in.gpuPod(oneGPU(), "GPU-b nvidia=GPU-b")
	in.wantCompute(a, "12.8", load{})
	in.wantCompute(b, "12.8", load{87, 25})
	refused := func() {
		t.Helper()
		if status, body := in.do("POST", "/v2/pods", oneGPU()); status != http.StatusBadRequest || !strings.Contains(string(body), rtx4090) {
			t.Errorf("a third pod: %d %s, want a 400 that names the type", status, body)
		}
	}
	refused()

	in.end(syscall.SIGKILL)
	in = h.start()
	in.wantCompute(b, "12.8", load{87, 25})
	refused()
	in.act(a.ID, "terminate")
	in.gpuPodWhenFree("GPU-a")
	if left := processes(t, a.ID); len(left) > 0 {
		t.Errorf("processes %v of the pod that had the GPU are left", left)
	}
}

func TestAPodThatIsParticularAboutCUDAGetsTheHostOrA400(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := newGPUHost(t).start()
	for version, want := range map[string]int{"12.9": http.StatusBadRequest, "12.8": http.StatusCreated} {
		body := compute(`"gpu":{"id":"` + rtx4090 + `","count":1,"minCudaVersion":"` + version + `"}`)
		if status, answer := in.do("POST", "/v2/pods", body); status != want {
			t.Errorf("a pod that wants CUDA %s of a host with 12.8: %d %s, want %d", version, status, answer, want)
		}
	}
}

func TestAPodWhoseGPUIsGoneFailsAndNamesIt(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	h := newGPUHost(t)
	in := h.start()
	p := in.gpuPod(oneGPU(), "GPU-a nvidia=GPU-a")
	in.up(p.ID)
	h.set("gpu 15|GPU-a|"+rtx4090+"|24564|0|0|0", "gpu 0|GPU-b|"+rtx4090+"|24564|0|0|0")
	in.act(p.ID, "restart")
	log := in.follow(p.ID)
	log.await(`"GPU-a": find it: the driver says: GPU is lost`)
	eventually(t, "the pod is in ERROR", func() bool { return in.pod(p.ID).Status == "ERROR" })
	gone(t, p.ID)
}

func TestADriverThatCannotBeUsedIsToldAndTheServerServes(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	h := newGPUHost(t)
	h.set("init 9")
	in := h.start()
	if got := get[struct{ GPUs []any }](in, "GET", "/v2/catalog/gpus", "", http.StatusOK); len(got.GPUs) > 0 {
		t.Errorf("GPU types %v, want none", got.GPUs)
	}
	in.create("shell", `,"args":"'sleep 1000'"`)
	in.stop()
	if log := in.stderr.String(); !strings.Contains(log, "not offered") || !strings.Contains(log, "Driver Not Loaded") {
		t.Errorf("the log is\n%swant why there are no GPUs", log)
	}
}
