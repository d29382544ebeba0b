package config

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi"
)

// adminUser is whom the key with full access is of: the operator.
const adminUser = "admin"

// adminKey is the key with full access: the program's, the one kept in the data directory,
// or a new one, which is kept there.
func adminKey(o *Options) (key string, isNew bool, err error) {
	if o.Key != "" {
		return o.Key, false, nil
	}
	file := filepath.Join(o.Data, "api-key")
	if o.Data != "" {
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", false, o.wrong("Data", fmt.Errorf("read the key: %w", err))
		}
		if key := strings.TrimSpace(string(b)); key != "" {
			return key, false, nil
		}
	}
	b := make([]byte, 20)
	rand.Read(b)
	key = "py_" + hex.EncodeToString(b)
	if o.Data == "" {
		return key, true, nil
	}
	if err := writeSecret(file, key); err != nil {
		return "", false, o.wrong("Data", fmt.Errorf("keep the key: %w", err))
	}
	return key, true, nil
}

// authenticator knows the keys of the configuration, and the one with full access.
func (c *Config) authenticator(o *Options, admin string) (*httpapi.Keys, error) {
	keys, err := httpapi.NewKeys(append(c.APIKeys(), httpapi.Key{Secret: admin, User: adminUser, Scopes: []string{"*", "operator"}}), time.Now)
	wrong := (*httpapi.KeyError)(nil)
	switch {
	case !errors.As(err, &wrong):
		return keys, err
	case o.Key != "":
		return nil, o.wrong("Key", wrong.Err)
	}
	return nil, o.wrong("Data", fmt.Errorf("the file api-key: %w", wrong.Err))
}

// CheckKey says what is wrong with Options.Key beside the keys of the configuration.
func (c *Config) CheckKey(key string) error {
	_, err := c.authenticator(&Options{Key: key}, key)
	return err
}

// writeSecret writes a secret as a whole or not at all, for the owner's eyes from the first
// byte. It is on the disk before there is anything that needs it: without the key a store is
// lost.
func writeSecret(file, secret string) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return err
	}
	if _, err = f.WriteString(secret); err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), file)
}

// trusts reports whether a user is an operator: one with an operator's key among the keys in
// force of the configuration, or the user of the server's own key. It asks for users, not for
// the key of a request, because a pod is judged again when it starts.
func (p *Parts) trusts(user string) bool {
	f := p.live.current.Load()
	return user == adminUser || f != nil && f.auth.IsOperator(user, time.Now())
}
