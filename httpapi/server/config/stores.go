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
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podyard/podyard/backend"
	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/serverless"
)

// openStores opens the stores in a database, on disk, or in memory where nothing is kept.
func (p *Parts) openStores(ctx context.Context) error {
	if p.own.Database != "" {
		return p.openDatabase(ctx)
	}
	if p.own.Data == "" {
		return p.openStore(ctx, "", nil)
	}
	k, err := keys(p.config, p.own)
	if err != nil {
		return err
	}
	// A worker that is a function of this process ends with it. Others go on.
	gone := func(id serverless.WorkerID) bool { return slices.Contains(p.own.Workers, id) }
	if err := p.openStore(ctx, filepath.Join(p.own.Data, storeName), &backend.Options{
		Key: k.key, OldKeys: k.old, Logger: p.log, Disk: disk.Options{WorkerGone: gone, Observer: p.metrics},
	}); err != nil {
		return p.own.diskError(err)
	}
	if err := k.finish(p.own); err != nil {
		return err
	}
	return p.keepWorkers(k.key)
}

// openStore opens the stores at an address of backend.Open. They are closed last.
func (p *Parts) openStore(ctx context.Context, where string, o *backend.Options) error {
	s, err := backend.Open(ctx, where, o)
	if err != nil {
		return err
	}
	p.disk, _ = s.(*disk.Store)
	p.database, _ = s.(*postgres.Store)
	p.last = append(p.last, s.Close)
	p.Options.Store = s
	p.Options.Stores = s.Stores() // the program may wrap one of them, and the metrics read some
	p.Options.Stores.Close = p.closeLast
	return nil
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

// diskError says what is wrong with the directory, and what mends it.
func (o *Options) diskError(err error) error {
	switch {
	case errors.Is(err, disk.ErrLocked):
		return o.storeError(err)
	case errors.Is(err, disk.ErrDamaged):
		return o.wrong("Data", fmt.Errorf("%w: -check says what is lost, -repair drops it", err))
	}
	return o.wrong("Data", err)
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
