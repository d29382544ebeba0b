package testdouble_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podyard/podyard/httpapi/apitest"
)

// missing ends a test that needs something which is not there: on CI it must be.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("PODYARD_CI") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// tested runs the tests of a project in another language against a double of its own.
func tested(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	srv := apitest.Start(t)
	area := httptest.NewServer(srv.Double.Admin())
	defer area.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PODYARD_URL="+srv.URL(), "PODYARD_TEST_URL="+area.URL+"/_test",
		"NODE_PATH="+os.Getenv("PODYARD_NODE_MODULES"), "HOME="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
}

// It needs PODYARD_PYTHON, a Python with the packages runpod and pytest.
func TestPythonProject(t *testing.T) {
	python := os.Getenv("PODYARD_PYTHON")
	if python == "" {
		missing(t, "PODYARD_PYTHON names no Python with the packages runpod and pytest")
	}
	if out, err := exec.Command(python, "-c", "import runpod, pytest").CombinedOutput(); err != nil {
		missing(t, "PODYARD_PYTHON: "+err.Error()+": "+string(out))
	}
	tested(t, "python", python, "-m", "pytest", "-q", "-p", "no:cacheprovider")
}

// It needs Node.js, and in PODYARD_NODE_MODULES a directory node_modules with the package
// runpod-sdk.
func TestJavaScriptProject(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "there is no node")
	}
	modules := os.Getenv("PODYARD_NODE_MODULES")
	if _, err := os.Stat(filepath.Join(modules, "runpod-sdk", "package.json")); modules == "" || err != nil {
		missing(t, "PODYARD_NODE_MODULES names no directory with the package runpod-sdk")
	}
	tested(t, "javascript", node, "--test", "captions.test.cjs")
}
