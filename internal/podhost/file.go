package podhost

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// ReplaceFile replaces the content of a file: a crash leaves the old content or the new.
// With sync it returns after the content and the name are on the disk.
func ReplaceFile(path string, data []byte, sync bool) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := Rename(path+".new", path); err != nil || !sync || runtime.GOOS == "windows" {
		return err // Windows cannot sync directories
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
