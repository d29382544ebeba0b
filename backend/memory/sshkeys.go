package memory

import (
	"context"
	"slices"
	"sync"

	"github.com/podyard/podyard/pods/sshkeys"
)

// SSHKeys is an sshkeys.Store. It is safe for concurrent use.
type SSHKeys struct {
	counted
	mu   sync.Mutex
	keys map[string][]string // by owner; a slice is never changed
}

var _ sshkeys.Store = (*SSHKeys)(nil)

// NewSSHKeys returns an empty store.
func NewSSHKeys() *SSHKeys { return &SSHKeys{counted: newCounted(), keys: make(map[string][]string)} }

// SSHKeys implements sshkeys.Store.
func (s *SSHKeys) SSHKeys(_ context.Context, owner string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys[owner]), nil
}

// SetSSHKeys implements sshkeys.Store.
func (s *SSHKeys) SetSSHKeys(_ context.Context, owner string, keys []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.tally.Move(sshkeys.Holding(owner, s.keys[owner]), sshkeys.Holding(owner, keys)); err != nil {
		return err
	}
	s.keys[owner] = slices.Clone(keys)
	return nil
}
