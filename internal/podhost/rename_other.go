//go:build !windows

package podhost

import "os"

// Rename is os.Rename. On Windows it waits a moment for others to close what they have open.
func Rename(old, path string) error { return os.Rename(old, path) }
