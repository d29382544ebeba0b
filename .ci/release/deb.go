package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

//go:embed debian
var debian embed.FS

// deb builds a Debian package with dpkg-deb.
func (r *release) deb(ctx context.Context, t target) error {
	if t.os != "linux" {
		return nil
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		fmt.Println("no Debian package:", err)
		return nil
	}
	root, err := os.MkdirTemp("", "podyard-deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if r.manual == nil {
		if r.manual, err = r.writeManual(ctx); err != nil {
			return err
		}
	}
	if err := r.layOut(root, t); err != nil {
		return err
	}
	if err := r.age(root); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--root-owner-group", "-Zxz", "-z6", "--build", root, filepath.Join(r.out, "podyard_"+r.version+"_"+t.arch+".deb"))
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.at.Unix(), 10))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg-deb: %w: %s", err, out)
	}
	return nil
}

// debFiles says where the files of the directory debian go, and with which mode.
var debFiles = []struct {
	from, to string
	mode     os.FileMode
}{
	{"control", "DEBIAN/control", 0o644},
	{"conffiles", "DEBIAN/conffiles", 0o644},
	{"postinst", "DEBIAN/postinst", 0o755},
	{"prerm", "DEBIAN/prerm", 0o755},
	{"postrm", "DEBIAN/postrm", 0o755},
	{"podyard.service", "usr/lib/systemd/system/podyard.service", 0o644},
	{"podyard.json", "etc/podyard/podyard.json", 0o640},
	{"podyard.env", "etc/podyard/podyard.env", 0o640},
	{"copyright", "usr/share/doc/podyard/copyright", 0o644},
}

// layOut writes the files of the package below a directory.
func (r *release) layOut(root string, t target) error {
	program, err := os.ReadFile(t.file)
	if err != nil {
		return err
	}
	size := strconv.Itoa(len(program)>>10 + 1024) // with the pages
	for _, f := range debFiles {
		b, err := fs.ReadFile(debian, "debian/"+f.from)
		if err != nil {
			return err
		}
		text := strings.NewReplacer("@VERSION@", r.version, "@ARCH@", t.arch, "@SIZE@", size).Replace(string(b))
		if err := writeFile(filepath.Join(root, f.to), []byte(text), f.mode); err != nil {
			return err
		}
	}
	for shell, to := range map[string]string{"bash": "usr/share/bash-completion/completions/podyard", "zsh": "usr/share/zsh/vendor-completions/_podyard", "fish": "usr/share/fish/vendor_completions.d/podyard.fish"} {
		script, err := completion(shell)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(root, to), script, 0o644); err != nil {
			return err
		}
	}
	if err := errors.Join(r.layOutDocs(root), r.layOutManual(root)); err != nil {
		return err
	}
	return writeFile(filepath.Join(root, "usr/bin/podyard"), program, 0o755)
}

// debCopies says which files of the source go below which directory.
var debCopies = map[string]string{
	"README.md":                                  "usr/share/doc/podyard",
	"CHANGELOG.md":                               "usr/share/doc/podyard",
	"docs/*.md":                                  "usr/share/doc/podyard/docs",
	"backend/prometheus/mixin/alerts.yaml":       "usr/share/podyard/prometheus",
	"backend/prometheus/mixin/rules.yaml":        "usr/share/podyard/prometheus",
	"backend/prometheus/mixin/dashboards/*.json": "usr/share/podyard/prometheus/dashboards",
}

// layOutDocs writes the pages that the configuration and the help refer to, and what Prometheus and
// Grafana load.
func (r *release) layOutDocs(root string) error {
	for pattern, to := range debCopies {
		files, err := filepath.Glob(pattern)
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("there is no %s", pattern)
		}
		if err != nil {
			return err
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err == nil {
				err = writeFile(filepath.Join(root, to, filepath.Base(file)), b, 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// layOutManual writes the manual page.
func (r *release) layOutManual(root string) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression) // without a time
	if err != nil {
		return err
	}
	if _, err := z.Write(r.manual); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return writeFile(filepath.Join(root, "usr/share/man/man1/podyard.1.gz"), b.Bytes(), 0o644)
}

// writeManual has the program write its manual page: the program of this machine, whatever the
// target.
func (r *release) writeManual(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "podyard-manual-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	here := target{os: runtime.GOOS, arch: runtime.GOARCH, file: filepath.Join(dir, "podyard")}
	if err := r.compile(ctx, here); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, here.file, "__manual").Output()
	if err == nil && len(out) == 0 {
		err = errors.New("the program wrote none")
	}
	if err != nil {
		return nil, fmt.Errorf("the manual page: %w", err)
	}
	return out, nil
}

func writeFile(path string, b []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, b, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode) // whatever the umask
}

// age gives every file the time of the commit, and directories their mode.
func (r *release) age(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if err := os.Chmod(path, 0o755); err != nil {
				return err
			}
		}
		return os.Chtimes(path, r.at, r.at)
	})
}
