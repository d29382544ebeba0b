//go:build !unix

package config

import "io/fs"

// scratchName is a fixed name: the temporary directory is the user's own.
func scratchName() string { return "podyard" }

// private is true: modes say nothing here.
func private(fs.FileInfo) bool { return true }
