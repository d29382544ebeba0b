// Package sshkeys keeps the SSH public keys of users. A pod that is created with startSsh
// accepts these keys. A change of keys applies to pods that are created afterwards.
package sshkeys

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A Store keeps the keys of users: texts, each of which is what a Service has made of a key. It is safe for concurrent use, copies what it is given and
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

// A Key is a public key and who has put it.
type Key struct {
	Line string // as in authorized_keys
	// By names the API key that has put it, as httpapi.Identity.Key does. Empty: it is not known, as of
	// keys of earlier versions.
	By string
}

// text is what a Store keeps of k. A line has no newline.
func (k Key) text() string {
	if k.By == "" {
		return k.Line
	}
	return k.Line + "\n" + k.By
}

// Keys returns the keys of owner.
func (s *Service) Keys(ctx context.Context, owner string) ([]Key, error) {
	texts, err := s.store.SSHKeys(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("sshkeys: read: %w", err)
	}
	keys := make([]Key, len(texts))
	for i, t := range texts {
		keys[i].Line, keys[i].By, _ = strings.Cut(t, "\n")
	}
	return keys, nil
}

// PublicKeys returns the keys of owner, each a line of authorized_keys.
func (s *Service) PublicKeys(ctx context.Context, owner string) ([]string, error) {
	keys, err := s.Keys(ctx, owner)
	if err != nil {
		return nil, err
	}
	lines := make([]string, len(keys))
	for i, k := range keys {
		lines[i] = k.Line
	}
	return lines, nil
}

// A ReplaceRequest has the complete new set of keys of a user.
type ReplaceRequest struct {
	Keys []string // nil: absent, which is a fault
	By   string   // names the API key of the request
	// Good reports whether the API key that has put a key may still do so. Then that key, if it is in
	// Keys, stays the one that has put it. Nil: all are put by By.
	Good func(by string) bool

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
	texts, err := s.texts(ctx, owner, &r)
	if err != nil {
		return nil, err
	}
	if err := s.store.SetSSHKeys(ctx, owner, texts); err != nil {
		return nil, fmt.Errorf("sshkeys: replace: %w", err)
	}
	return slices.Clone(r.Keys), nil
}

// texts are what the store keeps of the keys of r. A key that is there stays with the API key that has put
// it: else whoever repeats a list would answer for keys of others in it.
func (s *Service) texts(ctx context.Context, owner string, r *ReplaceRequest) ([]string, error) {
	before := map[string]string{}
	if r.Good != nil {
		keys, err := s.Keys(ctx, owner)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			if k.By != "" && r.Good(k.By) {
				before[k.Line] = k.By
			}
		}
	}
	texts := make([]string, len(r.Keys))
	for i, line := range r.Keys {
		texts[i] = Key{line, cmp.Or(before[line], r.By)}.text()
	}
	return texts, nil
}

// Holding is what the keys of owner take of the budgets (docs/decisions.md 37).
func Holding(owner string, keys []string) budget.Holding {
	return budget.Holding{User: owner, Of: [2]budget.Amount{{Budget: budget.SSHKeys, N: int64(len(keys))}}}
}
