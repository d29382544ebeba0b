// Package registriestest is what every registries.Store must do.
package registriestest

import (
	"context"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/registries"
)

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) registries.Store) {
	suite.Test(t, suite.RecordRules[store](records), func(t *testing.T) store { return store{open(t)} })
}

// A record is a registry with its credential.
type record struct {
	registries.Registry
	Credential registries.Credential
}

var records = suite.Records[record]{
	New: func(id, owner string, created time.Time) record {
		return record{
			registries.Registry{ID: id, Owner: owner, Name: "näme \x01 \"quoted\" \U0001F600", Created: created},
			registries.Credential{Username: "üser", Password: "p\x00ss\n%s"},
		}
	},
	ID:     func(r record) string { return r.ID },
	Listed: func(r record) record { return record{Registry: r.Registry} },

	ErrExists: registries.ErrExists, ErrNotFound: registries.ErrNotFound,
}

// A store is a registries.Store as one of records.
type store struct{ s registries.Store }

func (s store) Create(ctx context.Context, r record) error {
	return s.s.Create(ctx, r.Registry, r.Credential)
}

func (s store) CreateKeyed(ctx context.Context, r record, k idempotency.Record) error {
	return s.s.CreateKeyed(ctx, r.Registry, r.Credential, k)
}

func (s store) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return s.s.FindKey(ctx, key)
}

func (s store) Get(ctx context.Context, id string) (r record, err error) {
	r.Registry, r.Credential, err = s.s.Get(ctx, id)
	return r, err
}

func (s store) Delete(ctx context.Context, id string) error { return s.s.Delete(ctx, id) }

// List spoils what it was given: it is the caller's.
func (s store) List(ctx context.Context, owner string) ([]record, error) {
	return spoiled(s.s.List(ctx, owner))
}

func (s store) All(ctx context.Context) ([]record, error) { return spoiled(s.s.All(ctx)) }

func spoiled(all []registries.Registry, err error) (list []record, _ error) {
	for _, r := range all {
		list = append(list, record{Registry: r})
	}
	clear(all)
	return list, err
}
