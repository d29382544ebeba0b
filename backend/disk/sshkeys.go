package disk

import (
	"context"
	"errors"
	"slices"

	"github.com/podyard/podyard/pods/sshkeys"
)

// SSHKeys is an sshkeys.Store. It has a record for each user.
type SSHKeys struct{ o owned[[]string] }

var _ sshkeys.Store = (*SSHKeys)(nil)

// errNoKeys is not returned to callers: a user without a record has no keys.
var errNoKeys = errors.New("disk: no keys")

// SSHKeys returns the store of the public SSH keys of users.
func (s *Store) SSHKeys() *SSHKeys {
	return &SSHKeys{owned[[]string]{
		s: s, kind: keySSHKeys, of: func(e *engine) *table[[]string] { return &e.sshKeys },
		clone: slices.Clone[[]string], notFound: errNoKeys,
	}}
}

// SSHKeys implements sshkeys.Store.
func (s *SSHKeys) SSHKeys(_ context.Context, owner string) ([]string, error) {
	keys, err := s.o.get(owner)
	if errors.Is(err, errNoKeys) {
		return nil, nil
	}
	return keys, err
}

// SetSSHKeys implements sshkeys.Store.
func (s *SSHKeys) SetSSHKeys(ctx context.Context, owner string, keys []string) error {
	return s.o.put(ctx, underWay, owner, keys)
}
