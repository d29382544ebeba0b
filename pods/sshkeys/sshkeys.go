// Package sshkeys keeps the SSH public keys of users. A pod that is created with
// startSsh lets these keys in. Keys count for pods that are created after they were
// set.
package sshkeys

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// A Store keeps the keys of users. It is safe for concurrent use, copies what it is given
// and returns copies. What it answers is as durable as the store makes it.
type Store interface {
	// SSHKeys returns the keys of owner in the order in which they were set; none for a
	// user who never set any.
	SSHKeys(ctx context.Context, owner string) ([]string, error)
	// SetSSHKeys replaces the keys of owner, all of them at once.
	SetSSHKeys(ctx context.Context, owner string, keys []string) error
}

// A Service is the rules of keys over a Store. It is safe for concurrent use.
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

// A ReplaceRequest is the full set of keys that a user is to have.
type ReplaceRequest struct {
	Keys []string // nil: it is absent, which is a fault

	// Violations are what a decoder found. They are reported together with the faults of the
	// values, and a field with a fault gets no second one.
	Violations problem.Violations
}

// line is the published form of a key: a type, the key, and a comment if there is one. It
// has no control characters but tabs in the comment: an environment cannot hold all of them.
var line = regexp.MustCompile(`^(ssh|ecdsa|sk)-[^\s[:cntrl:]]+ [^\s[:cntrl:]]+([ \t](\t|[^[:cntrl:]])*)?$`)

// Replace gives owner the keys of r and no others, and returns them. A request that breaks
// the rules gets one error with all faults, and changes nothing.
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
