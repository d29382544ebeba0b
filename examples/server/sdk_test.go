package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sdk is the version of the package that was read and that is tried.
const sdk = "1.1.2"

// TestThePublicJavaScriptClientWorksUnchanged needs Node.js and, in PODYARD_NODE_MODULES,
// a directory node_modules with the package runpod-sdk.
func TestThePublicJavaScriptClientWorksUnchanged(t *testing.T) {
	t.Parallel()
	path, modules := node(t, map[string]string{"runpod-sdk": sdk})
	in := start(t)
	cmd := exec.Command(path, filepath.Join("testdata", "sdk.cjs"), in.url, in.key)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	got := lastLine[obj](t, cmd)
	if diff := cmp.Diff(sdkWants, mask(got)); diff != "" {
		t.Errorf("what the client got (-want +got):\n%s", diff)
	}
}

// whatever stands for values that no two runs share.
const whatever = "…"

// mask replaces ids and times, of which only that they are there counts.
func mask(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = mask(v[i])
		}
	case map[string]any:
		for k, x := range v {
			switch k {
			case "id", "delayTime", "executionTime":
				v[k] = whatever
			default:
				v[k] = mask(x)
			}
		}
	}
	return v
}

type obj = map[string]any

// ended is a job of endpoint echo as status and its kin show it to the client, which
// adds three members.
func ended(status string, more obj) obj {
	o := obj{
		"id": whatever, "status": status, "delayTime": whatever, "executionTime": whatever, "workerId": "local-echo",
		"started": true, "completed": true, "succeeded": status == "COMPLETED",
	}
	maps.Copy(o, more)
	return o
}

var sdkWants = obj{
	"health": obj{
		"jobs":    obj{"completed": 0.0, "failed": 0.0, "inProgress": 0.0, "inQueue": 0.0, "retried": 0.0},
		"workers": obj{"idle": 1.0, "initializing": 0.0, "ready": 1.0, "running": 0.0, "throttled": 0.0, "unhealthy": 0.0},
	},
	"runSync":       ended("COMPLETED", obj{"output": obj{"hello": "world", "n": []any{1.0, 2.5, nil}}}),
	"runSyncFailed": ended("FAILED", obj{"error": "why"}),
	// runsync was held for a second; then the client went on with status-sync.
	"runSyncSlow":  ended("COMPLETED", obj{"output": obj{"sleep_ms": 1500.0}}),
	"run":          obj{"id": whatever, "status": "IN_QUEUE"},
	"statusBefore": false, // completed
	"cancel":       obj{"id": whatever, "status": "CANCELLED"},
	"statusAfter":  ended("CANCELLED", nil),
	"statusSync":   ended("COMPLETED", obj{"output": obj{"sleep_ms": 300.0, "done": true}}),
	"stream": []any{
		obj{"output": obj{"chunk": 0.0}}, obj{"output": obj{"chunk": 1.0}}, obj{"output": obj{"chunk": 2.0}},
		obj{"output": obj{"chunk": 3.0}}, obj{"output": obj{"chunk": 4.0}},
	},
	"streamed": ended("COMPLETED", obj{"output": []any{
		obj{"chunk": 0.0}, obj{"chunk": 1.0}, obj{"chunk": 2.0}, obj{"chunk": 3.0}, obj{"chunk": 4.0},
	}}),
	"purgeQueue": obj{"removed": 0.0, "status": "completed"},
	"unknown":    404.0,
}
