package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/problem/idempotency"
)

// Accounts is an accounts.Store. It stores digests of keys and never a secret.
type Accounts struct {
	keyFinder
	r records[accounts.Key]
}

var _ accounts.Shared = (*Accounts)(nil)

// Accounts returns the store of API keys.
func (s *Store) Accounts() *Accounts {
	return &Accounts{keyFinder{s}, records[accounts.Key]{
		s: s, table: "accounts", order: accounts.Compare,
		id:       func(v *accounts.Key) string { return v.ID },
		owner:    func(v *accounts.Key) string { return v.User },
		notFound: accounts.ErrNotFound, exists: accounts.ErrExists,
	}}
}

// Create implements accounts.Store.
func (s *Accounts) Create(ctx context.Context, v accounts.Key) error { return s.r.create(ctx, v) }

// CreateKeyed implements accounts.Store.
func (s *Accounts) CreateKeyed(ctx context.Context, v accounts.Key, r idempotency.Record) error {
	return s.r.create(ctx, v, r)
}

// Get implements accounts.Store.
func (s *Accounts) Get(ctx context.Context, id string) (accounts.Key, error) { return s.r.get(ctx, id) }

// List implements accounts.Store.
func (s *Accounts) List(ctx context.Context, owner string) ([]accounts.Key, error) {
	return s.r.of(ctx, owner)
}

// All implements accounts.Store.
func (s *Accounts) All(ctx context.Context) ([]accounts.Key, error) { return s.r.all(ctx) }

// Update implements accounts.Store.
func (s *Accounts) Update(ctx context.Context, id string, fn func(*accounts.Key) error) (accounts.Key, error) {
	return s.r.update(ctx, id, fn)
}

// Delete implements accounts.Store.
func (s *Accounts) Delete(ctx context.Context, id string) error { return s.r.delete(ctx, id) }

// Version implements accounts.Shared.
func (s *Accounts) Version(ctx context.Context) (version int64, err error) {
	err = s.r.s.read(ctx, func(c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM podyard.versions WHERE name = 'accounts'`).Scan(&version)
	})
	return version, err
}
