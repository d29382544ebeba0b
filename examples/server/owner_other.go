//go:build !unix

package main

import "io/fs"

// owned is true: the temporary directory is the user's own.
func owned(fs.FileInfo) bool { return true }
