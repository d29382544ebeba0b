package seal_test

import (
	"bytes"
	"testing"

	"github.com/podyard/podyard/internal/seal"
)

func TestASecretOpensOnlyWithItsKeyItsUseAndItsName(t *testing.T) {
	key, other := bytes.Repeat([]byte{1}, seal.KeySize), bytes.Repeat([]byte{2}, seal.KeySize)
	name, secret := []byte("a"), []byte("secret")
	sealed, err := seal.Seal(key, "use", name, secret)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := seal.Open(key, "use", name, sealed); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("Open = %q, %v, want the secret", got, err)
	}
	damaged := bytes.Clone(sealed)
	damaged[len(damaged)-1]++
	for what, open := range map[string]func() ([]byte, error){
		"key":    func() ([]byte, error) { return seal.Open(other, "use", name, sealed) },
		"use":    func() ([]byte, error) { return seal.Open(key, "another use", name, sealed) },
		"name":   func() ([]byte, error) { return seal.Open(key, "use", []byte("b"), sealed) },
		"damage": func() ([]byte, error) { return seal.Open(key, "use", name, damaged) },
		"length": func() ([]byte, error) { return seal.Open(key, "use", name, nil) },
	} {
		if got, err := open(); err == nil {
			t.Errorf("%s: Open = %q, want an error", what, got)
		}
	}
	again, err := seal.Seal(key, "use", name, secret)
	if err != nil || bytes.Equal(again, sealed) {
		t.Errorf("a second Seal = the first, %v", err)
	}
}
