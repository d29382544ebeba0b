package registries

import (
	"context"

	"github.com/podyard/podyard/problem/idempotency"
)

// A Store keeps registries. It is safe for concurrent use, and what it returns is the
// caller's. Input is valid: the service has checked it.
//
// A Store outside of memory seals credentials at rest. No error of it holds one.
type Store interface {
	// Create adds r with its credential: ErrExists if its ID is taken, and then nothing
	// was changed.
	Create(ctx context.Context, r Registry, c Credential) error
	// CreateKeyed is Create for a request with an Idempotency-Key: see idempotency.Store.
	CreateKeyed(ctx context.Context, r Registry, c Credential, k idempotency.Record) error
	idempotency.Finder
	// Get returns the registry with its credential, or ErrNotFound.
	Get(ctx context.Context, id string) (Registry, Credential, error)
	// List returns the registries of owner by Created and then ID.
	List(ctx context.Context, owner string) ([]Registry, error)
	// All returns the registries of all users in the same order.
	All(ctx context.Context) ([]Registry, error)
	// Delete removes the registry and its credential; ErrNotFound if it is not there.
	Delete(ctx context.Context, id string) error
}
