package volumes

import "context"

// A Store keeps volumes. It is safe for concurrent use, copies what it is given and returns
// copies, and what it answers is as durable
// as the store makes it.
type Store interface {
	// Create adds v, or returns ErrExists if its ID is taken.
	Create(ctx context.Context, v Volume) error
	// Get returns the volume or ErrNotFound.
	Get(ctx context.Context, id string) (Volume, error)
	// List returns the volumes of owner, by Created and then ID.
	List(ctx context.Context, owner string) ([]Volume, error)
	// Update stores what fn leaves, atomically, and returns it: ErrNotFound without the
	// volume, and whatever fn returns, in which case nothing was changed. fn changes Name,
	// Size and Sizes only, may run more than once, does no I/O and does not call the store.
	Update(ctx context.Context, id string, fn func(*Volume) error) (Volume, error)
	// Delete removes the volume, or returns ErrNotFound.
	Delete(ctx context.Context, id string) error
}
