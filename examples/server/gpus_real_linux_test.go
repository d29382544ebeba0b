package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// These tests need GPUs that nobody else uses. .ci/gpu builds them on one machine and runs
// them on another, which needs a driver and neither Go nor a network.

// cudaProgramEnv names the program of testdata/cuda.c. Without it the tests are skipped.
const cudaProgramEnv = "PODYARD_GPU_PROGRAM"

// A realHost is a server on a machine with GPUs.
type realHost struct {
	*instance

	gpus []realGPU
}

// A realGPU is what nvidia-smi tells of a device.
type realGPU struct {
	uuid, kind string
	memory     int // MiB
}

func newRealHost(t *testing.T) *realHost {
	t.Helper()
	path := os.Getenv(cudaProgramEnv)
	if path == "" {
		t.Skip("needs an NVIDIA GPU that nobody uses: .ci/gpu runs this")
	}
	h := &realHost{}
	for row := range strings.SplitSeq(strings.TrimSpace(smi(t, "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits")), "\n") {
		field := strings.Split(row, ", ")
		if len(field) != 3 {
			t.Fatalf("nvidia-smi lists %q, want a UUID, a name and a memory", row)
		}
		memory, err := strconv.Atoi(field[2])
		if err != nil {
			t.Fatalf("nvidia-smi lists %q: %v", row, err)
		}
		h.gpus = append(h.gpus, realGPU{field[0], field[1], memory})
	}
	config := file(t, fmt.Sprintf(`{"catalog":"host","images":{"cuda":{"command":[%q]}},"processes":{"user":%q}}`, path, ownUser()))
	h.instance = start(t, "-config", config, "-runtime", "process")
	return h
}

// smi is what nvidia-smi prints.
func smi(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("nvidia-smi", args...).Output()
	if err != nil {
		t.Fatalf("nvidia-smi: %v\n%s", err, out)
	}
	return string(out)
}

// whole leaves out partitioned GPUs.
func (h *realHost) whole() []realGPU {
	return slices.DeleteFunc(slices.Clone(h.gpus), func(g realGPU) bool { return len(h.parts(g)) > 0 })
}

var partOf = regexp.MustCompile(`(?m)^\s+(MIG \S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)`)

func (h *realHost) parts(g realGPU) (list []realGPU) {
	_, of, _ := strings.Cut(smi(h.t, "-L"), "(UUID: "+g.uuid+")")
	of, _, _ = strings.Cut(of, "\nGPU ")
	for _, m := range partOf.FindAllStringSubmatch(of, -1) {
		list = append(list, realGPU{uuid: m[2], kind: g.kind + " " + m[1]})
	}
	return list
}

// work makes a pod that works on a GPU of a type for some seconds.
func (h *realHost) work(kind string, seconds int) gpuPod {
	h.t.Helper()
	return get[gpuPod](h.instance, "POST", "/v2/pods", work(fmt.Sprintf(`"gpu":{"id":%q,"count":1}`, kind), seconds), http.StatusCreated)
}

func work(compute string, seconds int) string {
	return fmt.Sprintf(`{"name":"g","image":"cuda","args":"%d",%s}`, seconds, compute)
}

func TestOnARealMachineTheCatalogHasTheGPUsOfItsDriver(t *testing.T) {
	h := newRealHost(t)
	type offer struct{ count, memory int } // memory is in GiB, 0 for parts
	want := map[string]offer{}
	for _, g := range h.gpus {
		parts := h.parts(g)
		for _, p := range parts {
			want[p.kind] = offer{count: 1}
		}
		if len(parts) == 0 {
			want[g.kind] = offer{want[g.kind].count + 1, (g.memory + 512) / 1024}
		}
	}
	got := map[string]offer{}
	for _, o := range get[struct {
		GPUs []struct {
			ID       string
			Memory   int
			MaxCount struct{ Secure int }
		}
	}](h.instance, "GET", "/v2/catalog/gpus", "", http.StatusOK).GPUs {
		memory := o.Memory
		if strings.Contains(o.ID, " MIG ") {
			memory = 0
		}
		got[o.ID] = offer{o.MaxCount.Secure, memory}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(offer{})); diff != "" {
		t.Errorf("how many GPUs of a type a pod can have, and their GiB (-want +got):\n%s", diff)
	}
	t.Logf("GPUs: %v", got)
}

func TestOnARealMachineAPodHasItsGPUForItselfAndIsMeasured(t *testing.T) {
	h := newRealHost(t)
	gpus := h.whole()
	if len(gpus) == 0 {
		t.Skip("needs a GPU that is not partitioned")
	}
	seen := map[string]bool{}
	var pods []gpuPod
	for _, g := range gpus {
		p := h.work(g.kind, 600)
		log := h.follow(p.ID)
		_, uuid, _ := strings.Cut(log.await("sees 1 "), "sees 1 ")
		seen["GPU-"+uuid] = true
		pods = append(pods, p)
	}
	for _, g := range gpus {
		if !seen[g.uuid] {
			t.Errorf("CUDA showed the pods %v, want each GPU of %v once", seen, gpus)
		}
	}
	if status, body := h.do("POST", "/v2/pods", work(fmt.Sprintf(`"gpu":{"id":%q,"count":1}`, gpus[0].kind), 1)); status != http.StatusBadRequest {
		t.Errorf("a pod more than there are GPUs: %d %s, want 400", status, body)
	}
	cpu := get[gpuPod](h.instance, "POST", "/v2/pods", work(`"cpu":{"id":"host","vcpuCount":2}`, 0), http.StatusCreated)
	h.follow(cpu.ID).await("sees 0")

	cuda := regexp.MustCompile(`CUDA Version\s*:?\s*(\d+\.\d+)`).FindStringSubmatch(smi(t, "-q", "-d", "MEMORY"))
	for _, p := range pods {
		eventually(t, "the GPU of a pod that computes is busy and has memory in use", func() bool {
			p = h.up(p.ID)
			return len(p.Runtime.GPUs) == 1 && p.Runtime.GPUs[0].Util > 50
		})
		if len(cuda) == 2 && (p.CUDAVersion == nil || *p.CUDAVersion != cuda[1]) {
			t.Errorf("cudaVersion = %v, want nvidia-smi's %s", p.CUDAVersion, cuda[1])
		}
		t.Logf("pod %s: %+v", p.ID, p.Runtime.GPUs)
		h.act(p.ID, "terminate")
	}
	eventually(t, "a GPU is given to the next pod when its pod is gone", func() bool {
		status, _ := h.do("POST", "/v2/pods", work(fmt.Sprintf(`"gpu":{"id":%q,"count":1}`, gpus[0].kind), 1))
		return status == http.StatusCreated
	})
}

func TestOnARealMachineASecondPodSeesAnotherGPU(t *testing.T) {
	h := newRealHost(t)
	if n := len(h.whole()); n < 2 {
		t.Skipf("needs two GPUs that are not partitioned: there are %d", n)
	}
	a, b := h.work(h.whole()[0].kind, 600), h.work(h.whole()[1].kind, 600)
	if x, y := h.follow(a.ID).await("sees 1 "), h.follow(b.ID).await("sees 1 "); x == y {
		t.Errorf("two pods see the same GPU: %s", x)
	}
}

func TestOnARealMachineAPodHasAPartOfAGPU(t *testing.T) {
	h := newRealHost(t)
	var parts []realGPU
	for _, g := range h.gpus {
		parts = append(parts, h.parts(g)...)
	}
	if len(parts) == 0 {
		t.Skip("needs a partitioned GPU (MIG): there is none")
	}
	h.follow(h.work(parts[0].kind, 5).ID).await("worked")
}

func TestOnARealMachineAContainerSeesItsGPU(t *testing.T) {
	image := os.Getenv("PODYARD_GPU_IMAGE")
	if os.Getenv(cudaProgramEnv) != "" && image == "" {
		t.Skip("needs a container engine and PODYARD_GPU_IMAGE, an image that it has and in which nvidia-smi runs")
	}
	h := newRealHost(t)
	in := start(t, "-config", file(t, `{"catalog":"host"}`), "-runtime", "docker")
	kind := h.whole()[0].kind
	p := get[gpuPod](in, "POST", "/v2/pods", fmt.Sprintf(`{"name":"g","image":%q,"args":"nvidia-smi -L",`+
		`"gpu":{"id":%q,"count":1}}`, image, kind), http.StatusCreated)
	if log := in.follow(p.ID).await("UUID: GPU-"); strings.Count(log, "UUID: GPU-") != 1 {
		t.Errorf("a container with one GPU sees %s", log)
	}
}
