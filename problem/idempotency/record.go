package idempotency

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/podyard/podyard/problem"
)

const (
	// Retention is how long a key is kept after the request that succeeded with it.
	Retention = 24 * time.Hour
	// MaxKey is the longest key in bytes.
	MaxKey = 255
)

// A Digest is a SHA-256 digest.
type Digest [sha256.Size]byte

// A Request is the key of a request and what the request was. Both are digests, so that
// neither a key nor a body is stored.
type Request struct {
	Key     Digest // of the key and of everything that it is bound to
	Content Digest // of the request, keyed by the key: it does not help to guess a secret in a body
	// Room limits how many keys there are. It is no part of a Record. Nil: no limit.
	Room Room
}

// Room is for the new keys of one user. It is safe for concurrent use.
type Room interface {
	// Take takes the room of one key, or returns the error for a request with a new key.
	Take() error
	// Give gives back the room of one key: its request failed.
	Give()
}

// NewRequest returns the Request of a key. A key is unique within scope, for example the user
// and the operation. content is what must be equal in a repetition, for example the path and
// the body.
func NewRequest(key string, scope []string, content ...[]byte) *Request {
	parts := make([][]byte, 0, len(scope)+1)
	for _, s := range append(slices.Clip(scope), key) {
		parts = append(parts, []byte(s))
	}
	return &Request{Key: digest(nil, parts), Content: digest([]byte(key), content)}
}

// digest returns a digest of parts that depends on where each part ends.
func digest(key []byte, parts [][]byte) (d Digest) {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write(p)
	}
	h.Sum(d[:0])
	return d
}

// A Record says what the first request with a key created.
type Record struct {
	Request
	ID string    // of what was created
	At time.Time // of the creation, in whole milliseconds
}

// Over reports whether the record no longer counts at now.
func (r *Record) Over(now time.Time) bool { return !now.Before(r.At.Add(Retention)) }

// A Finder is the part of a store that reads records. It is safe for concurrent use.
type Finder interface {
	// FindKey returns the record of a key, or ErrNotFound. It may also return a record that
	// is over. A store that may have lost the record returns another error.
	FindKey(ctx context.Context, key Digest) (Record, error)
}

// A Store is the part of a store of T that creates records with a key.
type Store[T any] interface {
	Finder
	// Create adds v.
	Create(ctx context.Context, v T) error
	// CreateKeyed is Create and adds r in the same commit. If the store has a record of the
	// key that is not over at r.At, CreateKeyed returns ErrTaken and changes nothing. A
	// record that is over is replaced. So that records do not pile up, a store removes some
	// that are over with each call, a bounded number of them.
	CreateKeyed(ctx context.Context, v T, r Record) error
}

// Records is a store of records that belong to users. It is safe for concurrent use, shares nothing
// with its callers, and what it answers is as durable as the store makes it. Its package has the
// errors ErrNotFound and ErrExists: Create returns the latter if the ID is taken.
type Records[T any] interface {
	Store[T]
	// Get returns the record, or ErrNotFound of its package.
	Get(ctx context.Context, id string) (T, error)
	// List returns the records of owner, by Created and then ID.
	List(ctx context.Context, owner string) ([]T, error)
	// All returns the records of all users in the same order.
	All(ctx context.Context) ([]T, error)
	// Update calls fn with the record, stores what fn leaves, atomically, and returns it. Errors:
	// ErrNotFound without the record, and whatever fn returns; then nothing was changed. fn may
	// run more than once. It must not change ID, owner and Created, do I/O, or call the store.
	Update(ctx context.Context, id string, fn func(*T) error) (T, error)
	// Delete removes the record, or returns ErrNotFound.
	Delete(ctx context.Context, id string) error
}

// Add calls s.Create, or s.CreateKeyed if the request has a key. id is the id of v. r is the
// argument that Do gave, and may be nil.
func Add[T any](ctx context.Context, s Store[T], v T, id string, r *Record) error {
	if r == nil {
		return s.Create(ctx, v)
	}
	r.ID = id
	return s.CreateKeyed(ctx, v, *r)
}

// Errors of stores and of Do.
var (
	ErrNotFound = problem.New(problem.NotFound, "no request was made with this Idempotency-Key")
	ErrTaken    = problem.New(problem.Conflict, "a request was made with this Idempotency-Key")
	ErrBusy     = problem.New(problem.Conflict, "a request with this Idempotency-Key is under way: repeat it when that one has been answered")
	ErrReused   = problem.New(problem.Invalid, "this Idempotency-Key was used for another request: a repetition has the same path, query and body")
)

// Repeated is the error of a request that was made before with its key. The caller answers
// with what the first request created.
type Repeated struct {
	ID string // of what the first request created; it may have been deleted since
}

// Error implements error.
func (r *Repeated) Error() string {
	return fmt.Sprintf("the request was made before with this Idempotency-Key and created %s", r.ID)
}

// Unwrap makes the error a Conflict for callers that do not know Repeated.
func (r *Repeated) Unwrap() error { return ErrTaken }
