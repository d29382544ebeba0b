// Command release builds what a release consists of: the program for each system, an image,
// a Debian package, the test double for pip and npm, lists of what is inside, and checksums.
// The same source gives the same bytes: the programs are built with exactly the Go release that the
// line toolchain of go.mod names, which the go command gets where it is not there.
//
//	go run ./.ci/release -out dist
//	go run ./.ci/release -out dist -platforms linux/amd64
package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/examples/server/version"
)

// A target is one program for a system.
type target struct {
	os, arch string
	file     string // the program
}

func (t target) String() string { return t.os + "/" + t.arch }

// A release is what is built.
type release struct {
	out     string
	version string
	commit  string
	at      time.Time // of the commit: the time of every file inside an archive
	goes    string    // the Go release of the programs, such as go1.26.10
	certs   string
	manual  []byte // the page of podyard(1), once it is written
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("out", "dist", "`directory` for what is built, which is emptied first")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "`list` of systems")
	certs := flag.String("certs", "/etc/ssl/certs/ca-certificates.crt", "`file` of the certificates in the image")
	flag.Parse()
	if err := run(ctx, *out, *platforms, *certs); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, out, platforms, certs string) error {
	if err := prepare(out); err != nil {
		return err
	}
	r := &release{out: out, version: version.Number, certs: certs}
	var err error
	if r.commit, r.at, err = commit(ctx); err != nil {
		return err
	}
	if r.goes, err = toolchain("go.mod"); err != nil {
		return err
	}
	for platform := range strings.SplitSeq(platforms, ",") {
		system, arch, _ := strings.Cut(platform, "/")
		t := target{os: system, arch: arch}
		began := time.Now()
		if err := r.build(ctx, &t); err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		fmt.Printf("%v: %v\n", t, time.Since(began).Round(time.Second))
		for _, pack := range []func(context.Context, target) error{r.sbom, r.image, r.deb, r.wheel, r.npmProgram} {
			if err := pack(ctx, t); err != nil {
				return fmt.Errorf("%v: %w", t, err)
			}
		}
	}
	if err := r.npmLibrary(); err != nil {
		return err
	}
	return r.sums()
}

// prepare makes a directory, or empties one that release has made.
func prepare(dir string) error {
	list, err := os.ReadDir(dir)
	if err == nil && len(list) > 0 && !slices.ContainsFunc(list, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), "podyard") || e.Name() == "SHA256SUMS" }) {
		return fmt.Errorf("%s has files that are not of a release", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

// commit is the commit that is checked out, and its time.
func commit(ctx context.Context) (hash string, at time.Time, err error) {
	out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%h %cI", "--abbrev=12").Output()
	if err != nil {
		return "", at, fmt.Errorf("git log: %w", err)
	}
	hash, text, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	at, err = time.Parse(time.RFC3339, text)
	if changed, e := exec.CommandContext(ctx, "git", "status", "--porcelain").Output(); e == nil && len(changed) > 0 {
		hash += ", changed since"
	}
	return hash, at.UTC(), err
}

// name is that of a file for a target: "podyard-0.2.0-linux-amd64.deb".
func (r *release) name(t target, ending string) string {
	return filepath.Join(r.out, fmt.Sprintf("podyard-%s-%s-%s%s", r.version, t.os, t.arch, ending))
}

// build builds the program. It is static, and its build leaves no trace of the machine.
func (r *release) build(ctx context.Context, t *target) error {
	ending := ""
	if t.os == "windows" {
		ending = ".exe"
	}
	t.file = r.name(*t, ending)
	return r.compile(ctx, *t)
}

// compile builds the program into the file of a target.
func (r *release) compile(ctx context.Context, t target) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", t.file,
		"-ldflags", "-s -w -buildid= -X 'github.com/podyard/podyard/examples/server/version.commit="+r.commit+"'", "./examples/server")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOTOOLCHAIN="+r.goes)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build with %s: %w", r.goes, err)
	}
	return builtWith(t.file, r.goes)
}

// toolchain is the Go release that a go.mod names for builds. A patch release mends faults of the
// standard library, which is part of every program: with whatever Go this machine has, a release
// could have faults that go.mod says are mended.
func toolchain(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "toolchain" {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("%s has no line toolchain", file)
}

// builtWith is an error unless a program was built with exactly that Go release.
func builtWith(program, wanted string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	if info.GoVersion != wanted {
		return fmt.Errorf("%s was built with %s, and go.mod names %s", filepath.Base(program), info.GoVersion, wanted)
	}
	return nil
}

// sums writes the checksums of all files.
func (r *release) sums() error {
	list, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range list {
		f, err := os.Open(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		_ = f.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", hex.EncodeToString(h.Sum(nil)), e.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(b.String()), 0o644)
}
