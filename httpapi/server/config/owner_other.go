//go:build !unix

package config

import "io/fs"

// owned is true: the temporary directory is the user's own.
func owned(fs.FileInfo) bool { return true }
