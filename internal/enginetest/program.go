package enginetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// MainWithProgram is [Main] for tests that need a Go program: it builds the package at path
// first, and stores the name of the executable in *file.
func MainWithProgram(m interface{ Run() int }, path string, file *string) int {
	return Main(&programTests{m, path, file})
}

type programTests struct {
	tests interface{ Run() int }
	path  string
	file  *string
}

// builtEnv names a program that is built already, for a machine without Go.
const builtEnv = "PODYARD_TEST_PROGRAM"

// Run builds the program and runs the tests.
func (p *programTests) Run() int {
	if *p.file = os.Getenv(builtEnv); *p.file != "" {
		return p.tests.Run()
	}
	dir, err := os.MkdirTemp("", "podyard-program-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Pods with a user of their own run it.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*p.file = filepath.Join(dir, "program.exe")
	if out, err := exec.Command("go", "build", "-o", *p.file, p.path).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return p.tests.Run()
}
