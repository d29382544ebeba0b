// Package seal encrypts the secrets that stores keep, with AES-256-GCM.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// KeySize is the length of a key in bytes.
const KeySize = 32

const saltSize = 16

var errTooShort = errors.New("seal: it is too short")

// aead derives the key of one secret from a random salt, so that no pair of key and nonce
// repeats.
func aead(key []byte, info string, salt []byte) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, key, salt, info, KeySize)
	if err != nil {
		return nil, fmt.Errorf("seal: derive a key: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, fmt.Errorf("seal: derive a key: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal encrypts a secret and binds it to the name of its record: it cannot be opened under
// another name. info is what the key is used for.
func Seal(key []byte, info string, name, secret []byte) ([]byte, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails
	a, err := aead(key, info, salt)
	if err != nil {
		return nil, err
	}
	return a.Seal(salt, nil, secret, name), nil //nolint:gosec // this AEAD makes its nonce itself
}

// Open decrypts what Seal has returned. It fails if any of its arguments is another one, and
// if sealed is damaged.
func Open(key []byte, info string, name, sealed []byte) ([]byte, error) {
	if len(sealed) < saltSize {
		return nil, errTooShort
	}
	a, err := aead(key, info, sealed[:saltSize])
	if err != nil {
		return nil, err
	}
	return a.Open(nil, nil, sealed[saltSize:], name)
}
