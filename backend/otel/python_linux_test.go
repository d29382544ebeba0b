package otel_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/podyard/podyard/internal/suite"
)

func TestATraceGoesThroughAStockPythonWorker(t *testing.T) {
	suite.SkipUnlessLong(t)
	python := os.Getenv("PODYARD_PYTHON")
	if python == "" {
		if os.Getenv("PODYARD_CI") == "1" {
			t.Fatal("PODYARD_PYTHON names no Python with the package runpod")
		}
		t.Skip("PODYARD_PYTHON names no Python with the package runpod")
	}
	got := make(chan string, 10)
	reports := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.URL.Query().Get("p") }))
	defer reports.Close()
	follow(t, got, func(url string) { pythonWorker(t, python, url+"/v2/shout", reports.URL) })
}

// pythonWorker starts a worker with the public SDK, unmodified, whose handler reports the trace
// context of each job.
func pythonWorker(t *testing.T, python, base, report string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "testdata/worker.py", report)
	cmd.Env = append(os.Environ(), "RUNPOD_POD_ID=w1", "RUNPOD_ENDPOINT_ID=shout", "RUNPOD_AI_API_KEY=worker", "RUNPOD_PING_INTERVAL=1000",
		"RUNPOD_SKIP_AUTO_SYSTEM_CHECKS=true", "RUNPOD_SKIP_GPU_CHECK=true",
		"RUNPOD_WEBHOOK_GET_JOB="+base+"/job-take/$ID?gpu=cpu", "RUNPOD_WEBHOOK_POST_OUTPUT="+base+"/job-done/$RUNPOD_POD_ID/$ID?gpu=cpu",
		"RUNPOD_WEBHOOK_POST_STREAM="+base+"/job-stream/$RUNPOD_POD_ID/$ID?gpu=cpu", "RUNPOD_WEBHOOK_PING="+base+"/ping/$RUNPOD_POD_ID?gpu=cpu")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has a process of its own for pings
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = out.Close()
		if text, err := os.ReadFile(out.Name()); t.Failed() {
			t.Logf("the worker has written:\n%s %v", text, err)
		}
	})
}
