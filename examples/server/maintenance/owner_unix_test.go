//go:build unix

package maintenance

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asRoot skips a test unless it is root's.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("PODYARD_CI") == "1" {
		t.Fatal("this test changes owners: it has to be root")
	}
	t.Skip("this test changes owners: it has to be root")
}

// done ends the test if something failed.
func done(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

const other = 65534

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	fi, err := os.Lstat(path)
	done(t, err)
	return int(fi.Sys().(*syscall.Stat_t).Uid)
}

// The owner of a directory can put a link to /etc in its place while root works in it.
func TestNothingOutsideTheDirectoryGetsItsOwner(t *testing.T) {
	asRoot(t)
	for name, dir := range map[string]string{"that was there": "data", "that was not there": "new", "whose parent was not there": "above/new"} {
		t.Run("a directory "+name, func(t *testing.T) {
			above, etc := t.TempDir(), t.TempDir()
			data, shadow := filepath.Join(above, "data"), filepath.Join(etc, "shadow")
			done(t, os.Mkdir(data, 0o700), os.Chown(data, other, other), os.Chown(above, other, other),
				os.WriteFile(shadow, nil, 0o600), os.Mkdir(filepath.Join(etc, "new"), 0o700))
			o, err := owned(filepath.Join(above, dir))
			done(t, err)
			if o == nil {
				t.Fatal("the directory is taken for root's")
			}
			first, _, _ := strings.Cut(dir, "/")
			at := filepath.Join(above, first)
			done(t, os.RemoveAll(at), os.Symlink(etc, at))
			kept := o.keep(nil)
			o.close()
			for _, path := range []string{shadow, filepath.Join(etc, "new"), etc} {
				if got := ownerOf(t, path); got != 0 {
					t.Errorf("%s, where a link of the owner leads to, belongs to %d then (%v), want root", filepath.Base(path), got, kept)
				}
			}
		})
	}
}

func TestWhatIsMadeMeanwhileBelongsToTheOwner(t *testing.T) {
	asRoot(t)
	above := t.TempDir()
	done(t, os.Chown(above, other, other), os.WriteFile(filepath.Join(above, "of-root"), nil, 0o600))
	for _, dir := range []string{above, filepath.Join(above, "a", "b")} {
		o, err := owned(dir)
		done(t, err)
		made := filepath.Join(dir, "store", "file")
		done(t, os.MkdirAll(filepath.Dir(made), 0o700), os.WriteFile(made, nil, 0o600), o.keep(nil))
		o.close()
		for at := made; at != above; at = filepath.Dir(at) {
			if got := ownerOf(t, at); got != other {
				t.Errorf("%s belongs to %d, want the owner of the directory", at, got)
			}
		}
	}
	if got := ownerOf(t, filepath.Join(above, "of-root")); got != 0 {
		t.Errorf("what was root's before belongs to %d", got)
	}
}

// A backup is made while a server uses the store, and so changes its files.
func TestFilesThatGoMeanwhileAreNoFault(t *testing.T) {
	dir := t.TempDir()
	later := filepath.Join(dir, "store", "later")
	done(t, os.MkdirAll(later, 0o700), os.WriteFile(filepath.Join(dir, "store", "earlier"), nil, 0o600))
	root, err := os.OpenRoot(dir)
	done(t, err)
	seen := 0
	err = walk(root, func(name string, _ *syscall.Stat_t) error {
		seen++
		if name == "store/earlier" {
			done(t, os.RemoveAll(later))
		}
		return root.Lchown(name, os.Geteuid(), os.Getegid())
	})
	if done(t, root.Close()); err != nil || seen != 3 {
		t.Errorf("%d files, %v: want all three that were there when the directory was read", seen, err)
	}
}
