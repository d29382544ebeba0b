package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// Stores are what the services keep things in: on disk, or in memory with -data "".
type stores struct {
	pods       pods.Store
	registries registries.Store
	volumes    volumes.Store
	templates  templates.Store
	sshKeys    sshkeys.Store
	billing    billing.Store
	endpoints  serverless.EndpointStore
	jobs       serverless.JobQueue
	// workerSecret is what workers' keys are made of, so that those of an earlier server
	// go on; nil where they cannot.
	workerSecret []byte
	// run recovers the store when the disk fails; close comes after everything else.
	run   func(context.Context) error
	close func() error
}

func openStores(ctx context.Context, s *settings, log *slog.Logger) (*stores, error) {
	if s.data == "" {
		return &stores{
			pods: memory.NewPods(), registries: memory.NewRegistries(), volumes: memory.NewVolumes(),
			templates: memory.NewTemplates(), sshKeys: memory.NewSSHKeys(), billing: memory.NewBilling(),
			endpoints: memory.NewEndpoints(), jobs: memory.NewJobs(),
			run:   func(ctx context.Context) error { <-ctx.Done(); return nil },
			close: func() error { return nil },
		}, nil
	}
	key, err := secretKey(s)
	if err != nil {
		return nil, err
	}
	d, err := openDisk(ctx, s, key, log)
	if err != nil {
		return nil, err
	}
	st := &stores{
		pods: d.Pods(), registries: d.Registries(), volumes: d.Volumes(), templates: d.Templates(), sshKeys: d.SSHKeys(), billing: d.Billing(), endpoints: d.Endpoints(), jobs: d.Jobs(),
		run: d.Run, close: d.Close,
	}
	same, err := sameAddress(s)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if same {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte("keys of workers"))
		st.workerSecret = mac.Sum(nil)
	}
	return st, nil
}

// sameAddress reports whether workers that an earlier server started find this one, and
// keeps the address for the next. A port that is picked is another one every time.
func sameAddress(s *settings) (bool, error) {
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil || port == "0" || port == "" {
		return false, nil //nolint:nilerr // listening will say what is wrong with the address
	}
	file := filepath.Join(s.data, "address")
	b, err := os.ReadFile(file)
	switch {
	case err == nil && string(b) == s.addr:
		return true, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("-data: read the address: %w", err)
	}
	if err := keep(file, s.addr); err != nil {
		return false, fmt.Errorf("-data: keep the address: %w", err)
	}
	return errors.Is(err, fs.ErrNotExist), nil
}

func openDisk(ctx context.Context, s *settings, key []byte, log *slog.Logger) (*disk.Store, error) {
	d, err := disk.Open(ctx, filepath.Join(s.data, "store"), &disk.Options{Key: key, Logger: log, Gone: isEcho})
	if errors.Is(err, disk.ErrLocked) {
		return nil, fmt.Errorf("-data %q: another server uses this directory", s.data)
	}
	if err != nil {
		return nil, fmt.Errorf("-data %q: %w", s.data, err)
	}
	return d, nil
}

// hasStore reports whether a server has kept something in the data directory.
func hasStore(s *settings) bool {
	if s.data == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(s.data, "store"))
	return err == nil
}

// isEcho: a worker that is a function in the server's process ends with it. Others go on.
func isEcho(id serverless.WorkerID) bool { return id == echoWorker }

// secretKey seals secrets on disk: the configuration's, or one that is made at the first
// start and kept in the data directory.
func secretKey(s *settings) ([]byte, error) {
	if s.SecretKey != "" {
		return base64.StdEncoding.DecodeString(s.SecretKey)
	}
	file := filepath.Join(s.data, "secret-key")
	b, err := os.ReadFile(file)
	if err == nil {
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(b)))
		if err != nil || len(key) != disk.KeySize {
			return nil, fmt.Errorf("-data: %s is not the base64 of %d bytes", file, disk.KeySize)
		}
		return key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("-data: read the secret key: %w", err)
	}
	if hasStore(s) {
		return nil, fmt.Errorf("-data %q: there is a store, and not the key that it was made with: put back the file secret-key, or the secretKey of the configuration", s.data)
	}
	key := make([]byte, disk.KeySize)
	rand.Read(key)
	if err := keep(file, base64.StdEncoding.EncodeToString(key)); err != nil {
		return nil, fmt.Errorf("-data: keep the secret key: %w", err)
	}
	return key, nil
}

// maintain copies or verifies the store, says what came of it, and is done.
func maintain(ctx context.Context, s *settings, log *slog.Logger, stdout io.Writer) (err error) {
	if _, err := os.Stat(filepath.Join(s.data, "store")); err != nil {
		return fmt.Errorf("-data %q: there is no store: %w", s.data, err)
	}
	key, err := secretKey(s)
	if err != nil {
		return err
	}
	d, err := openDisk(ctx, s, key, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if s.check {
		r, err := d.Check(ctx)
		if err != nil {
			return fmt.Errorf("-check: %w", err)
		}
		say(stdout, fmt.Sprintf("%d records, %d bytes, %d faults", r.Records, r.Bytes, len(r.Faults)))
		for _, f := range r.Faults {
			say(stdout, f.Key+": "+f.What)
		}
		if err := r.Err(); err != nil {
			return fmt.Errorf("-check: %w", err)
		}
	}
	if s.backup != "" {
		// Where a start with -data looks for it.
		if err := d.Backup(ctx, filepath.Join(s.backup, "store")); err != nil {
			return fmt.Errorf("-backup: %w", err)
		}
		say(stdout, "copied to "+s.backup)
	}
	return nil
}
