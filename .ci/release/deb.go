package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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
	size := strconv.Itoa(len(program)>>10 + 64)
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
	return writeFile(filepath.Join(root, "usr/bin/podyard"), program, 0o755)
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
