package disk

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

// others returns the paths below dir that others than their owner may use.
func others(t *testing.T, dir string) (paths []string) {
	t.Helper()
	n := 0
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if n++; err == nil && info.Mode().Perm()&0o077 != 0 {
			paths = append(paths, info.Mode().String()+" "+strings.TrimPrefix(path, dir))
		}
		return err
	}))
	if n < 5 {
		t.Errorf("%s has %d files", dir, n)
	}
	return paths
}

func TestFilesOfAStoreAndOfABackupAreForTheirOwnerWhateverTheUmask(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	store, backup, restored := filepath.Join(dir, "store"), filepath.Join(dir, "backups", "one"), filepath.Join(dir, "restored")
	opts := &Options{Ballast: 1 << 20}
	s := openForTest(t, store, opts)
	big := newJob("big")
	big.Input = make([]byte, bigPayload+1)
	must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{big}))
	s = reopen(t, s) // writes tables
	must(t, s.Backup(t.Context(), backup))
	must(t, Restore(t.Context(), backup, restored, opts))
	must(t, s.Close())
	if paths := others(t, dir); len(paths) > 0 {
		t.Errorf("others may use %q", paths)
	}

	// An earlier version has left that to the umask.
	must(t, filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Dir(path) == store {
			err = os.Chmod(path, 0o666)
		}
		return err
	}))
	s = openForTest(t, store, opts)
	if paths := others(t, store); len(paths) > 0 {
		t.Errorf("after an opening others may use %q", paths)
	}
	must(t, s.Close())
}

func TestADirectoryThatDoesNotKeepWhatIsSyncedIsNamed(t *testing.T) {
	open := func(dir string) string {
		var text bytes.Buffer
		s, err := Open(t.Context(), dir, &Options{Ballast: -1, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		must(t, err)
		must(t, s.Close())
		return text.String()
	}
	mount := func(kind, data string) string {
		dir := filepath.Join(t.TempDir(), "a place")
		must(t, os.Mkdir(dir, 0o700))
		if err := syscall.Mount(kind, dir, kind, 0, data); err != nil {
			t.Skipf("%s cannot be mounted here: %v", kind, err)
		}
		t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
		return dir
	}
	memory := mount("tmpfs", "size=64m")
	if got := open(filepath.Join(memory, "store")); !strings.Contains(got, "tmpfs is memory") {
		t.Errorf("opening a store in a tmpfs logs %q", got)
	}
	for _, d := range []string{"lower", "upper", "work", "upper2", "work2"} {
		must(t, os.Mkdir(filepath.Join(memory, d), 0o700))
	}
	t.Chdir(memory)
	if got := open(filepath.Join(mount("overlay", "lowerdir=lower,upperdir=upper,workdir=work,volatile"), "store")); !strings.Contains(got, "volatile") {
		t.Errorf("opening a store in a volatile overlay logs %q", got)
	}
	if got := open(filepath.Join(mount("overlay", "lowerdir=lower,upperdir=upper2,workdir=work2"), "store")); got != "" {
		t.Errorf("opening a store in an overlay that syncs logs %q", got)
	}
}

// The file system below makes a new file where one is, so that a hard link of it stays as it is.
func TestACreatedFileIsANewOne(t *testing.T) {
	fs, dir := ownerOnly{vfs.Default}, t.TempDir()
	name, link := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	writeFile(t, fs, name, []byte("old"))
	must(t, fs.Link(name, link))
	writeFile(t, fs, name, []byte("new"))
	if a, b := string(readFile(t, fs, name)), string(readFile(t, fs, link)); a != "new" || b != "old" {
		t.Errorf("the file has %q and its link %q, want new and old", a, b)
	}
}
