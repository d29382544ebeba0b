package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestARemovedVolumeIsEmptyWhenItIsMountedAgain(t *testing.T) {
	dir := t.TempDir()
	rt := open(t, dir)
	file := filepath.Join(dir, "volumes", "vol", "sub", "file")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("data"), 0o400); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time there is nothing, which is no error
		if err := rt.RemoveVolume(t.Context(), "vol"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "volumes", "vol")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the volume is still there: %v", err)
	}
	for _, id := range []string{"", "..", "../pods", "a/b", "."} {
		if err := rt.RemoveVolume(t.Context(), id); err == nil {
			t.Errorf("RemoveVolume(%q) = nil, want an error: it is no plain name", id)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "pods")); err != nil {
		t.Errorf("the pods are gone with a volume: %v", err)
	}
}
