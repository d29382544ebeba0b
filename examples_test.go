package podyard_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// examplesIn is the names of the examples of a file.
func examplesIn(t *testing.T, path string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example") {
			names = append(names, f.Name.Name)
		}
	}
	return names
}

// exampleFiles is the files with examples of the packages that others import, and how many
// examples each package has.
func exampleFiles(t *testing.T) (paths []string, count map[string]int) {
	t.Helper()
	count = map[string]int{}
	for _, path := range tests(t) {
		names := examplesIn(t, path)
		if len(names) == 0 {
			continue
		}
		if !strings.HasPrefix(filepath.Base(path), "example") {
			t.Errorf("%s: examples stand in files of their own, example_test.go, which compile anywhere", path)
		}
		paths = append(paths, path)
		count[filepath.ToSlash(filepath.Dir(path))] += len(names)
	}
	return paths, count
}

// tests is every test file outside of the example programs.
func tests(t *testing.T) (paths []string) {
	t.Helper()
	for _, path := range files(t, "_test.go") {
		if !strings.HasPrefix(path, "examples/") {
			paths = append(paths, path)
		}
	}
	return paths
}

// The documentation shows how each backend is used, and at least 40 examples in all.
func TestEveryBackendHasAnExample(t *testing.T) {
	_, count := exampleFiles(t)
	sum := 0
	for _, n := range count {
		sum += n
	}
	if sum < 40 {
		t.Errorf("there are %d examples, want at least 40", sum)
	}
	backends, err := os.ReadDir("backend")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range backends {
		if b.IsDir() && count["backend/"+b.Name()] == 0 {
			t.Errorf("backend/%s has no example", b.Name())
		}
	}
}

// What the documentation shows can be copied into another module: it imports nothing
// internal, and uses no helper of our tests.
func TestExamplesCompileInAnotherModule(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the examples of all packages")
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mod := read(t, "go.mod")
	mod = strings.Replace(mod, "module "+module, "module example.org/outside", 1) +
		"\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + strconv.Quote(root) + "\n"
	write(t, filepath.Join(dir, "go.mod"), mod)
	write(t, filepath.Join(dir, "go.sum"), read(t, "go.sum"))
	paths, _ := exampleFiles(t)
	for _, p := range paths {
		if _, err := os.Stat(filepath.Join(filepath.Dir(p), "go.mod")); err == nil && filepath.Dir(p) != "." {
			continue // it compiles in a module of its own
		}
		write(t, filepath.Join(dir, p), read(t, p))
	}
	cmd := exec.CommandContext(t.Context(), "go", "vet", "./...")
	cmd.Dir = dir
	// With the flags of this run it finds compiled what the module imports.
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOPROXY=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
