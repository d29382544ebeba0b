package templates

import (
	"context"

	"github.com/podyard/podyard/problem/idempotency"
)

// A Store keeps templates.
type Store interface {
	idempotency.Records[Template]
	// Public returns the public templates of all owners, by Created and then ID.
	Public(ctx context.Context) ([]Template, error)
}
