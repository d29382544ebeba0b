package podhost

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestAFileThatAScannerHasOpenIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ, syscall.FILE_SHARE_READ, nil, syscall.OPEN_EXISTING, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	closed := time.AfterFunc(200*time.Millisecond, func() { _ = syscall.CloseHandle(h) })
	defer closed.Stop()
	if err := ReplaceFile(path, []byte("new"), true); err != nil {
		t.Fatalf("ReplaceFile = %v, want nil once the other has closed it", err)
	}
	if got, err := os.ReadFile(path); string(got) != "new" {
		t.Errorf("the file has %q, %v, want new", got, err)
	}
}
