package accounts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/secret"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A Key is an API key of a user. It has no secret in it, only digests.
type Key struct {
	ID      string // 14 lower-case letters and digits
	User    string // whose records the key makes and sees
	Scopes  []string
	Created time.Time
	Expires time.Time // zero: never
	Digest  Digest    // of the secret
	// Old is the digest of the secret before the last rotation, which is accepted until
	// OldUntil. It is zero where there is none.
	Old      Digest
	OldUntil time.Time
}

// Clone returns a copy that shares nothing with k.
func (k Key) Clone() Key {
	k.Scopes = slices.Clone(k.Scopes)
	return k
}

// Compare orders keys as lists do: by Created, and then by ID.
func Compare(a, b Key) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// valid reports whether the key is accepted at an instant.
func (k *Key) valid(at time.Time) bool { return k.Expires.IsZero() || at.Before(k.Expires) }

func (k *Key) operator() bool { return slices.Contains(k.Scopes, AreaOperator) }

// A Digest is the SHA-256 of a secret. Its text is hexadecimal.
type Digest [sha256.Size]byte

// DigestOf is the digest of a secret.
func DigestOf(secret string) Digest {
	var room [64]byte // for the usual lengths: a conversion would allocate at each request
	return sha256.Sum256(append(room[:0], secret...))
}

// String is the first 8 digits, which tell keys apart in a log.
func (d Digest) String() string { return hex.EncodeToString(d[:4]) }

// MarshalText is all digits.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText is the inverse of MarshalText.
func (d *Digest) UnmarshalText(text []byte) error {
	b, err := hex.AppendDecode(nil, text)
	if err != nil || len(b) != len(d) {
		return errors.New("accounts: not a digest")
	}
	copy(d[:], b)
	return nil
}

// A Secret is what a client sends. It prints as [redacted]: convert it to a string where it
// is shown to its user.
type Secret = secret.Text

// What a service and its store answer.
var (
	ErrNotFound = problem.New(problem.NotFound, "key not found")
	ErrExists   = problem.New(problem.Conflict, "key id is taken")
	// ErrUnknown is the answer to a secret of no key, or of one that has expired.
	ErrUnknown = problem.New(problem.Unauthorized, "invalid or expired token")
	// ErrLastOperator refuses a change after which there would be no operator's key, or only
	// ones that expire.
	ErrLastOperator = problem.New(problem.Conflict, "this is the last key of an operator that does not expire: make another one first")
)

// A Store keeps keys, whose owners are their users. It never has a secret.
type Store interface {
	idempotency.Records[Key]
}

// A Shared store is one that other services change, too, such as those of other servers over one
// database. A Service over it reads the keys again when the version has changed: it looks once a
// second, and when it does not know a secret.
type Shared interface {
	Store
	// Version is another number after each change of a key, once the call that made the change
	// has returned, and otherwise the same.
	Version(ctx context.Context) (int64, error)
}

// Holding is what a key takes of its user's budgets (docs/decisions.md 37).
func (k *Key) Holding() budget.Holding {
	return budget.Holding{User: k.User, Of: [2]budget.Amount{{Budget: budget.Keys, N: 1}}}
}
