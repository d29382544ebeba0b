// Package secretstest is what every secrets.Store must do.
package secretstest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods/secrets"
)

// TestStore runs every rule on a store of its own that open returns: empty, and closed
// by a cleanup of t if it must be.
func TestStore(t *testing.T, open func(t *testing.T) secrets.Store) {
	suite.Test(t, slices.Concat(suite.RecordRules[secrets.Store](records), suite.UpdateRules[secrets.Store](records), rules), open)
}

var records = suite.Records[secrets.Secret]{
	New: func(id, owner string, created time.Time) secrets.Secret {
		const value = "välue \"\x01\" <&>\n"
		return secrets.Secret{
			ID: id, Owner: owner, Name: "db/pass.word", Description: "näme \"\x01\"", Created: created, ValueSet: created.Add(time.Hour),
			Size: len(value), Value: value,
		}
	},
	Bare: func(id, owner string, created time.Time) secrets.Secret {
		return secrets.Secret{ID: id, Owner: owner, Created: created}
	},
	ID:     func(v secrets.Secret) string { return v.ID },
	Listed: secrets.Secret.Listed,
	Change: func(v *secrets.Secret) { v.Value, v.Size, v.Description = "new", 3, "" },
	Count:  func(v *secrets.Secret) { v.Size++ },

	ErrExists: secrets.ErrExists, ErrNotFound: secrets.ErrNotFound,
}

var rules = []suite.Rule[secrets.Store]{
	{Name: "TheLargestValueIsKeptWhole", Why: "a key file that was cut off opens nothing", Run: largestValue},
	{Name: "AValueStaysWhileItsDescriptionChanges", Why: "who writes a note must not lose the value", Run: valueStays},
}

func largestValue(t testing.TB, s secrets.Store) {
	want := secrets.Value(strings.Repeat("0123456789abcdef", secrets.MaxValue/16) + "the end")
	v := records.New("record00000001", "alice", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	v.Value, v.Size = want, len(want)
	if err := s.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), v.ID); err != nil || got.Value != want {
		t.Errorf("a value of %d bytes is read back with %d, %v", len(want), len(got.Value), err)
	}
}

func valueStays(t testing.TB, s secrets.Store) {
	v := records.New("record00000001", "alice", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	if err := s.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	for _, note := range []string{"one", ""} {
		v.Description = note
		if _, err := s.Update(t.Context(), v.ID, func(v *secrets.Secret) error { v.Description = note; return nil }); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(t.Context(), v.ID); err != nil || got != v {
			t.Errorf("after a change of the description the secret is %+v with a value of %d bytes, %v; want %+v", got, len(got.Value), err, v)
		}
	}
}
