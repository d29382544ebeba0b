//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// pythonSDK is the version of the package runpod that was read and that is tried.
const pythonSDK = "1.12.0"

// python is the interpreter in PODYARD_PYTHON, one with the package runpod.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PODYARD_PYTHON")
	if path == "" {
		missing(t, "PODYARD_PYTHON names no Python with the package runpod "+pythonSDK)
	}
	out, err := exec.Command(path, "-c", "import importlib.metadata as m; print(m.version('runpod'))").CombinedOutput()
	if version := strings.TrimSpace(string(out)); err != nil || version != pythonSDK {
		missing(t, fmt.Sprintf("runpod in PODYARD_PYTHON is %q (%v), want %s", version, err, pythonSDK))
	}
	return path
}

// ownUser has pods run as the user of the tests, whose interpreters may be closed to others.
func ownUser() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return ""
}

// startPython runs a server with an endpoint for each kind of handler in
// testdata/worker.py, whose workers the server starts as processes. Their handlers leave
// marks for the tests.
func startPython(t *testing.T, modes ...string) *instance {
	t.Helper()
	dirs := map[string]string{}
	for _, mode := range modes {
		dirs[mode] = ""
	}
	return startScript(t, python(t), "testdata/worker.py", dirs)
}

// startScript runs a server with an endpoint for each mode of a Python script, whose workers the server starts
// as processes. dirs are their working directories, by mode; empty: the pod's own.
func startScript(t *testing.T, interpreter, script string, dirs map[string]string) *instance {
	t.Helper()
	script, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	images, endpoints := map[string]any{}, []any{}
	for mode, dir := range dirs {
		image := map[string]any{"command": []string{interpreter, script}, "env": map[string]string{"MODE": mode}}
		if dir != "" {
			image["dir"] = dir
		}
		images["py/"+mode] = image
		endpoints = append(endpoints, map[string]any{
			"id": mode, "image": "py/" + mode, "cpu": []any{map[string]any{"id": "host", "vcpuCount": 2}},
			"workers": map[string]any{"min": 0, "max": 1, "idleTimeout": 600},
			"scaling": map[string]any{"type": "QUEUE_DELAY", "queueDelay": 0.5},
		})
	}
	config, err := json.Marshal(map[string]any{
		"images": images, "endpoints": endpoints, "processes": map[string]any{"isolation": "none", "user": ownUser()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return start(t, "-config", file(t, string(config)))
}

// A pyJob is a job of a Python worker.
type pyJob struct {
	ID, Status, Error string
	WorkerID          string `json:"workerId"`
	Output            any
}

// runsync runs a job to its end.
func (in *instance) runsync(endpoint string, input any) pyJob {
	in.t.Helper()
	j := get[pyJob](in, "POST", "/v2/"+endpoint+"/runsync?wait=60000", body(in.t, input), http.StatusOK)
	if j.Status == "IN_QUEUE" || j.Status == "IN_PROGRESS" {
		in.t.Fatalf("job of %s is still %s", endpoint, j.Status)
	}
	return j
}

func body(t *testing.T, input any) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"input": input})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// run submits a job and returns its status path.
func (in *instance) run(endpoint string, input any) (id string) {
	in.t.Helper()
	return get[pyJob](in, "POST", "/v2/"+endpoint+"/run", body(in.t, input), http.StatusOK).ID
}

func (in *instance) status(endpoint, id string) pyJob {
	in.t.Helper()
	return get[pyJob](in, "GET", "/v2/"+endpoint+"/status/"+id, "", http.StatusOK)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestAnUnmodifiedPythonWorkerServesSyncHandlers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := startPython(t, "sync")

	input := map[string]any{"a": 1.0, "text": "ünï"}
	j := get[pyJob](in, "POST", "/v2/sync/runsync?wait=60000", `{"input":{"a":1,"text":"ünï"},"s3Config":{"bucketName":"b"}}`, http.StatusOK)
	out, _ := j.Output.(map[string]any)
	if diff := cmp.Diff(map[string]any{"pid": out["pid"], "input": input, "bucket": "b"}, out); j.Status != "COMPLETED" || diff != "" {
		t.Errorf("job is %s %s (-want +got):\n%s", j.Status, j.Error, diff)
	}
	if j := in.runsync("sync", map[string]any{"act": "raise"}); j.Status != "FAILED" || !strings.Contains(j.Error, "ValueError") || !strings.Contains(j.Error, "no luck") {
		t.Errorf("a handler that raises: %s with %s, want FAILED with the exception", j.Status, j.Error)
	}
	if j := in.runsync("sync", map[string]any{"act": "error"}); j.Status != "FAILED" || j.Error != "bad input" {
		t.Errorf("a handler that returns an error: %s with %q, want FAILED with it", j.Status, j.Error)
	}

	release := filepath.Join(dir, "go")
	id := in.run("sync", map[string]any{"act": "progress", "go": release})
	eventually(t, "the progress is the output of the job under way", func() bool {
		j := in.status("sync", id)
		return j.Status == "IN_PROGRESS" && cmp.Equal(j.Output, map[string]any{"half": true})
	})
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job completes and its progress is not its output", func() bool {
		j := in.status("sync", id)
		out, _ := j.Output.(map[string]any)
		return j.Status == "COMPLETED" && out["pid"] != nil
	})

	logged := in.runsync("sync", map[string]any{"act": "log"})
	eventually(t, "the lines that the worker printed for the job are its log, and those of the SDK", func() bool {
		l := get[struct {
			Lines []struct{ Level, Message string }
		}](in, "GET", "/v2/sync/log/"+logged.ID, "", http.StatusOK)
		warned := slices.ContainsFunc(l.Lines, func(l struct{ Level, Message string }) bool {
			return l.Level == "WARN" && l.Message == "step 1 of job"
		})
		return warned && len(l.Lines) >= 3
	})

	first := in.runsync("sync", map[string]any{"act": "refresh"})
	second := in.runsync("sync", map[string]any{})
	if first.Status != "COMPLETED" || second.Status != "COMPLETED" || first.WorkerID == second.WorkerID {
		t.Errorf("after refresh_worker worker %s (%s) is followed by %s (%s), want another one", first.WorkerID, first.Status, second.WorkerID, second.Status)
	}
}

func TestAPythonWorkerKilledInTheMiddleOfAJobLosesItToAnotherThatCompletesIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := startPython(t, "sync")
	j := in.runsync("sync", map[string]any{"act": "die", "mark": filepath.Join(dir, "died")})
	if j.Status != "COMPLETED" {
		t.Errorf("job is %s %s, want COMPLETED by the second worker", j.Status, j.Error)
	}
	h := get[struct {
		Jobs struct{ Completed, Failed, Retried int }
	}](in, "GET", "/v2/sync/health", "", http.StatusOK)
	if h.Jobs.Retried != 1 || h.Jobs.Completed != 1 || h.Jobs.Failed != 0 {
		t.Errorf("health counts %+v, want 1 retried and 1 completed", h.Jobs)
	}
}

func TestABlockedPythonHandlerIsReplacedWhenItsJobIsCancelled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, mark := startPython(t, "sync"), filepath.Join(dir, "began")
	id := in.run("sync", map[string]any{"act": "block", "mark": mark})
	eventually(t, "the handler blocks", func() bool { return exists(mark) })
	blocked := in.status("sync", id).WorkerID
	if j := get[pyJob](in, "POST", "/v2/sync/cancel/"+id, "", http.StatusOK); j.Status != "CANCELLED" {
		t.Errorf("cancel answers %s, want CANCELLED", j.Status)
	}
	if j := in.runsync("sync", map[string]any{}); j.Status != "COMPLETED" || j.WorkerID == blocked {
		t.Errorf("the next job is %s by %s, want COMPLETED by another worker than %s", j.Status, j.WorkerID, blocked)
	}
}

func TestAPythonWorkerRunsFourJobsAtOnceAndStopsACancelledOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := startPython(t, "async")
	var ids []string
	for range 4 {
		ids = append(ids, in.run("async", map[string]any{"together": 4}))
	}
	for _, id := range ids {
		eventually(t, "four jobs that wait for each other complete", func() bool { return in.status("async", id).Status == "COMPLETED" })
	}
	mark := filepath.Join(dir, "began")
	id := in.run("async", map[string]any{"forever": true, "mark": mark})
	eventually(t, "the handler runs", func() bool { return exists(mark) })
	cancelled := time.Now()
	get[pyJob](in, "POST", "/v2/async/cancel/"+id, "", http.StatusOK)
	eventually(t, "the handler is cancelled", func() bool { return exists(mark + ".cancelled") })
	t.Logf("the handler was cancelled after %v", time.Since(cancelled).Round(time.Millisecond))
	if s := in.status("async", id).Status; s != "CANCELLED" {
		t.Errorf("status is %s, want CANCELLED", s)
	}
}

func TestAPythonWorkersStreamIsReadItemByItem(t *testing.T) {
	t.Parallel()
	in := startPython(t, "generator", "aggregate")
	for mode, output := range map[string]any{"generator": []any{}, "aggregate": tokens(5)} {
		id := in.run(mode, map[string]any{"n": 5})
		var got []any
		for status := ""; status != "COMPLETED"; {
			part := get[struct {
				Status string
				Stream []struct{ Output any }
			}](in, "GET", "/v2/"+mode+"/stream/"+id+"?format=envelope&wait=20000", "", http.StatusOK)
			for _, item := range part.Stream {
				got = append(got, item.Output)
			}
			if status = part.Status; status == "FAILED" {
				t.Fatalf("%s failed: %+v", mode, in.status(mode, id))
			}
		}
		if diff := cmp.Diff(tokens(5), got); diff != "" {
			t.Errorf("%s streamed (-want +got):\n%s", mode, diff)
		}
		if diff := cmp.Diff(output, in.status(mode, id).Output); diff != "" {
			t.Errorf("output of %s (-want +got):\n%s", mode, diff)
		}
	}
}

func tokens(n int) any {
	list := make([]any, n)
	for i := range list {
		list[i] = map[string]any{"tok": float64(i)}
	}
	return list
}

func TestAPythonWorkerThatIsReplacedFinishesItsJobFirst(t *testing.T) {
	t.Parallel()
	in, release := startPython(t, "sync"), filepath.Join(t.TempDir(), "go")
	image := get[struct{ ID, Image string }](in, "GET", "/v2/serverless/sync", "", http.StatusOK).Image
	id := get[struct{ ID string }](in, "POST", "/v2/serverless", `{"name":"mine","type":"QUEUE","image":`+strconv.Quote(image)+
		`,"cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":1},"scaling":{"type":"REQUEST_COUNT","requestCount":1}}`, http.StatusCreated).ID
	job := in.run(id, map[string]any{"act": "progress", "go": release})
	eventually(t, "the job is under way", func() bool { return in.status(id, job).Output != nil })
	old := in.status(id, job).WorkerID
	get[struct{}](in, "PATCH", "/v2/serverless/"+id, `{"env":{"RELEASE":"2"}}`, http.StatusOK)
	next := in.run(id, map[string]any{})
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job of the old release completes", func() bool {
		j := in.status(id, job)
		return j.Status == "COMPLETED" && j.WorkerID == old
	})
	eventually(t, "the next job completes on a worker of the new release", func() bool {
		j := in.status(id, next)
		return j.Status == "COMPLETED" && j.WorkerID != old
	})
}

func TestThePublicPythonClientWorksUnchanged(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	in := start(t)
	cmd := exec.Command(interpreter, filepath.Join("testdata", "client.py"), in.key)
	cmd.Env = append(os.Environ(), "RUNPOD_ENDPOINT_BASE_URL="+in.url+"/v2", "HOME="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v\n%s", err, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	chunks := func(n int) (list []any) {
		for i := range n {
			list = append(list, map[string]any{"chunk": float64(i)})
		}
		return list
	}
	want := map[string]any{
		"health": []any{"idle", "initializing", "ready", "running", "throttled", "unhealthy"},
		"output": map[string]any{"a": 1.0}, "status": "COMPLETED", "run_sync": map[string]any{"b": 2.0},
		"cancelled": "CANCELLED", "stream": chunks(3), "purged": map[string]any{"removed": 0.0, "status": "completed"},
		"failed output": nil, "failed": "FAILED",
		"async output": map[string]any{"c": 3.0}, "async status": "COMPLETED", "async stream": chunks(2), "async cancel": "CANCELLED",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the client got (-want +got):\n%s", diff)
	}
}
