package memory

import (
	"context"

	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/problem/idempotency"
)

// Accounts is an accounts.Store. It is safe for concurrent use.
type Accounts struct {
	keyed
	counted
	t *owned[accounts.Key]
}

var _ accounts.Store = (*Accounts)(nil)

// NewAccounts returns an empty store.
func NewAccounts() *Accounts {
	t := newOwned(&owned[accounts.Key]{
		holding: (*accounts.Key).Holding,
		clone:   accounts.Key.Clone, order: accounts.Compare,
		notFound: accounts.ErrNotFound, exists: accounts.ErrExists,
	})
	return &Accounts{counted: counted{&t.Tally}, t: t}
}

// Create implements accounts.Store.
func (s *Accounts) Create(_ context.Context, k accounts.Key) error {
	return s.t.create(k.ID, k.User, k)
}

// CreateKeyed implements accounts.Store.
func (s *Accounts) CreateKeyed(ctx context.Context, k accounts.Key, r idempotency.Record) error {
	return s.addKeyed(func() error { return s.Create(ctx, k) }, r)
}

// Get implements accounts.Store.
func (s *Accounts) Get(_ context.Context, id string) (accounts.Key, error) { return s.t.get(id) }

// List implements accounts.Store.
func (s *Accounts) List(_ context.Context, user string) ([]accounts.Key, error) {
	return s.t.list(user)
}

// All implements accounts.Store.
func (s *Accounts) All(context.Context) ([]accounts.Key, error) {
	return s.t.all(func(*accounts.Key) bool { return true })
}

// Update implements accounts.Store.
func (s *Accounts) Update(_ context.Context, id string, fn func(*accounts.Key) error) (accounts.Key, error) {
	return s.t.update(id, fn)
}

// Delete implements accounts.Store.
func (s *Accounts) Delete(_ context.Context, id string) error { return s.t.delete(id) }
