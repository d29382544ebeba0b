// Package sshkeys keeps the SSH public keys of users. A pod that is created with startSsh
// accepts these keys. A change of keys applies to pods that are created afterwards.
package sshkeys

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A Store keeps the keys of users. It is safe for concurrent use, copies what it is given and
// returns copies. Nothing is visible before it is as durable as the store makes it.
type Store interface {
	// SSHKeys returns the keys of owner in the order in which they were set, none if none were
	// set.
	SSHKeys(ctx context.Context, owner string) ([]string, error)
	// SetSSHKeys replaces the keys of owner, all of them at once.
	SetSSHKeys(ctx context.Context, owner string, keys []string) error
}

// A Service checks keys and keeps them in a Store. It is safe for concurrent use.
type Service struct{ store Store }

var _ pods.PublicKeys = (*Service)(nil)

// New returns a service over store.
func New(store Store) *Service { return &Service{store} }

// PublicKeys returns the keys of owner, each a line of authorized_keys.
func (s *Service) PublicKeys(ctx context.Context, owner string) ([]string, error) {
	keys, err := s.store.SSHKeys(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("sshkeys: read: %w", err)
	}
	return keys, nil
}

// A ReplaceRequest has the complete new set of keys of a user.
type ReplaceRequest struct {
	Keys []string // nil: absent, which is a fault

	// Violations are faults that a decoder found. They are reported together with the faults of
	// the values. A field has one fault at most.
	Violations problem.Violations
}

// line is the published form of a key: a type, the key, and a comment if there is one. It has
// no control characters except tabs in the comment, because environment variables cannot have
// all of them.
var line = regexp.MustCompile(`^(ssh|ecdsa|sk)-[^\s[:cntrl:]]+ [^\s[:cntrl:]]+([ \t](\t|[^[:cntrl:]])*)?$`)

// Replace replaces the keys of owner by those of r, and returns them. An invalid request gets
// one error with all faults, and changes nothing.
func (s *Service) Replace(ctx context.Context, owner string, r ReplaceRequest) ([]string, error) {
	if r.Keys == nil {
		r.Violations.Add(problem.Invalid, "/keys", "is required")
	}
	for i, k := range r.Keys {
		if !line.MatchString(k) {
			r.Violations.Add(problem.Invalid, "/keys/"+strconv.Itoa(i), "must be a public key as in authorized_keys: type, key, and a comment if you like")
		}
	}
	if err := r.Violations.Err([]string{"keys"}); err != nil {
		return nil, err
	}
	if err := s.store.SetSSHKeys(ctx, owner, r.Keys); err != nil {
		return nil, fmt.Errorf("sshkeys: replace: %w", err)
	}
	return slices.Clone(r.Keys), nil
}

// Holding is what the keys of owner take of the budgets (docs/decisions.md 37).
func Holding(owner string, keys []string) budget.Holding {
	return budget.Holding{User: owner, Of: [2]budget.Amount{{Budget: budget.SSHKeys, N: int64(len(keys))}}}
}
