package config

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
)

// openStores opens the stores in a database, on disk, or in memory where nothing is kept.
func (p *Parts) openStores(ctx context.Context) error {
	if p.own.Database != "" {
		return p.openDatabase(ctx)
	}
	if p.own.Data == "" {
		p.Options.Stores = inMemory()
		p.Options.Stores.Close = p.closeLast
		return nil
	}
	k, err := keys(p.config, p.own)
	if err != nil {
		return err
	}
	d, err := openDisk(ctx, p.own, &k, p.log, p.metrics)
	if err != nil {
		return err
	}
	p.disk = d
	p.last = append(p.last, d.Close)
	p.Options.Stores = onDisk(d)
	p.Options.Stores.Close = p.closeLast
	if err := k.finish(p.own); err != nil {
		return err
	}
	return p.keepWorkers(k.key)
}

// keepWorkers lets workers of an earlier server continue with this one.
func (p *Parts) keepWorkers(key []byte) error {
	secret := workerSecret(key)
	same, err := sameAddress(p.own, secret)
	p.Options.Jobs.WorkerSecret, p.Options.Jobs.ReplaceWorkers = secret, !same
	if errors.Is(err, errAddressNotKept) { // as on a full disk, on which a server starts so that somebody can make room
		p.log.Warn("the next server may start workers anew", "err", err)
		return nil
	}
	return err
}

// errAddressNotKept: the file could not be written.
var errAddressNotKept = errors.New("the address of this server is not kept")

func inMemory() server.Stores {
	p, r, v, t, k, a := memory.NewPods(), memory.NewRegistries(), memory.NewVolumes(), memory.NewTemplates(), memory.NewSSHKeys(), memory.NewAccounts()
	e, j, s, b, w := memory.NewEndpoints(), memory.NewJobs(), memory.NewSchedules(), memory.NewBatches(), memory.NewSecrets()
	return server.Stores{
		Pods: p, Registries: r, Volumes: v, Templates: t, SSHKeys: k, Secrets: w, Accounts: a, Billing: memory.NewBilling(), Endpoints: e, Jobs: j, Schedules: s, Batches: b,
		Counters: []budget.Counter{p, r, v, t, k, a, e, j, s, b, w},
	}
}

func onDisk(d *disk.Store) server.Stores {
	return server.Stores{
		Pods: d.Pods(), Registries: d.Registries(), Volumes: d.Volumes(), Templates: d.Templates(),
		SSHKeys: d.SSHKeys(), Secrets: d.Secrets(), Accounts: d.Accounts(), Billing: d.Billing(), Endpoints: d.Endpoints(), Jobs: d.Jobs(), Schedules: d.Schedules(), Batches: d.Batches(),
		Run: d.Run, Ready: d.Ready, Warning: d.Warning, Counters: []budget.Counter{d},
	}
}

// workerSecret is what the keys of workers are made of, so that workers of an earlier server
// go on. It cannot be told from the key of the store.
func workerSecret(key []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("keys of workers"))
	return mac.Sum(nil)
}

// sameAddress reports whether workers that an earlier server started find this one, with keys
// of this secret, and keeps both for the next: the address, and a digest of the secret. A port
// that is picked is another one every time.
func sameAddress(o *Options, secret []byte) (bool, error) {
	if o.workerAddr() == nil {
		return false, nil
	}
	digest := sha256.Sum256(secret)
	file, addr := filepath.Join(o.Data, "address"), o.workerAddr().String()+" "+hex.EncodeToString(digest[:8])
	b, err := os.ReadFile(file)
	switch {
	case err == nil && string(b) == addr:
		return true, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, o.wrong("Data", fmt.Errorf("read the address: %w", err))
	}
	if err := writeSecret(file, addr); err != nil {
		return false, fmt.Errorf("%w: %w", errAddressNotKept, err)
	}
	return errors.Is(err, fs.ErrNotExist), nil
}

func openDisk(ctx context.Context, o *Options, k *keyring, log *slog.Logger, to disk.Observer) (*disk.Store, error) {
	// A worker that is a function of this process ends with it. Others go on.
	gone := func(id serverless.WorkerID) bool { return slices.Contains(o.Workers, id) }
	d, err := disk.Open(ctx, filepath.Join(o.Data, storeName), &disk.Options{Key: k.key, OldKeys: k.old, Logger: log, WorkerGone: gone, Observer: to})
	switch {
	case errors.Is(err, disk.ErrLocked):
		return nil, o.storeError(err)
	case errors.Is(err, disk.ErrDamaged):
		return nil, o.wrong("Data", fmt.Errorf("%w: -check says what is lost, -repair drops it", err))
	case err != nil:
		return nil, o.wrong("Data", err)
	}
	return d, nil
}

// hasStore reports whether a server has kept something in the data directory.
func hasStore(o *Options) bool {
	if o.Data == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(o.Data, storeName))
	return err == nil
}

// Files of the data directory.
const (
	storeName  = "store"
	secretName = "secret-key"
)

// readSecretKey is the key of the configuration, or the one that is kept in the data
// directory; nil when there is none.
func readSecretKey(c *Config, o *Options) ([]byte, error) {
	if c.SecretKey != "" {
		return base64.StdEncoding.DecodeString(c.SecretKey)
	}
	return readKeyFile(o, secretName)
}

// readKeyFile is a key that is kept in the data directory; nil when it is not there.
func readKeyFile(o *Options, name string) ([]byte, error) {
	file := filepath.Join(o.Data, name)
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, o.wrong("Data", fmt.Errorf("read the secret key: %w", err))
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(key) != disk.KeySize {
		return nil, o.wrong("Data", fmt.Errorf("%s is not the base64 of %d bytes", file, disk.KeySize))
	}
	return key, nil
}

// secretKey seals secrets on disk. One is made at the first start and kept in the data
// directory, unless the configuration has one.
func secretKey(c *Config, o *Options) ([]byte, error) {
	key, err := readSecretKey(c, o)
	if err != nil || key != nil {
		return key, err
	}
	if hasStore(o) {
		return nil, o.wrong("Data", errors.New("there is a store, and not the key that it was made with: put back the file secret-key, or the secretKey of the configuration"))
	}
	return newSecretKey(o)
}

// newSecretKey makes a key and keeps it in the data directory.
func newSecretKey(o *Options) ([]byte, error) {
	key := make([]byte, disk.KeySize)
	rand.Read(key)
	if err := writeSecret(filepath.Join(o.Data, secretName), base64.StdEncoding.EncodeToString(key)); err != nil {
		return nil, o.wrong("Data", fmt.Errorf("keep the secret key: %w", err))
	}
	return key, nil
}
