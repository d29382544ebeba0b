package secrets

import (
	"context"

	"github.com/podyard/podyard/problem/idempotency"
)

// A Store keeps secrets. It is safe for concurrent use, copies what it is given and returns
// copies. Nothing is visible before it is as durable as the store makes it. A store that writes
// values anywhere seals them.
type Store interface {
	// Create adds v, or returns ErrExists if its ID is taken.
	Create(ctx context.Context, v Secret) error
	// CreateKeyed is Create for a request with an Idempotency-Key (docs/decisions.md 38).
	idempotency.Store[Secret]
	// Get returns the secret with its value, or ErrNotFound.
	Get(ctx context.Context, id string) (Secret, error)
	// List returns the secrets of owner without their values, by Created and then ID.
	List(ctx context.Context, owner string) ([]Secret, error)
	// All returns the secrets of all users in the same way.
	All(ctx context.Context) ([]Secret, error)
	// Update calls fn with the secret and its value, stores what fn leaves, atomically, and
	// returns it. Errors: ErrNotFound without the secret, and whatever fn returns; then nothing was
	// changed. fn may run more than once. It changes neither ID, Owner nor Created, and must
	// not do I/O or call the store.
	Update(ctx context.Context, id string, fn func(*Secret) error) (Secret, error)
	// Delete removes the secret, or returns ErrNotFound.
	Delete(ctx context.Context, id string) error
}
