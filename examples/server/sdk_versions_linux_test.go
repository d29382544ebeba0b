package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// sdkVersions are the versions of the Python SDK whose workers are tried (docs/clients.md). Those that
// are always tried stand first: one that pings in a thread, one that keeps its jobs in a file, and the
// next one.
var sdkVersions = []string{"1.6.2", "1.10.0", "2.0.0rc2", "1.7.1", "1.7.13", "1.8.2", "1.12.0"}

// alwaysTried is how many of sdkVersions are tried without PODYARD_LONG.
const alwaysTried = 3

// An ending is a job of testdata/ends.py and how it must end (docs/ends.md).
type ending struct {
	mode, act string
	runs      int
	status    string
	error     string // it begins or ends so
	not       string // the version that ends it in another way
}

// noResult goes on with "asked for another job" or, of version 1.6.2, "reported no result, and its pings
// do not list the job".
const noResult = "worker lost: the job was given to workers 3 times and none of them reported a result; the last one: it "

var endings = []ending{
	{mode: "sync", act: "print", runs: 1, status: "COMPLETED"},
	{mode: "sync", act: "snooze", runs: 3, status: "COMPLETED"},
	{mode: "sync", act: "cancel", runs: 1, status: "CANCELLED"},
	{mode: "sync", act: "output", runs: 1, status: "COMPLETED"},
	{mode: "sync", act: "nan", runs: 1, status: "FAILED", error: "the worker's result is not JSON: invalid character 'N'"},
	{mode: "sync", act: "raise", runs: 1, status: "FAILED", error: "no luck"},
	// Version 1.7.1 never says what it has, so such a job ends by its execution timeout there.
	{mode: "sync", act: "bytes", runs: 3, status: "FAILED", error: noResult, not: "1.7.1"},
	{mode: "sync", act: "set", runs: 3, status: "FAILED", error: noResult, not: "1.7.1"},
	{mode: "sync", act: "generator", runs: 3, status: "FAILED", error: noResult, not: "1.7.1"},
	{mode: "sync", act: "bytes", runs: 1, status: "TIMED_OUT", error: "execution timeout", not: "but 1.7.1"},
	// Not beside the others: version 1.6.2 takes the next job before it is known that the last one has no result.
	{mode: "chunks", act: "exit", runs: 3, status: "FAILED", error: "the last one: exited with code 3"},
	{mode: "chunks", act: "one", runs: 1, status: "FAILED", error: "a chunk of the worker's result is larger than 20971520 bytes (20 MB)"},
	{mode: "chunks", act: "many", runs: 1, status: "FAILED", error: "a chunk was not taken: the stream is full"},
	{mode: "sync", act: "sleep", runs: 1, status: "COMPLETED"},
	{mode: "slow", act: "slow", runs: 1, status: "COMPLETED"},
}

func (e *ending) isOf(version string) bool {
	if only, ok := strings.CutPrefix(e.not, "but "); ok {
		return version == only
	}
	return e.not != version
}

// interpreterOf returns a Python with a version of the SDK: PODYARD_SDKS has a virtual environment for
// each.
func interpreterOf(t *testing.T, version string) string {
	t.Helper()
	path := filepath.Join(os.Getenv("PODYARD_SDKS"), version, "bin", "python")
	out, err := exec.Command(path, "-c", "import importlib.metadata as m; print(m.version('runpod'))").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != version {
		missing(t, fmt.Sprintf("runpod in PODYARD_SDKS/%s is %q (%v)", version, got, err))
	}
	return path
}

func TestWorkersOfAllVersionsOfTheSDKEndTheirJobsInWaysThatCount(t *testing.T) {
	for i, version := range sdkVersions {
		if i >= alwaysTried && os.Getenv("PODYARD_LONG") == "" {
			break
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			in := startEndings(t, interpreterOf(t, version))
			var wait sync.WaitGroup
			for _, e := range endings {
				if e.isOf(version) {
					wait.Go(func() { in.wantEnding(&e) })
				}
			}
			wait.Wait()
		})
	}
}

// startEndings runs a server with an endpoint for each kind of handler of testdata/ends.py. The workers
// of slow run in a directory that they cannot write, as those of images with a "dir" do.
func startEndings(t *testing.T, interpreter string) *instance {
	t.Helper()
	return startScript(t, interpreter, "testdata/ends.py", map[string]string{"sync": "", "chunks": "", "slow": "/sys"})
}

// wantEnding runs a job and compares how it ended, and how often it ran.
func (in *instance) wantEnding(e *ending) {
	what, marks := e.mode+" "+e.act, filepath.Join(in.t.TempDir(), "runs")
	policy := ""
	if e.status == "TIMED_OUT" {
		policy = `,"policy":{"executionTimeout":20000}`
	}
	status, b := in.do("POST", "/v2/"+e.mode+"/run", fmt.Sprintf(`{"input":{"act":%q,"mark":%q}%s}`, e.act, marks, policy))
	if status != http.StatusOK {
		in.t.Errorf("%s: run = %d %s", what, status, b)
		return
	}
	var j pyJob
	_ = json.Unmarshal(b, &j) // an empty id is not found
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
		if _, b = in.do("GET", "/v2/"+e.mode+"/status-sync/"+j.ID+"?wait=60000", ""); json.Unmarshal(b, &j) != nil || j.Status != "IN_QUEUE" && j.Status != "IN_PROGRESS" {
			break
		}
	}
	runs, _ := os.ReadFile(marks) // none: it never ran
	in.t.Logf("%s: %s %.200s", what, j.Status, j.Error)
	if n := strings.Count(string(runs), "run"); n != e.runs || j.Status != e.status || !strings.Contains(j.Error, e.error) {
		in.t.Errorf("%s: it is %s after %d runs with %q\nwant %s after %d with %q", what, j.Status, n, j.Error, e.status, e.runs, e.error)
	}
}
