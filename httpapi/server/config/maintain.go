package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/podyard/podyard/backend/disk"
)

// Check verifies the store in Options.Data, which no server may be using, and writes what it
// found to w: a line of totals, then one for each fault. It returns an error when something
// is lost.
func Check(ctx context.Context, c *Config, o *Options, w io.Writer) error {
	return maintain(ctx, c, o, func(d *disk.Store) error {
		r, err := d.Check(ctx)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%d records, %d bytes, %d faults\n", r.Records, r.Bytes, len(r.Faults))
		for _, f := range r.Faults {
			_, e := fmt.Fprintf(w, "%s: %s\n", f.Key, f.What)
			err = errors.Join(err, e)
		}
		return errors.Join(r.Err(), err)
	})
}

// Backup copies the store in Options.Data, which no server may be using, to a new directory.
// A server whose Options.Data is that directory starts from the copy, if it has the same
// secret key.
func Backup(ctx context.Context, c *Config, o *Options, dir string) error {
	return maintain(ctx, c, o, func(d *disk.Store) error {
		return d.Backup(ctx, filepath.Join(dir, "store"))
	})
}

// maintain opens a store that is there and closes it again.
func maintain(ctx context.Context, c *Config, o *Options, do func(*disk.Store) error) (err error) {
	if _, err := os.Stat(filepath.Join(o.Data, "store")); err != nil {
		return o.wrong("Data", fmt.Errorf("there is no store: %w", err))
	}
	key, err := secretKey(c, o)
	if err != nil {
		return err
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d, err := openDisk(ctx, o, key, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return do(d)
}
