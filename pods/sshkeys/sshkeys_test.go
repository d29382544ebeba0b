package sshkeys_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/problem"
)

func TestKeysAreReplacedAllAtOnceForOneUser(t *testing.T) {
	s := sshkeys.New(memory.NewSSHKeys())
	set := func(owner string, keys ...string) {
		t.Helper()
		got, err := s.Replace(t.Context(), owner, sshkeys.ReplaceRequest{Keys: append([]string{}, keys...)})
		if err != nil || len(got) != len(keys) {
			t.Fatalf("Replace = %q, %v", got, err)
		}
	}
	want := func(owner string, keys ...string) {
		t.Helper()
		got, err := s.PublicKeys(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append([]string{}, keys...), append([]string{}, got...)); diff != "" {
			t.Errorf("keys of %s (-want +got):\n%s", owner, diff)
		}
		clear(got) // the caller owns the result
	}
	want("alice")
	set("alice", "ssh-rsa BBB her laptop", "ssh-ed25519 AAA")
	set("bob", "sk-ssh-ed25519@openssh.com CCC")
	want("alice", "ssh-rsa BBB her laptop", "ssh-ed25519 AAA")
	want("alice", "ssh-rsa BBB her laptop", "ssh-ed25519 AAA")
	set("alice", "ecdsa-sha2-nistp256 DDD\tc")
	want("alice", "ecdsa-sha2-nistp256 DDD\tc")
	set("alice")
	want("alice")
	want("bob", "sk-ssh-ed25519@openssh.com CCC")
}

func TestALineThatIsNoKeyIsRefusedAndNothingChanges(t *testing.T) {
	s := sshkeys.New(memory.NewSSHKeys())
	for _, bad := range []string{
		"", "ssh-rsa", "ssh-rsa ", "rsa AAA", "ssh-rsa AAA\nssh-rsa BBB", "-----BEGIN OPENSSH PRIVATE KEY-----", " ssh-rsa AAA", "ssh- AAA",
		"ssh-rsa A\x00A", "ssh-rsa AAA her\x00laptop", "ssh-\x00 AAA",
	} {
		_, err := s.Replace(t.Context(), "alice", sshkeys.ReplaceRequest{Keys: []string{"ssh-rsa AAA", bad}})
		doc := problem.Of(err)
		want := []string{"/keys/1: must be a public key as in authorized_keys: type, key, and a comment if you like"}
		if doc.Status != 422 || !cmp.Equal(want, doc.Errors) {
			t.Errorf("Replace with %q = %d %q, want %q", bad, doc.Status, doc.Errors, want)
		}
	}
	if _, err := s.Replace(t.Context(), "alice", sshkeys.ReplaceRequest{}); problem.Of(err).Status != 422 {
		t.Errorf("Replace without keys = %v, want a 422", err)
	}
	if keys, err := s.PublicKeys(t.Context(), "alice"); err != nil || len(keys) != 0 {
		t.Errorf("keys after refused requests = %q, %v; want none", keys, err)
	}
}

func TestAKeyRemembersTheAPIKeyThatHasPutItWhileThatOneIsGood(t *testing.T) {
	s := sshkeys.New(memory.NewSSHKeys())
	revoked := map[string]bool{}
	put := func(by string, lines ...string) {
		t.Helper()
		r := sshkeys.ReplaceRequest{Keys: lines, By: by, Good: func(by string) bool { return !revoked[by] }}
		if _, err := s.Replace(t.Context(), "alice", r); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, want ...sshkeys.Key) {
		t.Helper()
		got, err := s.Keys(t.Context(), "alice")
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
	const first, second = "ssh-ed25519 AAA first", "ssh-ed25519 BBB"
	put("k1", first)
	put("k2", first, second)
	want("a list with a key of before", sshkeys.Key{Line: first, By: "k1"}, sshkeys.Key{Line: second, By: "k2"})
	revoked["k1"] = true
	put("k2", first, second)
	want("a list after the end of an API key", sshkeys.Key{Line: first, By: "k2"}, sshkeys.Key{Line: second, By: "k2"})
	if lines, err := s.PublicKeys(t.Context(), "alice"); err != nil || !cmp.Equal(lines, []string{first, second}) {
		t.Errorf("what pods and users see: %q, %v; want the lines alone", lines, err)
	}
	put("", first)
	want("a key of an unknown API key", sshkeys.Key{Line: first, By: "k2"})
}
