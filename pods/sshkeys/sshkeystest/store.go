// Package sshkeystest is what every sshkeys.Store must do, as a table of rules.
package sshkeystest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods/sshkeys"
)

// A Rule is one thing that a store must do.
type Rule struct {
	Name string
	Why  string // printed when it is broken
	Run  func(t *testing.T, s sshkeys.Store)
}

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) sshkeys.Store) {
	for _, r := range Rules() {
		suite.Run(t, r.Name, r.Why, func(t *testing.T) { r.Run(t, open(t)) })
	}
}

// Rules are the rules of a store.
func Rules() []Rule {
	return []Rule{
		{"NobodyHasKeysToBeginWith", "a user who never set any keys lets nobody in", nobodyHasKeys},
		{"KeysAreReadBackInTheirOrder", "a pod that is made years later lets in exactly whom its user said", readBackInOrder},
		{"SetReplacesAllKeys", "a key that was taken out must not let anybody in", setReplacesAll},
		{"KeysAreOfOneUser", "nobody is let in with a key of another user", keysOfOneUser},
		{"OneOfManySetsStandsWhole", "the keys of two requests must not mix", oneSetStands},
		{"NothingIsSharedWithCallers", "callers change what they gave and what they get", nothingIsShared},
	}
}

func set(t *testing.T, s sshkeys.Store, owner string, keys ...string) {
	t.Helper()
	if err := s.SetSSHKeys(t.Context(), owner, keys); err != nil {
		t.Fatalf("SetSSHKeys %q: %v", owner, err)
	}
}

func want(t *testing.T, s sshkeys.Store, owner string, keys ...string) {
	t.Helper()
	got, err := s.SSHKeys(t.Context(), owner)
	if err != nil {
		t.Fatalf("SSHKeys %q: %v", owner, err)
	}
	if diff := cmp.Diff(append([]string{}, keys...), append([]string{}, got...)); diff != "" {
		t.Errorf("keys of %q (-want +got):\n%s", owner, diff)
	}
}

func nobodyHasKeys(t *testing.T, s sshkeys.Store) {
	for _, owner := range []string{"alice", "", "a/b", "alice\x00"} {
		want(t, s, owner)
	}
}

func readBackInOrder(t *testing.T, s sshkeys.Store) {
	keys := []string{"ssh-rsa BBB her \"läptop\"", "ssh-ed25519 AAA", "ssh-rsa BBB her \"läptop\"", "sk-ssh-ed25519@openssh.com C\tc <>&"}
	set(t, s, "alice", keys...)
	want(t, s, "alice", keys...)
	want(t, s, "alice", keys...)
}

func setReplacesAll(t *testing.T, s sshkeys.Store) {
	set(t, s, "alice", "ssh-rsa A", "ssh-rsa B", "ssh-rsa C")
	set(t, s, "alice", "ssh-rsa D", "ssh-rsa A")
	want(t, s, "alice", "ssh-rsa D", "ssh-rsa A")
	set(t, s, "alice")
	want(t, s, "alice")
	set(t, s, "alice", "ssh-rsa E")
	want(t, s, "alice", "ssh-rsa E")
}

func keysOfOneUser(t *testing.T, s sshkeys.Store) {
	owners := []string{"al", "alice", "alice/2", "Alice"}
	for _, owner := range owners {
		set(t, s, owner, "ssh-rsa "+owner)
	}
	set(t, s, "al")
	want(t, s, "al")
	for _, owner := range owners[1:] {
		want(t, s, owner, "ssh-rsa "+owner)
	}
}

func oneSetStands(t *testing.T, s sshkeys.Store) {
	const many = 16
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			if err := s.SetSSHKeys(context.WithoutCancel(t.Context()), "alice", slices.Repeat([]string{fmt.Sprint("ssh-rsa ", i)}, i+1)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := s.SSHKeys(t.Context(), "alice")
	if err != nil || len(got) == 0 || len(got) > many {
		t.Fatalf("SSHKeys = %q, %v, want the keys of one request", got, err)
	}
	want(t, s, "alice", slices.Repeat([]string{fmt.Sprint("ssh-rsa ", len(got)-1)}, len(got))...)
}

func nothingIsShared(t *testing.T, s sshkeys.Store) {
	keys := []string{"ssh-rsa A", "ssh-rsa B"}
	set(t, s, "alice", keys...)
	clear(keys)
	for range 2 {
		got, err := s.SSHKeys(t.Context(), "alice")
		if err != nil {
			t.Fatal(err)
		}
		clear(got)
	}
	want(t, s, "alice", "ssh-rsa A", "ssh-rsa B")
}
