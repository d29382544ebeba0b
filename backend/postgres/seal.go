package postgres

import (
	"errors"

	"github.com/podyard/podyard/internal/seal"
	"github.com/podyard/podyard/problem"
)

// KeySize is the length of Options.Key in bytes.
const KeySize = seal.KeySize

// ErrNoKey is returned for a secret if the store has no key.
var ErrNoKey = &problem.Error{Kind: problem.Unavailable, Permanent: true, Detail: "this store has no key to seal secrets with: Options.Key of the store, or secretKey of the configuration, is not set"}

// ErrKey is returned if the secrets of the database are sealed with another key.
var ErrKey = errors.New("postgres: the key is not the one that the secrets of the database are sealed with")

// A sealer encrypts secrets. The zero value has no key.
type sealer struct {
	key []byte
	old [][]byte // decrypt only
}

const sealInfo = "podyard postgres secret 1"

// seal encrypts secret and binds it to the name of its record.
func (s sealer) seal(name, secret []byte) ([]byte, error) {
	if s.key == nil {
		return nil, ErrNoKey
	}
	return seal.Seal(s.key, sealInfo, name, secret)
}

func (s sealer) open(name, sealed []byte) (secret []byte, err error) {
	if s.key == nil {
		return nil, ErrNoKey
	}
	for _, key := range append([][]byte{s.key}, s.old...) {
		if secret, err = seal.Open(key, sealInfo, name, sealed); err == nil {
			return secret, nil
		}
	}
	return nil, ErrKey
}
