package command

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestAPlaceInAPodIsWrittenWithItsIDAndAnAbsolutePath(t *testing.T) {
	for s, want := range map[string]place{
		"19dl1cc3tpt2ai:/workspace/": {"19dl1cc3tpt2ai", "/workspace/"},
		"19dl1cc3tpt2ai:work":        {"", "19dl1cc3tpt2ai:work"},
		`C:\models`:                  {"", `C:\models`},
		"C:/models":                  {"", "C:/models"},
		"./a:/b":                     {"", "./a:/b"},
		"/a:/b":                      {"", "/a:/b"},
		"plain":                      {"", "plain"},
	} {
		if got := placeOf(s); got != want {
			t.Errorf("%s is %+v, want %+v", s, got, want)
		}
	}
}

// archived returns an archive with entries, each file with its name as its content.
func archived(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == 0 {
			h.Typeflag, h.Mode, h.Size = tar.TypeReg, 0o644, int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(h.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestNothingThatAPodSendsIsWrittenOutsideOfTheTarget(t *testing.T) {
	for name, entries := range map[string][]tar.Header{
		"above":          {{Name: "d/../../../outside"}},
		"absolute":       {{Name: "/outside"}},
		"through a link": {{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "../.."}, {Name: "d/l/outside"}},
	} {
		if runtime.GOOS == "windows" && name == "through a link" {
			continue // links need a right there
		}
		dir := filepath.Join(t.TempDir(), "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		_ = unpack(archived(t, entries...), root, "to") // it may be refused, or land below the target
		if err := root.Close(); err != nil {
			t.Fatal(err)
		}
		for _, outside := range []string{"outside", "../outside", "../../outside"} {
			if _, err := os.Lstat(filepath.Join(dir, outside)); err == nil {
				t.Errorf("%s: %s was written", name, outside)
			}
		}
	}
}

func TestALinkInAnArchiveLeadsNowhereBesidesTheCopiedDirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a right there")
	}
	to := tar.Header{Name: "x/", Typeflag: tar.TypeDir, Mode: 0o755}
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
	}
	for name, archives := range map[string][][]tar.Header{
		"as the root":             {{link("out", ".ssh"), {Name: "out/authorized_keys"}}},
		"in the directory":        {{to, link("x/out", "../.ssh"), {Name: "x/out/authorized_keys"}}},
		"instead of it":           {{to, link("x", ".ssh"), {Name: "x/authorized_keys"}}},
		"of an earlier copy":      {{link("x", ".ssh")}, {to, {Name: "x/authorized_keys"}}},
		"of an earlier file":      {{link("x", ".ssh/authorized_keys")}, {{Name: "x"}}},
		"below another directory": {{link("d/out", "../.ssh"), {Name: "d/out/authorized_keys"}}},
	} {
		home := t.TempDir()
		if err := os.Mkdir(filepath.Join(home, ".ssh"), 0o700); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(home)
		if err != nil {
			t.Fatal(err)
		}
		for i, entries := range archives {
			if err := unpack(archived(t, entries...), root, "x"); (err == nil) != (i < len(archives)-1) {
				t.Errorf("%s: archive %d: %v", name, i, err)
			}
		}
		if err := root.Close(); err != nil {
			t.Fatal(err)
		}
		if list, err := os.ReadDir(filepath.Join(home, ".ssh")); err != nil || len(list) != 0 {
			t.Errorf("%s: beside the target is %v, %v", name, list, err)
		}
	}
}

func TestAnArchiveOfAFileIsOneFile(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := unpack(archived(t, tar.Header{Name: "a"}, tar.Header{Name: "b"}), root, "x"); err == nil {
		t.Error("a second file was taken")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "x")); err != nil || string(b) != "a" {
		t.Errorf("%q, %v; want the first file", b, err)
	}
}

func TestAnArchiveOfATreeIsTheTreeUnderItsNewName(t *testing.T) {
	from := filepath.Join(t.TempDir(), "from")
	if err := os.MkdirAll(filepath.Join(from, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "d/b"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := pack(&b, from, "middle"); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	root, err := os.OpenRoot(to)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := unpack(&b, root, "new"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "d/b"} {
		if got, err := os.ReadFile(filepath.Join(to, "new", name)); err != nil || string(got) != name {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}
