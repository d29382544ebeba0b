// Package backend opens the stores of a program by their address: memory, a directory, or a
// PostgreSQL database. It imports all three. A program that needs one only, and no more in its
// binary, calls memory.New, disk.Open or postgres.Open instead: each returns the same shape.
package backend

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/backend/stores"
	"github.com/podyard/podyard/problem"
)

// A Store is every store as one value: see stores.Store.
type Store = stores.Store

// Options configures the stores, wherever they are. The zero value and nil work.
type Options struct {
	// Key encrypts secrets: see disk.Options.Key and postgres.Options.Key, which a server needs. Memory
	// keeps them as they are.
	Key []byte
	// OldKeys are earlier values of Key.
	OldKeys [][]byte
	// Logger logs what no caller can see. Default: nothing is logged.
	Logger *slog.Logger
	// Disk and Postgres are what only that backend has. Their Key, OldKeys and Logger are those
	// above where these are not set.
	Disk     disk.Options
	Postgres postgres.Options
}

// ErrAddress is the error of an address that is neither a directory nor the URL of a backend.
var ErrAddress = problem.New(problem.Invalid, "stores are in memory (\"\"), in a directory, or at a postgres:// URL")

// IsDatabase reports whether where of Open is the URL of a database, and not a directory.
func IsDatabase(where string) bool {
	return strings.HasPrefix(where, "postgres://") || strings.HasPrefix(where, "postgresql://")
}

// Open opens the stores at an address: "" is memory, where everything ends with the process;
// postgres://USER@HOST/NAME is a database, for any number of servers; everything else is a directory,
// for one process, which is made if it does not exist. opts may be nil. ctx applies to the opening only.
// The caller must close the Store, or give it to server.New, whose server closes it.
//
// The Store is a *memory.Store, *disk.Store or *postgres.Store, for what only one of them can do.
// No error contains the password of a URL.
func Open(ctx context.Context, where string, opts *Options) (Store, error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	scheme, _, isURL := strings.Cut(where, "://")
	switch {
	case where == "":
		return memory.New(), nil
	case IsDatabase(where):
		o.Postgres.Logger = cmp.Or(o.Postgres.Logger, o.Logger)
		if o.Postgres.Key == nil {
			o.Postgres.Key, o.Postgres.OldKeys = o.Key, o.OldKeys
		}
		return opened(postgres.Open(ctx, where, &o.Postgres))
	case isURL:
		return nil, fmt.Errorf("backend: %w, and not at %s://", ErrAddress, scheme)
	}
	o.Disk.Logger = cmp.Or(o.Disk.Logger, o.Logger)
	if o.Disk.Key == nil {
		o.Disk.Key, o.Disk.OldKeys = o.Key, o.OldKeys
	}
	return opened(disk.Open(ctx, where, &o.Disk))
}

// opened is a Store, or nil with the error, and not a nil pointer in an interface.
func opened[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
