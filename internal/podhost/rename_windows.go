package podhost

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// inUseTime is how long a file may be in use by others: programs that look for viruses, or that make
// an index, open what is new for a moment.
const inUseTime = 2 * time.Second

const (
	sharingViolation = syscall.Errno(32)
	lockViolation    = syscall.Errno(33)
)

// Rename is os.Rename for files and directories that others may have open for a moment, which
// Windows does not rename then.
func Rename(old, path string) error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := os.Rename(old, path)
		inUse := errors.Is(err, sharingViolation) || errors.Is(err, lockViolation) || errors.Is(err, syscall.ERROR_ACCESS_DENIED)
		if !inUse || time.Since(began) > inUseTime {
			return err
		}
	}
}
