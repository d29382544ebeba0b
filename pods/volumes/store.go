package volumes

import (
	"context"

	"github.com/podyard/podyard/problem/idempotency"
)

// A Store keeps volumes. It is safe for concurrent use, copies what it is given and returns
// copies. Nothing is visible before it is as durable as the store makes it.
type Store interface {
	// Create adds v, or returns ErrExists if its ID is taken.
	Create(ctx context.Context, v Volume) error
	// CreateKeyed is Create for a request with an Idempotency-Key (docs/decisions.md 38).
	idempotency.Store[Volume]
	// Get returns the volume or ErrNotFound.
	Get(ctx context.Context, id string) (Volume, error)
	// List returns the volumes of owner, by Created and then ID.
	List(ctx context.Context, owner string) ([]Volume, error)
	// All returns the volumes of all users in the same order.
	All(ctx context.Context) ([]Volume, error)
	// Update calls fn with the volume, stores what fn leaves, atomically, and returns it.
	// Errors: ErrNotFound without the volume, and whatever fn returns; then nothing was
	// changed. fn may run more than once. It changes neither ID, Owner nor Created, and must
	// not do I/O or call the store.
	Update(ctx context.Context, id string, fn func(*Volume) error) (Volume, error)
	// Delete removes the volume, or returns ErrNotFound.
	Delete(ctx context.Context, id string) error
}
