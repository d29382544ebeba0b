package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A server that is another user could not read what root leaves in its directory.
func TestWhatRootMakesForAServerBelongsToTheOwnerOfTheDirectory(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		missing(t, "this test changes owners: it has to be root")
	}
	const user, group = 65534, 65533
	above := t.TempDir()
	data := filepath.Join(above, "data")
	in := startCommand(t, command(t, nil, "-addr", "127.0.0.1:0", "-data", data, "-runtime", "sim"))
	in.stop()
	give := func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, user, group)
	}
	if err := filepath.WalkDir(data, give); err != nil {
		t.Fatal(err)
	}
	copies := filepath.Join(above, "copies")
	if err := os.Mkdir(copies, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(copies, user, group); err != nil {
		t.Fatal(err)
	}
	others := filepath.Join(data, "process", "of-root")
	if err := os.MkdirAll(others, 0o700); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) {
		t.Helper()
		if out, err := command(t, nil, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	check := func(after, dir string) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == filepath.Join(data, "process") {
				return err
			}
			fi, err := d.Info()
			if err != nil {
				return err
			}
			st := fi.Sys().(*syscall.Stat_t)
			if want := path != others; want != (st.Uid == user && st.Gid == group) {
				t.Errorf("after %s %s belongs to %d:%d", after, path, st.Uid, st.Gid)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	for _, flag := range []string{"-check", "-repair", "-rotate-secret-key"} {
		do("-data", data, flag)
		check(flag, data)
	}
	copied := filepath.Join(copies, "monday")
	do("-data", data, "-backup", copied)
	check("-backup", data)
	check("-backup", copied)
	for _, name := range []string{"secret-key", "api-key"} {
		b, err := os.ReadFile(filepath.Join(data, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(copied, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	restored := filepath.Join(copies, "new", "restored")
	do("-data", restored, "-restore", copied)
	check("-restore", filepath.Join(copies, "new"))

	ours := filepath.Join(above, "ours") // root's own stays root's, the linked files excepted
	do("-data", data, "-backup", ours)
	check("-backup to a directory of root", data)
	fi, err := os.Stat(ours)
	if err != nil || fi.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("a copy in a directory of root: %v, want it to be root's", err)
	}
}
