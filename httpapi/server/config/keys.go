package config

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods/accounts"
)

// apiKeyName is the file of the key with full access in the data directory.
const apiKeyName = "api-key"

// adminUser is whom the key with full access is of: the operator.
const adminUser = "admin"

// adminKey is the key with full access: the program's, the one kept in the data directory,
// or a new one, which is kept there.
func adminKey(o *Options) (key string, isNew bool, err error) {
	if o.Key != "" {
		return o.Key, false, nil
	}
	file := filepath.Join(o.Data, apiKeyName)
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

// KeyFile is the file of the data directory that has the key with full access, where the program has
// none of its own. It is empty without a data directory.
func (p *Parts) KeyFile() string {
	if p.own.Data == "" {
		return ""
	}
	return filepath.Join(p.own.Data, apiKeyName)
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

// trusts reports whether a user has an operator's key among the keys in force: those of the
// configuration, and the server's own. It asks for users, not for the key of a request, because
// a pod is judged again when it starts. Keys that are made over the API hand this on to nobody:
// see accounts.Options.Trusted.
func (p *Parts) trusts(user string) bool {
	f := p.live.current.Load()
	if f == nil { // the server is not made yet
		return user == adminUser
	}
	return f.auth.IsOperator(user, time.Now())
}

// keysTakenOut names the users of whom c has keys that next does not have, and how many keys
// they have that were made over the API.
func (p *Parts) keysTakenOut(ctx context.Context, c, next *Config) (warnings []string, err error) {
	stays := map[string]bool{}
	for _, k := range next.Keys {
		stays[k.Key] = true
	}
	gone := map[string]bool{}
	for _, k := range c.Keys {
		gone[k.User] = gone[k.User] || !stays[k.Key]
	}
	made, err := p.storedKeys(ctx)
	if err != nil {
		return nil, err
	}
	for _, user := range slices.Sorted(maps.Keys(made)) {
		if gone[user] {
			warnings = append(warnings, fmt.Sprintf("a key of the user %s was taken out of the configuration, and keys of that user that were made over the API still work: %d", user, len(made[user])))
		}
	}
	return warnings, nil
}

// keysWithTrust names the users whom the server trusts, and how many keys made over the API
// before that have this trust, too.
func (p *Parts) keysWithTrust(ctx context.Context) (warnings []string, err error) {
	made, err := p.storedKeys(ctx)
	if err != nil {
		return nil, err
	}
	for _, user := range slices.Sorted(maps.Keys(made)) {
		n := 0
		for _, k := range made[user] {
			if p.accounts.HandsOnTrust(k) {
				n++
			}
		}
		if n > 0 {
			warnings = append(warnings, fmt.Sprintf("the user %s may run programs of this host as an operator, and so may whoever has a key of that user that was made over the API without the scope operator: %d", user, n))
		}
	}
	return warnings, nil
}

// storedKeys returns the keys in force that were made over the API, by user.
func (p *Parts) storedKeys(ctx context.Context) (map[string][]accounts.Key, error) {
	made := map[string][]accounts.Key{}
	if p.accounts == nil {
		return made, nil
	}
	list, err := p.accounts.All(ctx)
	for _, k := range list {
		if k.Expires.IsZero() || time.Now().Before(k.Expires) {
			made[k.User] = append(made[k.User], k)
		}
	}
	return made, err
}
