//go:build unix

package config

import (
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// scratchName has the user in it: a temporary directory is everybody's.
func scratchName() string { return "podyard-" + strconv.Itoa(os.Getuid()) }

// private reports whether a file is of this user, and nobody else may use it.
func private(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid() && fi.Mode().Perm()&0o077 == 0
}
