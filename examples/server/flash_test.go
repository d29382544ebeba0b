//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// flash is the version of the package runpod-flash that was read and that is tried.
const flash = "1.21.0"

// TestThePackageFlashWorksUnchanged gives all its services this server, or it would look
// for those that are not served elsewhere: what it asks of them is answered 404, which it
// takes for the absence of logs.
func TestThePackageFlashWorksUnchanged(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	out, err := exec.Command(interpreter, "-c", "import importlib.metadata as m; print(m.version('runpod-flash'))").CombinedOutput()
	if version := strings.TrimSpace(string(out)); err != nil || version != flash {
		missing(t, fmt.Sprintf("runpod-flash in PODYARD_PYTHON is %q (%v), want %s", version, err, flash))
	}
	in := start(t)
	script, err := filepath.Abs(filepath.Join("testdata", "flash.py"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(interpreter, script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "RUNPOD_API_KEY="+in.key, "RUNPOD_ENDPOINT_BASE_URL="+in.url+"/v2",
		"RUNPOD_API_BASE_URL="+in.url, "RUNPOD_REST_API_URL="+in.url+"/v1", "RUNPOD_HAPI_URL="+in.url, "RUNPOD_CONSOLE_URL="+in.url)
	if diff := cmp.Diff(flashWants, lastLine[obj](t, cmd)); diff != "" {
		t.Errorf("what the client got (-want +got):\n%s", diff)
	}
}

var flashWants = obj{
	"runsync":   []any{true, obj{"a": 1.0}},
	"run":       []any{false, nil},
	"wait":      []any{true, obj{"b": 2.0}},
	"failed":    []any{"FAILED", "why"},
	"cancelled": "CANCELLED",

	"resource runsync": obj{"status": "COMPLETED", "workerId": "local-echo", "output": obj{"c": 3.0}, "error": ""},
	"resource run":     obj{"status": "COMPLETED", "workerId": "local-echo", "output": obj{"d": 4.0}, "error": ""},
	"resource failed":  obj{"status": "FAILED", "workerId": "local-echo", "output": nil, "error": "again"},

	"health": []any{true, "READY", obj{"completed": 4.0, "failed": 2.0, "inProgress": 0.0, "inQueue": 0.0, "retried": 0.0}},
	"metrics": []any{
		obj{"idle": 1.0, "initializing": 0.0, "ready": 1.0, "running": 0.0, "throttled": 0.0, "unhealthy": 0.0},
		[]any{"local-echo"},
	},
}
