//go:build !linux

package postgres

import (
	"context"
	"syscall"
)

// limitSilence does nothing: keepalives and the limits of calls are enough, only later.
func limitSilence(context.Context, string, string, syscall.RawConn) error { return nil }
