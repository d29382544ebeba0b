package config

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/podyard/podyard/backend/disk"
)

// newSecretName is the file of a key that is to take the place of secretName. While it is
// there a rotation is not finished, and every opening of the store goes on with it.
const newSecretName = secretName + ".new"

// A keyring is the keys of a store.
type keyring struct {
	key []byte
	old [][]byte
	// unfinished says that newSecretName is the key. Its file is renamed when a store was opened
	// with it.
	unfinished bool
}

// keys are those of the configuration and of the data directory. A key is made if there is
// none and no store.
func keys(c *Config, o *Options) (k keyring, err error) {
	if k.key, err = secretKey(c, o); err != nil {
		return k, err
	}
	return k, k.addOthers(c, o)
}

// addOthers adds the old keys, and the key of a rotation that is not finished.
func (k *keyring) addOthers(c *Config, o *Options) error {
	for _, text := range c.OldSecretKeys {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return errorAt("/oldSecretKeys", "must be base64")
		}
		k.old = append(k.old, b)
	}
	if c.SecretKey != "" {
		return nil
	}
	next, err := readKeyFile(o, newSecretName)
	if err == nil && next != nil {
		k.old = append(k.old, k.key)
		k.key, k.unfinished = next, true
	}
	return err
}

// finish notes that a store was opened with the keys.
func (k *keyring) finish(o *Options) error {
	if !k.unfinished {
		return nil
	}
	if err := os.Rename(filepath.Join(o.Data, newSecretName), filepath.Join(o.Data, secretName)); err != nil {
		return o.wrong("Data", fmt.Errorf("keep the new secret key: %w", err))
	}
	k.unfinished = false
	return nil
}

// RotateSecretKey makes another key for the store in Options.Data, which no server may be
// using, and seals all secrets with it. When it is cut off, the next start of a server or the
// next call finishes it. It is not for a key of the configuration: put the new one there, and
// the old one into oldSecretKeys.
func RotateSecretKey(ctx context.Context, c *Config, o *Options) error {
	if c.SecretKey != "" {
		return errors.New("the configuration has the key: put another one in its place and this one into oldSecretKeys, and restart")
	}
	if err := openOnce(ctx, c, o); err != nil { // it finishes an earlier rotation
		return err
	}
	_, err := os.Stat(filepath.Join(o.Data, newSecretName))
	if errors.Is(err, fs.ErrNotExist) {
		key := make([]byte, disk.KeySize)
		rand.Read(key)
		err = writeSecret(filepath.Join(o.Data, newSecretName), base64.StdEncoding.EncodeToString(key))
	}
	if err != nil {
		return o.wrong("Data", fmt.Errorf("keep a new secret key: %w", err))
	}
	return openOnce(ctx, c, o)
}

// openOnce opens the store, with which a rotation of its key is finished.
func openOnce(ctx context.Context, c *Config, o *Options) error {
	if !hasStore(o) {
		return o.wrong("Data", errors.New("there is no store"))
	}
	k, err := keys(c, o)
	if err != nil {
		return err
	}
	d, err := disk.Open(ctx, filepath.Join(o.Data, storeName), k.options(o))
	if err != nil {
		return o.storeError(err)
	}
	return errors.Join(k.finish(o), d.Close())
}

// options are those of a store that is opened for maintenance.
func (k *keyring) options(o *Options) *disk.Options {
	return &disk.Options{Key: k.key, OldKeys: k.old, Logger: o.Logger}
}
