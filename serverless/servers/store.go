// Package servers has what several servers that share stores know of each other: which of them
// live, and which one does what only one may do. It has one primitive for that, the lease with
// an epoch. It also has counts and secrets that all servers share.
//
// A program that is the only one on its stores needs nothing of this. docs/servers.md says what
// servers share and what each has for itself.
package servers

import (
	"context"
	"time"

	"github.com/podyard/podyard/problem"
)

// A Lease says which server has something, and until when.
type Lease struct {
	Name   string // at most MaxName bytes
	Holder string // the server, at most MaxName bytes
	// Epoch fences: it is greater than the epoch of every lease of the store that was given
	// before, whatever its name, also after a Release. It stays the same as long as the holder
	// renews the lease in time.
	Epoch uint64
	Until time.Time // from then on the lease is over
	Data  []byte    // at most MaxData bytes that the holder shows to the others
}

// Limits of a store.
const (
	MaxName = 256
	MaxData = 64 << 10
)

// A Leases is the part of a store that keeps leases. It is safe for concurrent use, shares
// nothing with its callers, and has stored what it was given when a call returns. Instants are
// kept to the millisecond. Nothing depends on a lease that is over, so a store may delete it.
type Leases interface {
	// Take gives the lease l.Name to l.Holder until l.Until, with l.Data, if nobody has it at
	// now, or if l.Holder has it. It returns the lease as it is then. If another server has it,
	// that is its lease, and nothing was changed. It ignores l.Epoch.
	Take(ctx context.Context, now time.Time, l Lease) (Lease, error)
	// Release ends a lease that still has the holder and the epoch of l. Otherwise it changes
	// nothing.
	Release(ctx context.Context, l Lease) error
	// Leases returns the leases that are not over at now and whose names begin with prefix, in
	// the order of their names.
	Leases(ctx context.Context, now time.Time, prefix string) ([]Lease, error)
}

// A Store keeps what servers share. It is safe for concurrent use. Package serverstest has its
// rules.
type Store interface {
	Leases
	// Reserve adds up to n to the count key, but no more than limit in all, and returns how much
	// it has added. A count begins at 0, and again when its end, the until of its first
	// Reserve, has passed. With a negative n it gives back, down to 0.
	Reserve(ctx context.Context, now, until time.Time, key string, n, limit int64) (int64, error)
	// Secret returns the secret name. If there is none, it stores fresh. All servers get the same
	// secret. Durable; it is never deleted.
	Secret(ctx context.Context, name string, fresh []byte) ([]byte, error)
}

// Check returns an error if a store cannot keep l. Every store calls it in Take.
func (l *Lease) Check() error {
	switch {
	case l.Name == "" || len(l.Name) > MaxName:
		return problem.Newf(problem.Invalid, "the name of a lease has 1 to %d bytes", MaxName)
	case l.Holder == "" || len(l.Holder) > MaxName:
		return problem.Newf(problem.Invalid, "the holder of a lease has 1 to %d bytes", MaxName)
	case len(l.Data) > MaxData:
		return problem.Newf(problem.Invalid, "the data of a lease have at most %d bytes", MaxData)
	}
	return nil
}
