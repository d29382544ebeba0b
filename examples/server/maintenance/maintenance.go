// Package maintenance looks after the store of a server that is not running, and copies that
// of one that may run.
package maintenance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/podyard/podyard/httpapi/command"
	"github.com/podyard/podyard/httpapi/server/config"
)

// Options say what is wanted. The steps that are wanted are done in the order of the fields.
type Options struct {
	Restore string // make the store from the copy in this directory
	Repair  bool
	Check   bool
	Rotate  bool   // the key that secrets are sealed with
	Backup  string // copy the store to this directory

	Data   string
	Config *config.Config
	Logger *slog.Logger
}

// Wanted reports whether there is a step to do.
func (o *Options) Wanted() bool {
	return o.Check || o.Repair || o.Rotate || o.Backup != "" || o.Restore != ""
}

// A step is one thing to do with the store.
type step struct {
	flag   string
	wanted bool
	do     func() error
	done   string // what is said then
	grows  string // a directory that grows meanwhile
}

// Run does what is wanted, and writes to stdout what was found and done. On a terminal it
// shows on stderr how far it is.
func Run(ctx context.Context, o *Options, stdout, stderr io.Writer) error {
	c, s := o.Config, &config.Options{Data: o.Data, Logger: o.Logger}
	for _, x := range []step{
		{"-restore", o.Restore != "", func() error { return config.Restore(ctx, c, s, o.Restore) }, "restored from " + o.Restore, o.Data},
		{"-repair", o.Repair, func() error { return config.Repair(ctx, c, s, stdout) }, "", ""},
		{"-check", o.Check, func() error { return config.Check(ctx, c, s, stdout) }, "", ""},
		{"-rotate-secret-key", o.Rotate, func() error { return config.RotateSecretKey(ctx, c, s) }, "the secrets of the store have another key, in secret-key", ""},
		{"-backup", o.Backup != "", func() error { return config.Backup(ctx, c, s, o.Backup) }, "copied to " + o.Backup, o.Backup},
	} {
		if !x.wanted {
			continue
		}
		if err := o.owning(func() error {
			defer command.Progress(stderr, x.progress)()
			return x.do()
		}); err != nil {
			return fmt.Errorf("%s: %w", x.flag, err)
		}
		if x.done != "" {
			_, _ = fmt.Fprintln(stdout, x.done) // to somebody who may have gone
		}
	}
	return nil
}

// owning does a step. What root makes meanwhile belongs to the owner of the directory that it is in,
// also where the step fails.
func (o *Options) owning(do func() error) error {
	data, err := owned(o.Data)
	if err != nil {
		return err
	}
	defer data.close()
	backup, err := owned(o.Backup)
	if err != nil {
		return err
	}
	defer backup.close()
	err = do()
	err = errors.Join(err, data.keep(nil))
	if backup == nil {
		return err
	}
	ofStore, e := ofRoot(o.Data) // the copy has links to files of the store
	return errors.Join(err, e, backup.keep(ofStore))
}

// progress says how far a step is.
func (s *step) progress() string {
	if s.grows == "" {
		return s.flag
	}
	return fmt.Sprintf("%s: %d MB", s.flag, size(s.grows)>>20)
}

// size is how many bytes the files of a directory have. Files may come and go meanwhile.
func size(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		if fi, err := d.Info(); err == nil && fi.Mode().IsRegular() {
			n += fi.Size()
		}
		return nil
	})
	return n
}
