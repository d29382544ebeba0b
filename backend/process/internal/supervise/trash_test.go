package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestATrashRemovesWhatAnEarlierServerLeft(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "left", "a", "b")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 2*trashBatch + 1 {
		if err := os.WriteFile(filepath.Join(left, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(left, "link")); err != nil {
		t.Logf("without a link: %v", err)
	}
	if err := os.Chmod(left, 0o000); err != nil {
		t.Fatal(err)
	}
	tr := NewTrash(dir)
	if err := tr.emptyOnce(make(chan struct{})); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the trash has %v, %v, want nothing", entries, err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a file that a link leads to is gone: %v", err)
	}
}

func TestATrashStopsInTheMiddleAndGoesOnLater(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "x")
	for range 50 {
		deep = filepath.Join(deep, "d")
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	tr := NewTrash(dir)
	stop := make(chan struct{})
	close(stop)
	if err := tr.emptyOnce(stop); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		t.Errorf("the trash has %v, %v, want what it had no time for", entries, err)
	}
	if err := tr.emptyOnce(make(chan struct{})); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the trash has %v, %v, want nothing", entries, err)
	}
}
