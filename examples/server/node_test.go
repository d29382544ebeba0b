package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// node finds Node.js and, in PODYARD_NODE_MODULES, a directory node_modules with
// packages of exactly these versions.
func node(t *testing.T, versions map[string]string) (path, modules string) {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		missing(t, "there is no node")
	}
	modules = os.Getenv("PODYARD_NODE_MODULES")
	for name, want := range versions {
		if modules == "" {
			missing(t, fmt.Sprintf("PODYARD_NODE_MODULES names no directory with the package %s %s", name, want))
		}
		var manifest struct{ Version string }
		b, err := os.ReadFile(filepath.Join(modules, filepath.FromSlash(name), "package.json"))
		if err == nil {
			err = json.Unmarshal(b, &manifest)
		}
		if err != nil || manifest.Version != want {
			missing(t, fmt.Sprintf("%s in PODYARD_NODE_MODULES is version %q (%v), want %s", name, manifest.Version, err, want))
		}
	}
	return path, modules
}

// lastLine runs a client and decodes the last line of its output.
func lastLine[T any](t *testing.T, cmd *exec.Cmd) (v T) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", filepath.Base(cmd.Path), err, out, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &v); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return v
}
