package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/internal/suite"
)

// gpuEndpoint is a request for one whose workers need one GPU each, and add what they are
// shown of it to a file.
func gpuEndpoint(shown string) string {
	return fmt.Sprintf(`{"name":"g","type":"QUEUE","image":"shell","args":"'echo cuda=$CUDA_VISIBLE_DEVICES nvidia=$NVIDIA_VISIBLE_DEVICES count=$RUNPOD_GPU_COUNT >>%s; exec %s %s'",`+
		`"gpu":{"pools":["ADA_24"],"count":1,"minCudaVersion":"12.0"},"workers":{"min":1,"max":2},"scaling":{"type":"REQUEST_COUNT","requestCount":1}}`,
		shown, program, demo.HelloCommand)
}

// A gpuWorker is what the interface says of a worker.
type gpuWorker struct {
	ID, Status, GPUTypeID, DataCenterID string
	GPUCount                            int
}

func (in *instance) workersOf(endpoint string) []gpuWorker {
	in.t.Helper()
	return get[struct{ Workers []gpuWorker }](in, "GET", "/v2/serverless/"+endpoint+"/workers", "", http.StatusOK).Workers
}

// available is how much of the type is free, for pods and for workers.
func (in *instance) available() string {
	in.t.Helper()
	var list []string
	for _, product := range []string{"POD", "SERVERLESS"} {
		g := get[struct {
			GPUs []struct{ Availability string }
		}](in, "GET", "/v2/catalog/gpus?include=AVAILABILITY&product="+product, "", http.StatusOK)
		list = append(list, g.GPUs[0].Availability)
	}
	return strings.Join(list, " ")
}

func TestAGPUIsAWorkersOrAPodsAlsoOverTheServersDeath(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	h := newGPUHost(t)
	h.addr = suite.FreeAddress(t)
	in := h.start()
	shown := filepath.Join(h.shared, "shown")
	endpoint := get[struct{ ID string }](in, "POST", "/v2/serverless", gpuEndpoint(shown), http.StatusCreated).ID
	greet := func() {
		t.Helper()
		j := get[job](in, "POST", "/v2/"+endpoint+"/runsync?wait=30000", `{"input":{}}`, http.StatusOK)
		if j.Status != "COMPLETED" {
			t.Fatalf("the job is %s %s, want COMPLETED", j.Status, j.Error)
		}
	}
	greet()
	b, err := os.ReadFile(shown)
	if want := "cuda=GPU-a nvidia=GPU-a count=1\n"; err != nil || string(b) != want {
		t.Errorf("the worker was shown %q, %v, want %q", b, err, want)
	}
	before := in.workersOf(endpoint)
	want := []gpuWorker{{ID: before[0].ID, Status: "IDLE", GPUTypeID: rtx4090, DataCenterID: "LOCAL-1", GPUCount: 1}}
	if diff := cmp.Diff(want, before); diff != "" {
		t.Errorf("workers (-want +got):\n%s", diff)
	}
	if got := in.available(); got != "HIGH HIGH" {
		t.Errorf("availability with one of two free = %s", got)
	}
	pod := in.gpuPod(oneGPU(), "GPU-b nvidia=GPU-b")
	refused := func(when string) {
		t.Helper()
		if status, body := in.do("POST", "/v2/pods", oneGPU()); status != http.StatusBadRequest || !strings.Contains(string(body), rtx4090) {
			t.Errorf("another pod %s: %d %s, want a 400 that names the type", when, status, body)
		}
		if got := in.available(); got != "NONE NONE" {
			t.Errorf("availability %s = %s, want none", when, got)
		}
	}
	refused("with a worker and a pod")

	in.end(syscall.SIGKILL)
	in = h.start()
	refused("after a restart")
	greet()
	in.up(pod.ID)
	eventually(t, "the worker goes on with what it had", func() bool { return cmp.Equal(before, in.workersOf(endpoint)) })

	get[struct{}](in, "DELETE", "/v2/serverless/"+endpoint, "", http.StatusNoContent)
	var next gpuPod
	eventually(t, "the GPU of the worker that ended goes to the next pod", func() bool {
		status, body := in.do("POST", "/v2/pods", oneGPU())
		return status == http.StatusCreated && json.Unmarshal(body, &next) == nil
	})
	in.follow(next.ID).await("cuda=GPU-a nvidia=GPU-a")
	refused("with two pods")
}

func TestAWorkerWaitsForTheGPUThatAPodHas(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	h := newGPUHost(t)
	in := h.start()
	a := in.gpuPod(oneGPU(), "GPU-a nvidia=GPU-a")
	in.gpuPod(oneGPU(), "GPU-b nvidia=GPU-b")
	shown := filepath.Join(h.shared, "shown")
	endpoint := get[struct{ ID string }](in, "POST", "/v2/serverless", gpuEndpoint(shown), http.StatusCreated).ID
	eventually(t, "the worker is throttled", func() bool {
		list := in.workersOf(endpoint)
		return len(list) == 1 && list[0].Status == "THROTTLED"
	})
	in.act(a.ID, "stop")
	began := time.Now()
	eventually(t, "the worker has the GPU of the pod that was stopped", func() bool {
		b, err := os.ReadFile(shown)
		return err == nil && string(b) == "cuda=GPU-a nvidia=GPU-a count=1\n"
	})
	t.Logf("after %v", time.Since(began))
}
