package disk

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/podyard/podyard/problem"
)

// KeySize is the length of Options.Key in bytes.
const KeySize = 32

// ErrNoKey is returned for a change with a secret if the store has no key.
var ErrNoKey = &problem.Error{Kind: problem.Unavailable, Permanent: true, Detail: "this store has no key to seal secrets with"}

// A sealer encrypts secrets at rest with AES-256-GCM. Each secret has a key of its own,
// derived from a random salt, so that no pair of key and nonce repeats. The zero value has no
// key.
type sealer struct {
	key []byte
	old [][]byte // decrypt only
}

const (
	saltSize = 16
	sealInfo = "podyard disk secret 1"
)

func (s sealer) aead(salt []byte) (cipher.AEAD, error) {
	if s.key == nil {
		return nil, ErrNoKey
	}
	key, err := hkdf.Key(sha256.New, s.key, salt, sealInfo, KeySize)
	if err != nil {
		return nil, fmt.Errorf("disk: derive a key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("disk: derive a key: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal encrypts secret and binds it to the name of its record. It cannot be decrypted under
// another name.
func (s sealer) seal(name, secret []byte) ([]byte, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails
	a, err := s.aead(salt)
	if err != nil {
		return nil, err
	}
	return a.Seal(salt, nil, secret, name), nil //nolint:gosec // this AEAD makes its nonce itself
}

func (s sealer) open(name, sealed []byte) ([]byte, error) {
	if s.key == nil {
		return nil, ErrNoKey
	}
	for _, key := range append([][]byte{s.key}, s.old...) {
		if secret, err := (sealer{key: key}).openOne(name, sealed); err == nil {
			return secret, nil
		}
	}
	return nil, damaged(name)
}

// openOne is open without the old keys.
func (s sealer) openOne(name, sealed []byte) ([]byte, error) {
	if len(sealed) < saltSize {
		return nil, damaged(name)
	}
	a, err := s.aead(sealed[:saltSize])
	if err != nil {
		return nil, err
	}
	secret, err := a.Open(nil, nil, sealed[saltSize:], name)
	if err != nil {
		return nil, damaged(name)
	}
	return secret, nil
}
