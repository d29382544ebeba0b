package queue

import (
	"context"

	"github.com/podyard/podyard/internal/unwrap"
)

// Shared is an optional interface of a JobQueue over a store that several servers can use at
// once. A service then looks by itself once a second, because what another server did may be due
// and its events may be lost. A wrapper of a queue has a method Unwrap() JobQueue.
type Shared interface {
	// Shared reports whether other servers may use the same jobs. It is always the same.
	Shared() bool
}

// IsShared reports whether q, or a queue that it wraps, is Shared.
func IsShared(q JobQueue) bool {
	s, ok := unwrap.As[Shared](q)
	return ok && s.Shared()
}

// An OwnerLister is an optional interface of a JobQueue that knows where the jobs of a user are.
type OwnerLister interface {
	// EndpointsOf returns the endpoints on which owner has jobs of any status, in any order. The
	// queue need not know which endpoints were deleted. errors.ErrUnsupported says that it cannot
	// list them after all.
	EndpointsOf(ctx context.Context, owner string) ([]string, error)
}

// Counter is an optional interface of a JobQueue that counts jobs at a lower cost than List
// reads them.
type Counter interface {
	// Count returns how many jobs List would yield for q without its Before, Offset and Limit.
	Count(ctx context.Context, now Instant, q ListQuery) (int, error)
}
