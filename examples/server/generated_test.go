package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The generators that are tried, besides the one that testdata/generated/go.mod pins.
const (
	openapiTypeScript = "7.13.0"
	openapiFetch      = "0.17.0"
	typeScript        = "5.9.3"
	openapiPython     = "0.29.1"
)

// A client of each kind submits jobs with a policy, reads a stream to its end, the jobs in pages, and the
// error of a job that is not there.
func TestClientsMadeFromTheServedDocumentCompileAndWork(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(t *testing.T, document string) *exec.Cmd{
		"openapi-typescript": typeScriptClient, "openapi-python-client": pythonClient, "oapi-codegen": goClient,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := start(t)
			code, document := in.do("GET", "/v2/openapi.json", "")
			if code != http.StatusOK {
				t.Fatalf("the document = %d %s", code, document)
			}
			path := filepath.Join(t.TempDir(), "openapi.json")
			save(t, path, document)
			cmd := client(t, path)
			cmd.Args = append(cmd.Args, in.url, in.key)
			want := obj{"status": "COMPLETED", "parts": 3.0, "jobs": 3.0, "pages": 2.0, "code": 404.0, "detail": "job not found"}
			if diff := cmp.Diff(want, lastLine[obj](t, cmd)); diff != "" {
				t.Errorf("what the client got (-want +got):\n%s", diff)
			}
		})
	}
}

// typeScriptClient makes types, compiles client.mts with them, strictly, and returns its command.
func typeScriptClient(t *testing.T, document string) *exec.Cmd {
	node, modules := node(t, map[string]string{
		"openapi-typescript": openapiTypeScript, "openapi-fetch": openapiFetch, "typescript": typeScript,
	})
	dir := filepath.Dir(document)
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	save(t, filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`))
	copied(t, "client.mts", dir)
	within(t, dir, node, filepath.Join(modules, "openapi-typescript", "bin", "cli.js"), document, "-o", "podyard.ts")
	within(t, dir, node, filepath.Join(modules, "typescript", "lib", "tsc.js"), "--strict", "--target", "es2022",
		"--module", "nodenext", "--lib", "es2023,dom,dom.iterable", "client.mts")
	return exec.Command(node, filepath.Join(dir, "client.mjs"))
}

// pythonClient makes a package beside client.py, and returns the command of that.
func pythonClient(t *testing.T, document string) *exec.Cmd {
	python := os.Getenv("PODYARD_PYTHON_OPENAPI")
	if python == "" {
		missing(t, "PODYARD_PYTHON_OPENAPI names no Python with the package openapi-python-client "+openapiPython)
	}
	out, err := exec.Command(python, "-c", "import importlib.metadata as m; print(m.version('openapi-python-client'))").CombinedOutput()
	if version := strings.TrimSpace(string(out)); err != nil || version != openapiPython {
		missing(t, "openapi-python-client in PODYARD_PYTHON_OPENAPI is "+version+", want "+openapiPython)
	}
	dir := filepath.Dir(document)
	copied(t, "client.py", dir)
	// Without its hooks it does not look for a formatter.
	save(t, filepath.Join(dir, "config.yaml"), []byte("post_hooks: []\n"))
	within(t, dir, python, "-m", "openapi_python_client", "generate", "--path", document, "--config", "config.yaml",
		"--output-path", "podyard_api", "--meta", "none")
	within(t, dir, python, "-m", "compileall", "-q", "podyard_api")
	return exec.Command(python, filepath.Join(dir, "client.py"))
}

// goClient makes a package, builds client.go with it in the module of testdata/generated, and returns the
// command of the program. Nothing is written there: the compiler is told where the files are.
func goClient(t *testing.T, document string) *exec.Cmd {
	module, err := filepath.Abs("testdata/generated")
	if err != nil {
		t.Fatal(err)
	}
	needs := exec.Command("go", "list", "-deps", "tool", "./...")
	needs.Dir, needs.Env = module, offline()
	if out, err := needs.CombinedOutput(); err != nil {
		missing(t, "the modules of testdata/generated are not there: "+string(out))
	}
	dir := filepath.Dir(document)
	made, program := filepath.Join(dir, "api.go"), filepath.Join(dir, "client")
	within(t, module, "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "api", "-o", made, document)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(module, "use", "api", "api.go"): made,
		filepath.Join(module, "use", "client.go"):     filepath.Join(module, "testdata", "client.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	save(t, filepath.Join(dir, "overlay.json"), overlay)
	within(t, module, "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./use")
	return exec.Command(program)
}

// offline is an environment in which the go command fetches nothing. With the flags of this run it finds
// compiled what other modules have compiled.
func offline() []string {
	return append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly")
}

// within runs a command in a directory, without a network for the go command.
func within(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, offline()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// copied copies a program of testdata/generated.
func copied(t *testing.T, name, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "generated", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	save(t, filepath.Join(dir, name), b)
}

func save(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
