package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/podyard/podyard/backend/disk"
)

// Check verifies the store in Options.Data, which no server may be using, and writes to w
// what it found: a line of totals, then one for each file that a repair would restore, and
// one for each thing that is lost. It changes nothing, and needs no store that opens. It
// returns an error when something is lost.
func Check(ctx context.Context, c *Config, o *Options, w io.Writer) error {
	return maintain(c, o, secretKey, func(dir string, opts *disk.Options) error {
		r, err := disk.Check(ctx, dir, opts)
		if err != nil {
			return err
		}
		return cmp.Or(printReport(w, &r), r.Err())
	})
}

// Repair drops what cannot be read of the store in Options.Data, which no server may be
// using, and leaves the rest. It writes to w what Check writes: the lines of what is lost
// name what was dropped. A second Repair finds nothing.
//
// With another secret key than the store's, what is sealed is dropped, and the key is the
// store's from then on. A file secret-key that is missing or no key is replaced by a new one,
// and kept as secret-key.damaged; any other is left as it is.
func Repair(ctx context.Context, c *Config, o *Options, w io.Writer) error {
	return maintain(c, o, repairSecret, func(dir string, opts *disk.Options) error {
		r, err := disk.Repair(ctx, dir, opts)
		if err != nil {
			return err
		}
		return printReport(w, &r)
	})
}

func printReport(w io.Writer, r *disk.Report) error {
	_, err := fmt.Fprintf(w, "%d records, %d bytes, %d faults\n", r.Records, r.Bytes, len(r.Faults))
	for _, f := range r.Faults {
		_, e := fmt.Fprintln(w, f)
		err = errors.Join(err, e)
	}
	return err
}

// Backup copies the store in Options.Data to a new directory. A server that uses the store
// goes on, and makes the copy itself: it is asked through its socket. A server whose
// Options.Data is the new directory starts from the copy, if it has the same secret key.
func Backup(ctx context.Context, c *Config, o *Options, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := checkBackupDir(o, dir); err != nil {
		return err
	}
	if asked, err := askForBackup(ctx, o, dir); asked {
		return err
	}
	return maintain(c, o, secretKey, func(store string, opts *disk.Options) (err error) {
		d, err := disk.Open(ctx, store, opts)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		return d.Backup(ctx, filepath.Join(dir, storeName))
	})
}

// checkBackupDir refuses a directory that is there, because others may be able to read it, and
// one inside the data directory.
func checkBackupDir(o *Options, dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("back up to %s: it exists", dir)
	}
	data, err := filepath.Abs(o.Data)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(data, dir); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("back up to %s: it is inside the data directory", dir)
	}
	return nil
}

// Restore makes the store in Options.Data, which must have none, from a directory that Backup
// has made. It verifies the copy before it has the name of a store, and leaves the backup as
// it is. The secret key is the configuration's, or the file in Options.Data, or else the one
// beside the backup, which is then copied.
func Restore(ctx context.Context, c *Config, o *Options, backup string) error {
	if hasStore(o) {
		return o.wrong("Data", errors.New("there is a store already: restore to another directory"))
	}
	if _, err := os.Stat(filepath.Join(backup, storeName)); err != nil {
		return fmt.Errorf("there is no backup in %s: %w", backup, err)
	}
	if err := os.MkdirAll(o.Data, 0o700); err != nil {
		return o.wrong("Data", err)
	}
	key, err := restoreSecret(c, o, backup)
	if err != nil {
		return err
	}
	k := keyring{key: key}
	if err := k.addOthers(c, o); err != nil {
		return err
	}
	return disk.Restore(ctx, filepath.Join(backup, storeName), filepath.Join(o.Data, storeName), k.options(o))
}

// restoreSecret finds the key of a backup, and copies the files with secrets that are beside
// the backup and not yet in the data directory.
func restoreSecret(c *Config, o *Options, backup string) ([]byte, error) {
	for _, name := range []string{secretName, apiKeyName} {
		to := filepath.Join(o.Data, name)
		b, err := os.ReadFile(filepath.Join(backup, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, serr := os.Stat(to); err == nil && errors.Is(serr, fs.ErrNotExist) {
			err = writeSecret(to, string(b))
		}
		if err != nil {
			return nil, o.wrong("Data", fmt.Errorf("copy %s: %w", name, err))
		}
	}
	key, err := readSecretKey(c, o)
	if err == nil && key == nil {
		err = o.wrong("Data", fmt.Errorf("there is no key for the backup: put the file %s into the directory", secretName))
	}
	return key, err
}

// repairSecret is the secret key, which is made anew where there is none.
func repairSecret(c *Config, o *Options) ([]byte, error) {
	key, err := readSecretKey(c, o)
	if key != nil {
		return key, err
	}
	if err != nil {
		file := filepath.Join(o.Data, secretName)
		if rerr := os.Rename(file, file+".damaged"); rerr != nil {
			return nil, errors.Join(err, rerr)
		}
	}
	return newSecretKey(o)
}

// maintain calls do with the directory of a store that is there, and its options.
func maintain(c *Config, o *Options, secret func(*Config, *Options) ([]byte, error), do func(dir string, opts *disk.Options) error) error {
	if !hasStore(o) {
		_, err := os.Stat(filepath.Join(o.Data, storeName))
		return o.wrong("Data", fmt.Errorf("there is no store: %w", err))
	}
	key, err := secret(c, o)
	if err != nil {
		return err
	}
	k := keyring{key: key}
	err = k.addOthers(c, o)
	if err != nil {
		return err
	}
	opts := k.options(o)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return o.storeError(do(filepath.Join(o.Data, storeName), opts))
}
