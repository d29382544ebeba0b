package templates

import (
	"context"

	"github.com/podyard/podyard/problem/idempotency"
)

// A Store keeps templates. It is safe for concurrent use, copies what it is given and returns
// copies. Nothing is visible before it is as durable as the store makes it.
type Store interface {
	// Create adds t, or returns ErrExists if its ID is taken.
	Create(ctx context.Context, t Template) error
	// CreateKeyed is Create for a request with an Idempotency-Key (docs/decisions.md 38).
	idempotency.Store[Template]
	// Get returns the template or ErrNotFound.
	Get(ctx context.Context, id string) (Template, error)
	// List returns the templates of owner, by Created and then ID.
	List(ctx context.Context, owner string) ([]Template, error)
	// All returns the templates of all users in the same order.
	All(ctx context.Context) ([]Template, error)
	// Public returns the public templates of all owners, by Created and then ID.
	Public(ctx context.Context) ([]Template, error)
	// Update calls fn with the template, stores what fn leaves, atomically, and returns it.
	// Errors: ErrNotFound without the template, and whatever fn returns; then nothing was
	// changed. fn may run more than once. It must not change ID, Owner and Created, do I/O, or
	// call the store.
	Update(ctx context.Context, id string, fn func(*Template) error) (Template, error)
	// Delete removes the template, or returns ErrNotFound.
	Delete(ctx context.Context, id string) error
}
