package podhost

import (
	"errors"
	"os"
)

// ReplaceFile writes a file as a whole: a crash leaves the old one or the new. With sync it
// returns when the data is on the disk.
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
	return os.Rename(path+".new", path)
}
