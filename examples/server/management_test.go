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

// newerSDK is the version of the package runpod whose management calls are tried: the first one that
// speaks the newer public API. It cannot be in one environment with pythonSDK.
const newerSDK = "2.0.0rc2"

// newerPython is the interpreter in PODYARD_PYTHON_NEWER, one with the package runpod of that version.
func newerPython(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PODYARD_PYTHON_NEWER")
	if path == "" {
		missing(t, "PODYARD_PYTHON_NEWER names no Python with the package runpod "+newerSDK)
	}
	out, err := exec.Command(path, "-c", "import importlib.metadata as m; print(m.version('runpod'))").CombinedOutput()
	if version := strings.TrimSpace(string(out)); err != nil || version != newerSDK {
		missing(t, fmt.Sprintf("runpod in PODYARD_PYTHON_NEWER is %q (%v), want %s", version, err, newerSDK))
	}
	return path
}

func TestManagementCallsOfTheNewerPackageWorkUnchanged(t *testing.T) {
	t.Parallel()
	interpreter := newerPython(t)
	in := start(t, "-runtime", "sim", "-config", file(t, `{"catalog":"sample"}`))
	cmd := exec.Command(interpreter, filepath.Join("testdata", "management.py"))
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "RUNPOD_API_KEY="+in.key, "RUNPOD_API_BASE_URL="+in.url)
	want := obj{
		"pod":      []any{"serve 'a b'", []any{}, []any{"serve", "a b"}, 2.0, true, true},
		"pods":     true,
		"missing":  nil,
		"no host":  true,
		"template": []any{"a", "b"},
		"volumes":  true,
		"globals":  []any{},
	}
	if diff := cmp.Diff(want, lastLine[obj](t, cmd)); diff != "" {
		t.Errorf("what the client got (-want +got):\n%s", diff)
	}
}
