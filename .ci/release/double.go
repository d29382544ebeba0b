package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/podyard/podyard/httpapi/command"
)

// The test double for other languages: a library, and the program that it starts.
//
//go:embed all:python node
var libraries embed.FS

// wheelTags are the platforms of wheels. The program is static, so any C library will do.
var wheelTags = map[string]string{
	"linux/amd64":   "manylinux2014_x86_64.manylinux_2_17_x86_64.musllinux_1_1_x86_64",
	"linux/arm64":   "manylinux2014_aarch64.manylinux_2_17_aarch64.musllinux_1_1_aarch64",
	"darwin/amd64":  "macosx_12_0_x86_64",
	"darwin/arm64":  "macosx_12_0_arm64",
	"windows/amd64": "win_amd64",
	"windows/arm64": "win_arm64",
}

// programName is the program's name in a package.
func programName(t target) string {
	if t.os == "windows" {
		return "podyard.exe"
	}
	return "podyard"
}

// wheel writes a package for pip: a zip with the modules, the program and metadata.
func (r *release) wheel(_ context.Context, t target) error {
	tags := wheelTags[t.String()]
	program, err := os.ReadFile(t.file)
	if err != nil {
		return err
	}
	entries, err := modules("python", "")
	if err != nil {
		return err
	}
	info := "podyard_double-" + r.version + ".dist-info/"
	var wheelText strings.Builder
	wheelText.WriteString("Wheel-Version: 1.0\nGenerator: podyard\nRoot-Is-Purelib: false\n")
	for tag := range strings.SplitSeq(tags, ".") {
		fmt.Fprintf(&wheelText, "Tag: py3-none-%s\n", tag)
	}
	entries = append(
		entries,
		entry{"podyard_double/bin/" + programName(t), 0o755, program, 0},
		entry{info + "METADATA", 0o644, []byte(strings.ReplaceAll(metadata, "@VERSION@", r.version)), 0},
		entry{info + "WHEEL", 0o644, []byte(wheelText.String()), 0},
		entry{info + "entry_points.txt", 0o644, []byte("[pytest11]\npodyard_double = podyard_double.plugin\n"), 0},
	)
	var record bytes.Buffer
	for _, e := range entries {
		sum := sha256.Sum256(e.body)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", e.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(e.body))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	entries = append(entries, entry{info + "RECORD", 0o644, record.Bytes(), 0})
	return writeZip(filepath.Join(r.out, "podyard_double-"+r.version+"-py3-none-"+tags+".whl"), r.at, entries)
}

const metadata = `Metadata-Version: 2.1
Name: podyard-double
Version: @VERSION@
Summary: A test double of the pod and serverless API, with a clock that tests move
Requires-Python: >=3.9
Classifier: Framework :: Pytest
Description-Content-Type: text/markdown

A server for tests of code that calls the API: scripted workers, faults by name, a clock that
stands still until a test moves it, and a journal to assert on. The fixture ` + "`podyard_double`" + `
of pytest starts it and sets the variables that the official SDK reads. A test that fails says what the
service saw. podyard_double.worker("captions", "handler.py") runs a handler of your own as a worker,
while the clock goes on.
`

// modules are the files of a library, below a directory of the archive.
func modules(dir, prefix string) (list []entry, err error) {
	err = fs.WalkDir(libraries, dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".pyc") {
			return err
		}
		b, err := fs.ReadFile(libraries, path)
		list = append(list, entry{prefix + strings.TrimPrefix(path, dir+"/"), 0o644, b, 0})
		return err
	})
	return list, err
}

// npmPlatforms are what Node.js calls a system.
var npmPlatforms = map[string]string{"amd64": "x64", "arm64": "arm64", "windows": "win32", "darwin": "darwin", "linux": "linux"}

func npmName(t target) string {
	return "podyard-double-" + npmPlatforms[t.os] + "-" + npmPlatforms[t.arch]
}

// npmProgram writes the package with the program for one system. npm installs the one that fits.
func (r *release) npmProgram(_ context.Context, t target) error {
	program, err := os.ReadFile(t.file)
	if err != nil {
		return err
	}
	about, err := json.MarshalIndent(map[string]any{
		"name": npmName(t), "version": r.version, "license": "Apache-2.0", "description": "The program of podyard-double for " + t.String(),
		"os": []string{npmPlatforms[t.os]}, "cpu": []string{npmPlatforms[t.arch]}, "files": []string{"bin"},
	}, "", "  ")
	if err != nil {
		return err
	}
	return r.npm(npmName(t), []entry{{"package/package.json", 0o644, about, 0}, {"package/bin/" + programName(t), 0o755, program, 0}})
}

// npmLibrary writes the package that tests require. It names those with programs.
func (r *release) npmLibrary() error {
	programs := map[string]string{}
	for platform := range wheelTags {
		system, arch, _ := strings.Cut(platform, "/")
		programs[npmName(target{os: system, arch: arch})] = r.version
	}
	about, err := json.MarshalIndent(map[string]any{
		"name": "podyard-double", "version": r.version, "license": "Apache-2.0", "main": "index.cjs", "types": "index.d.ts", "engines": map[string]string{"node": ">=18"},
		"description":          "A test double of the pod and serverless API, with a clock that tests move",
		"optionalDependencies": programs,
	}, "", "  ")
	if err != nil {
		return err
	}
	entries, err := modules("node", "package/")
	if err != nil {
		return err
	}
	return r.npm("podyard-double", append([]entry{{"package/package.json", 0o644, about, 0}}, entries...))
}

func (r *release) npm(name string, entries []entry) error {
	b, err := tarGzip(r.at, entries)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name+"-"+r.version+".tgz"), b, 0o644)
}

// completion is the script of a shell. It is the same for every system.
func completion(shell string) ([]byte, error) {
	var b bytes.Buffer
	p := &command.Program{Name: "podyard"}
	err := p.Run(context.Background(), []string{"completion", shell}, command.IO{Env: os.Getenv, Stdout: &b, Stderr: &b})
	return b.Bytes(), err
}
