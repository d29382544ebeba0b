package podhost

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplaceFileLeavesOneFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record")
	for _, text := range []string{"a long text", "short"} {
		if err := ReplaceFile(path, []byte(text), true); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file holds %q, %v; want %q", got, err, text)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%d files, %v; want one", len(entries), err)
	}
	if err := ReplaceFile(filepath.Join(dir, "absent", "record"), nil, false); err == nil {
		t.Error("ReplaceFile in a directory that is not there = nil, want an error")
	}
}
