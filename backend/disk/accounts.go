package disk

import (
	"context"

	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/problem/idempotency"
)

// Accounts is an accounts.Store. It stores digests of keys and never a secret.
type Accounts struct{ o owned[accounts.Key] }

var _ accounts.Store = (*Accounts)(nil)

// Accounts returns the store of API keys.
func (s *Store) Accounts() *Accounts {
	return &Accounts{owned[accounts.Key]{
		s: s, kind: keyAccount, of: func(e *engine) *table[accounts.Key] { return &e.accounts },
		clone: accounts.Key.Clone, order: accounts.Compare,
		notFound: accounts.ErrNotFound, exists: accounts.ErrExists,
	}}
}

// Create implements accounts.Store.
func (s *Accounts) Create(ctx context.Context, k accounts.Key) error { return s.o.create(ctx, k.ID, k) }

// CreateKeyed implements accounts.Store.
func (s *Accounts) CreateKeyed(ctx context.Context, k accounts.Key, r idempotency.Record) error {
	return s.o.create(ctx, k.ID, k, r)
}

// FindKey implements accounts.Store.
func (s *Accounts) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return s.o.s.findKey(key)
}

// Get implements accounts.Store.
func (s *Accounts) Get(_ context.Context, id string) (accounts.Key, error) { return s.o.get(id) }

// List implements accounts.Store.
func (s *Accounts) List(_ context.Context, user string) ([]accounts.Key, error) {
	return s.o.list(func(k *accounts.Key) bool { return k.User == user })
}

// All implements accounts.Store.
func (s *Accounts) All(context.Context) ([]accounts.Key, error) {
	return s.o.list(func(*accounts.Key) bool { return true })
}

// Update implements accounts.Store.
func (s *Accounts) Update(ctx context.Context, id string, fn func(*accounts.Key) error) (accounts.Key, error) {
	return s.o.update(ctx, id, fn)
}

// Delete implements accounts.Store.
func (s *Accounts) Delete(ctx context.Context, id string) error { return s.o.delete(ctx, id) }
