//go:build unix

package config

import (
	"io/fs"
	"os"
	"syscall"
)

// owned reports whether a file is of this user: a temporary directory is everybody's.
func owned(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}
