package config

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/ratelimit/budget"
)

// IsDatabase reports whether text is the URL of a database, for Options.Database, and not a
// directory.
func IsDatabase(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

// nameFile keeps the name of a server in its directory.
const nameFile = "name"

var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)

// CheckName says what is wrong with Options.Name.
func CheckName(name string) error {
	if name != "" && !validName.MatchString(name) {
		return errors.New("must be 1 to 63 letters, digits, '.', '_' and '-', and begin with a letter or a digit")
	}
	return nil
}

// openDatabase opens the stores in a database. The directory of this server is made if need
// be.
func (p *Parts) openDatabase(ctx context.Context) error {
	if p.config.SecretKey == "" {
		return p.config.located(errorAt("/secretKey", "is needed with a database: it seals the secrets there, and is the same on every server; openssl rand -base64 32 makes one"))
	}
	if p.own.Data == "" {
		return p.own.wrong("Data", errors.New("a database needs a directory for what is this server's own"))
	}
	if err := os.MkdirAll(p.own.Data, 0o700); err != nil {
		return p.own.wrong("Data", err)
	}
	k, err := keys(p.config, p.own)
	if err != nil {
		return err
	}
	if p.Name, err = p.own.name(); err != nil {
		return err
	}
	if p.Options.Instance, err = p.own.instance(); err != nil {
		return err
	}
	d, err := postgres.Open(ctx, p.own.Database, &postgres.Options{Key: k.key, OldKeys: k.old, Name: "podyard " + p.Name, Logger: p.log})
	if err != nil {
		return p.own.wrong("Database", err)
	}
	p.database = d
	p.last = append(p.last, func() error { d.Close(); return nil })
	p.Options.Stores = inDatabase(ctx, d)
	p.Options.Stores.Close = p.closeLast
	return p.keepWorkers(k.key)
}

func inDatabase(ctx context.Context, d *postgres.Store) server.Stores {
	return server.Stores{
		Pods: d.Pods(), Registries: d.Registries(), Volumes: d.Volumes(), Templates: d.Templates(),
		SSHKeys: d.SSHKeys(), Secrets: d.Secrets(), Accounts: d.Accounts(), Billing: d.Billing(), Endpoints: d.Endpoints(), Jobs: d.Jobs(), Schedules: d.Schedules(), Batches: d.Batches(),
		Servers: d.Servers(), Presence: d.Presence(), Counters: []budget.Counter{d},
		Ready: func() error {
			ctx, cancel := clock.WithDeadline(context.WithoutCancel(ctx), clock.System{}, clock.System{}.Now().Add(readyTimeout))
			defer cancel()
			return d.Err(ctx)
		},
	}
}

// readyTimeout is how long a database may take to answer.
const readyTimeout = 2 * time.Second

// name is that of the options, or the one that is kept, or a new one. It is kept.
func (o *Options) name() (string, error) {
	if err := CheckName(o.Name); err != nil {
		return "", o.wrong("Name", err)
	}
	file := filepath.Join(o.Data, nameFile)
	kept, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", o.wrong("Data", fmt.Errorf("read the name: %w", err))
	}
	name := o.Name
	if name == "" {
		name = string(kept)
	}
	if name == "" {
		name = "server-" + strings.ToLower(rand.Text()[:8])
	}
	if name == string(kept) {
		return name, nil
	}
	if err := writeSecret(file, name); err != nil {
		return "", o.wrong("Data", fmt.Errorf("keep the name: %w", err))
	}
	return name, nil
}

// instanceFile keeps what tells this directory from those of other servers.
const instanceFile = "instance"

// instance is the kept text of instanceFile, or a new one. One server at a time uses a
// directory, so no other one that runs has the same.
func (o *Options) instance() (string, error) {
	file := filepath.Join(o.Data, instanceFile)
	kept, err := os.ReadFile(file)
	if err == nil && len(kept) > 0 {
		return string(kept), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", o.wrong("Data", fmt.Errorf("read the instance: %w", err))
	}
	made := rand.Text()
	if err := writeSecret(file, made); err != nil {
		return "", o.wrong("Data", fmt.Errorf("keep the instance: %w", err))
	}
	return made, nil
}

// sharedKey makes the key of Options.Data the key of all servers of a database, which has its
// digest, unless the database has another one: then that is the key with full access, and
// this server does not know it.
func (p *Parts) sharedKey(ctx context.Context) error {
	sum := sha256.Sum256([]byte(p.Key))
	mine := "sha256:" + hex.EncodeToString(sum[:])
	kept, err := p.database.Agree(ctx, "api-key", []byte(mine))
	if err != nil {
		return p.own.wrong("Database", fmt.Errorf("agree on the key: %w", err))
	}
	if string(kept) == mine {
		return nil
	}
	made := p.NewKey
	p.Key, p.NewKey, p.admin = "", false, string(kept)
	file := filepath.Join(p.own.Data, apiKeyName)
	if !made {
		p.log.Warn("the key of this file is not in force: the database has another one, which the server that was the first has printed", "file", file)
		return nil
	}
	if err := os.Remove(file); err != nil {
		return p.own.wrong("Data", fmt.Errorf("remove a key that is not in force: %w", err))
	}
	return nil
}
