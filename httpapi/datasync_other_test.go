//go:build !linux

package httpapi_test

import "os"

func datasync(f *os.File) error { return f.Sync() }
