// Package sshkeystest is what every sshkeys.Store must do.
package sshkeystest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods/sshkeys"
)

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) sshkeys.Store) {
	suite.Test(t, rules, open)
}

var rules = []suite.Rule[sshkeys.Store]{
	{Name: "NobodyHasKeysToBeginWith", Why: "a user who never set any keys lets nobody in", Run: nobodyHasKeys},
	{Name: "KeysAreReadBackInTheirOrder", Why: "a pod that is made years later lets in exactly whom its user said", Run: readBackInOrder},
	{Name: "SetReplacesAllKeys", Why: "a key that was taken out must not let anybody in", Run: setReplacesAll},
	{Name: "KeysAreOfOneUser", Why: "nobody is let in with a key of another user", Run: keysOfOneUser},
	{Name: "OneOfManySetsStandsWhole", Why: "the keys of two requests must not mix", Run: oneSetStands},
	{Name: "NothingIsSharedWithCallers", Why: "callers change what they gave and what they get", Run: nothingIsShared},
}

func set(t testing.TB, s sshkeys.Store, owner string, keys ...string) {
	t.Helper()
	if err := s.SetSSHKeys(t.Context(), owner, keys); err != nil {
		t.Fatalf("SetSSHKeys %q: %v", owner, err)
	}
}

func want(t testing.TB, s sshkeys.Store, owner string, keys ...string) {
	t.Helper()
	got, err := s.SSHKeys(t.Context(), owner)
	if err != nil {
		t.Fatalf("SSHKeys %q: %v", owner, err)
	}
	if diff := cmp.Diff(append([]string{}, keys...), append([]string{}, got...)); diff != "" {
		t.Errorf("keys of %q (-want +got):\n%s", owner, diff)
	}
}

func nobodyHasKeys(t testing.TB, s sshkeys.Store) {
	for _, owner := range []string{"alice", "", "a/b", "alice\x00"} {
		want(t, s, owner)
	}
}

func readBackInOrder(t testing.TB, s sshkeys.Store) {
	keys := []string{"ssh-rsa BBB her \"läptop\"", "ssh-ed25519 AAA", "ssh-rsa BBB her \"läptop\"", "sk-ssh-ed25519@openssh.com C\tc <>&"}
	set(t, s, "alice", keys...)
	want(t, s, "alice", keys...)
	want(t, s, "alice", keys...)
}

func setReplacesAll(t testing.TB, s sshkeys.Store) {
	set(t, s, "alice", "ssh-rsa A", "ssh-rsa B", "ssh-rsa C")
	set(t, s, "alice", "ssh-rsa D", "ssh-rsa A")
	want(t, s, "alice", "ssh-rsa D", "ssh-rsa A")
	set(t, s, "alice")
	want(t, s, "alice")
	set(t, s, "alice", "ssh-rsa E")
	want(t, s, "alice", "ssh-rsa E")
}

func keysOfOneUser(t testing.TB, s sshkeys.Store) {
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

func oneSetStands(t testing.TB, s sshkeys.Store) {
	const many = 16
	suite.Together(many, func(i int) {
		if err := s.SetSSHKeys(t.Context(), "alice", slices.Repeat([]string{fmt.Sprint("ssh-rsa ", i)}, i+1)); err != nil {
			t.Error(err)
		}
	})
	got, err := s.SSHKeys(t.Context(), "alice")
	if err != nil || len(got) == 0 || len(got) > many {
		t.Fatalf("SSHKeys = %q, %v, want the keys of one request", got, err)
	}
	want(t, s, "alice", slices.Repeat([]string{fmt.Sprint("ssh-rsa ", len(got)-1)}, len(got))...)
}

func nothingIsShared(t testing.TB, s sshkeys.Store) {
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
